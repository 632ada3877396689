//! Reading one log: ranges, records, scans, waiting. The same for a writer and a follower.

use std::time::Instant;

use braidlog_core::Error;
use braidlog_core::wal::{Cancel, StreamView, View, Waited};
use pyo3::prelude::*;

use crate::append::with_bytes;
use crate::arrow::Projection;
use crate::error::to_py;
use crate::exit::detach;
use crate::gate::Reader;
use crate::number::{Micros, Place, Seconds, Unsigned};
use crate::pending::SIGNAL_INTERVAL;
use crate::record::{Record, RecordIterator, Selection, owned_object};
use crate::scan::{BatchIterator, Scan};

/// A log as readers see it.
#[pyclass(frozen, module = "braidlog._native")]
pub struct LogView {
    reader: Reader,
    /// Ends waits when cancelled.
    cancel: Cancel,
}

impl LogView {
    /// A view of a stream.
    pub fn new(reader: Reader) -> Self {
        let cancel = Cancel::default();
        Self { reader, cancel }
    }

    /// What it reads by.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Check a range against what can be read; `None` means the first position and the current end.
    fn bounds(
        &self,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(u64, u64)> {
        let begin = begin
            .map(|given| Place::named(given, "begin"))
            .transpose()?;
        let end = Unsigned::optional(end, "end")?;
        self.reader.check().map_err(to_py)?;
        let range = self.reader.stream.range();
        let begin = begin.map_or(range.first, |Place(begin)| begin);
        let end = end.map_or(range.end, |Unsigned(end)| end);
        if begin < range.first {
            return Err(to_py(Error::Trimmed {
                position: begin,
                first: range.first,
            }));
        }
        if begin > range.end {
            return Err(to_py(Error::BeyondEnd {
                position: begin,
                next: range.end,
            }));
        }
        Ok((begin, end.min(range.end).max(begin)))
    }

    fn scan(
        &self,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        columns: Option<Vec<String>>,
    ) -> PyResult<Scan> {
        let (begin, end) = self.bounds(begin, end)?;
        let projection = projection(columns.as_deref())?;
        Ok(Scan::new(self.reader.clone(), projection, begin, end))
    }
}

/// The columns of these names, all without names.
pub fn projection(columns: Option<&[String]>) -> PyResult<Projection> {
    match columns {
        None => Ok(Projection::all()),
        Some(names) => Projection::of(names.iter().map(String::as_str)).map_err(to_py),
    }
}

/// (segment, lane, begin, end, bytes, frames, smallest and largest timestamp).
type SegmentRow = (u64, u32, u64, u64, u64, u64, i64, i64);

#[pymethods]
impl LogView {
    /// (first, end, durable end, epoch).
    fn range(&self) -> PyResult<(u64, u64, u64, u64)> {
        self.reader.check().map_err(to_py)?;
        let range = self.reader.stream.range();
        Ok((range.first, range.end, range.durable, range.epoch))
    }

    /// The record at `position`, of what is durable now; the other reads show what was when it was
    /// refreshed last.
    fn get(&self, py: Python<'_>, position: &Bound<'_, PyAny>) -> PyResult<Py<Record>> {
        let Place(position) = Place::named(position, "position")?;
        let get = || {
            self.reader.refresh()?;
            self.reader.read(|view, stream| view.get(stream, position))
        };
        let found = detach(py, get).map_err(to_py)?;
        owned_object(py, position, &found)
    }

    #[pyo3(signature = (
        begin=None, end=None, key=None, since=None, until=None, limit=None, skip_holes=false, reverse=false
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are those of `Log.read`")]
    fn records(
        &self,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        since: Option<Micros>,
        until: Option<Micros>,
        limit: Option<&Bound<'_, PyAny>>,
        skip_holes: bool,
        reverse: bool,
    ) -> PyResult<RecordIterator> {
        let whole = begin.is_none();
        let (begin, end) = self.bounds(begin, end)?;
        let wanted = Selection {
            start: begin,
            whole,
            end,
            reverse,
            key: key
                .map(|key| with_bytes(key, "key", <[u8]>::to_vec))
                .transpose()?,
            since: since.map(|Micros(since)| since),
            until: until.map(|Micros(until)| until),
            skip_holes,
            limit: limit.map_or(Ok(u64::MAX), |given| {
                Unsigned::named(given, "limit").map(|Unsigned(limit)| limit)
            })?,
        };
        Ok(RecordIterator::new(self.reader.clone(), wanted))
    }

    #[pyo3(signature = (begin=None, end=None, columns=None, skip_holes=false))]
    fn batches(
        &self,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        columns: Option<Vec<String>>,
        skip_holes: bool,
    ) -> PyResult<BatchIterator> {
        let scan = self.scan(begin, end, columns)?;
        Ok(BatchIterator::new(scan.skipping(skip_holes)))
    }

    fn find(&self, py: Python<'_>, timestamp: Micros) -> PyResult<Option<u64>> {
        let Micros(timestamp) = timestamp;
        detach(py, || {
            self.reader
                .read(|view, stream| view.find(stream, timestamp))
        })
        .map_err(to_py)
    }

    /// Wait until `position` can be read: true, or false when the time is up first.
    #[pyo3(signature = (position, timeout=None))]
    fn wait(
        &self,
        py: Python<'_>,
        position: &Bound<'_, PyAny>,
        timeout: Option<Seconds>,
    ) -> PyResult<bool> {
        let Place(position) = Place::named(position, "position")?;
        self.reader.check().map_err(to_py)?;
        let deadline = timeout.map(|Seconds(time)| Instant::now() + time);
        let stream = &self.reader.stream;
        loop {
            let slice = deadline.map_or(SIGNAL_INTERVAL, |deadline| {
                deadline
                    .saturating_duration_since(Instant::now())
                    .min(SIGNAL_INTERVAL)
            });
            match detach(py, || stream.wait(position, slice, Some(&self.cancel))) {
                Waited::Ready => return Ok(true),
                Waited::Cancelled => return Err(to_py(self.reader.ended())),
                Waited::TimedOut if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                    return Ok(false);
                }
                Waited::TimedOut => py.check_signals()?,
            }
        }
    }

    /// End all waits that go through this object; they raise `ClosedError`.
    fn cancel(&self) {
        self.cancel.cancel(&self.reader.stream);
    }

    /// Where the log is stored, by segment; the newest last.
    fn segments(&self, py: Python<'_>) -> PyResult<Vec<SegmentRow>> {
        detach(py, || self.reader.read(segment_rows)).map_err(to_py)
    }
}

fn segment_rows(view: &View, stream: &StreamView) -> braidlog_core::Result<Vec<SegmentRow>> {
    let range = stream.range();
    let mut rows = Vec::new();
    for segment in view.segments().iter() {
        for entry in segment.summary(&*view.vfs, &view.dir)?.iter() {
            let held = entry.range.clone();
            let Some(held) = held.filter(|_| entry.stream == stream.number) else {
                continue;
            };
            let (begin, end) = (held.start.max(range.first), held.end.min(range.end));
            if begin < end {
                let (earliest, latest) = entry.timestamps.unwrap_or_default();
                rows.push((
                    segment.number,
                    entry.lane,
                    begin,
                    end,
                    entry.bytes,
                    entry.frames,
                    earliest,
                    latest,
                ));
            }
        }
    }
    Ok(rows)
}
