//! Reading one log: ranges, records, scans, waiting. The same for a writer and a follower.

use std::sync::Arc;
use std::time::{Duration, Instant};

use braidlog_core::Error;
use braidlog_core::wal::{Cancel, StreamView, View, Waited};
use pyo3::prelude::*;

use crate::arrow::Projection;
use crate::error::to_py;
use crate::record::{Record, RecordIterator, Selection, owned_object};
use crate::scan::{BatchIterator, Scan};

/// Waiting threads look for signals this often.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// A log as readers see it.
#[pyclass(frozen, module = "braidlog._native")]
pub struct LogView {
    /// The node.
    pub view: Arc<View>,
    /// The log's stream.
    pub stream: Arc<StreamView>,
    /// Ends waits when cancelled.
    pub cancel: Arc<Cancel>,
}

impl LogView {
    /// A view of `stream`.
    pub fn new(view: Arc<View>, stream: Arc<StreamView>) -> Self {
        Self {
            view,
            stream,
            cancel: Arc::default(),
        }
    }

    /// Check a range against what can be read; `None` means the first position and the current end.
    fn bounds(&self, start: Option<u64>, end: Option<u64>) -> PyResult<(u64, u64)> {
        let range = self.stream.range();
        let start = start.unwrap_or(range.first);
        if start < range.first {
            return Err(to_py(Error::Trimmed { first: range.first }));
        }
        if start > range.end {
            return Err(to_py(Error::BeyondEnd {
                position: start,
                next: range.end,
            }));
        }
        Ok((start, end.unwrap_or(range.end).min(range.end).max(start)))
    }

    fn scan(
        &self,
        start: Option<u64>,
        end: Option<u64>,
        columns: Option<Vec<String>>,
    ) -> PyResult<Scan> {
        let (start, end) = self.bounds(start, end)?;
        let projection = match columns {
            None => Projection::all(),
            Some(names) => Projection::of(names.iter().map(String::as_str)).map_err(to_py)?,
        };
        Ok(Scan::new(
            Arc::clone(&self.view),
            Arc::clone(&self.stream),
            projection,
            start,
            end,
        ))
    }
}

/// (segment, lane, begin, end, bytes, frames, smallest and largest timestamp).
type SegmentRow = (u64, u32, u64, u64, u64, u64, i64, i64);

#[pymethods]
impl LogView {
    /// (first, end, durable end, epoch).
    fn range(&self) -> (u64, u64, u64, u64) {
        let range = self.stream.range();
        (range.first, range.end, range.durable, range.epoch)
    }

    fn get(&self, py: Python<'_>, position: u64) -> PyResult<Py<Record>> {
        let found = py
            .detach(|| self.view.get(&self.stream, position))
            .map_err(to_py)?;
        owned_object(py, position, &found)
    }

    #[pyo3(signature = (start=None, end=None, key=None, since=None, until=None, limit=None))]
    fn records(
        &self,
        start: Option<u64>,
        end: Option<u64>,
        key: Option<Vec<u8>>,
        since: Option<i64>,
        until: Option<i64>,
        limit: Option<u64>,
    ) -> PyResult<RecordIterator> {
        let (start, end) = self.bounds(start, end)?;
        let wanted = Selection {
            start,
            end,
            key,
            since: since.unwrap_or(i64::MIN),
            until: until.unwrap_or(i64::MAX),
            limit: limit.unwrap_or(u64::MAX),
        };
        Ok(RecordIterator::new(
            Arc::clone(&self.view),
            Arc::clone(&self.stream),
            wanted,
        ))
    }

    #[pyo3(signature = (start=None, end=None, columns=None))]
    fn batches(
        &self,
        start: Option<u64>,
        end: Option<u64>,
        columns: Option<Vec<String>>,
    ) -> PyResult<BatchIterator> {
        Ok(BatchIterator::new(self.scan(start, end, columns)?))
    }

    fn find(&self, py: Python<'_>, timestamp: i64) -> PyResult<Option<u64>> {
        py.detach(|| self.view.find(&self.stream, timestamp))
            .map_err(to_py)
    }

    /// Wait until `position` can be read: true, or false when the time is up first.
    #[pyo3(signature = (position, timeout=None))]
    fn wait(&self, py: Python<'_>, position: u64, timeout: Option<f64>) -> PyResult<bool> {
        let deadline = timeout
            .map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
        loop {
            let slice = deadline.map_or(SIGNAL_INTERVAL, |deadline| {
                deadline
                    .saturating_duration_since(Instant::now())
                    .min(SIGNAL_INTERVAL)
            });
            match py.detach(|| self.stream.wait(position, slice, Some(&self.cancel))) {
                Waited::Ready => return Ok(true),
                Waited::Cancelled => return Err(to_py(Error::Closed)),
                Waited::TimedOut if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                    return Ok(false);
                }
                Waited::TimedOut => py.check_signals()?,
            }
        }
    }

    /// End all waits that go through this object; they raise `ClosedError`.
    fn cancel(&self) {
        self.cancel.cancel(&self.stream);
    }

    /// Where the log is stored, by segment; the newest last.
    fn segments(&self, py: Python<'_>) -> PyResult<Vec<SegmentRow>> {
        py.detach(|| self.segment_rows()).map_err(to_py)
    }
}

impl LogView {
    fn segment_rows(&self) -> braidlog_core::Result<Vec<SegmentRow>> {
        let range = self.stream.range();
        let mut rows = Vec::new();
        for segment in self.view.segments().iter() {
            for entry in segment.summary(&*self.view.vfs, &self.view.dir)?.iter() {
                let Some(held) = entry
                    .range
                    .clone()
                    .filter(|_| entry.stream == self.stream.number)
                else {
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
}
