//! Records as Python objects: one at a time only where a program asks for them one at a time.

use braidlog_core::batch::{BatchView, Headers, OwnedRecord, RecordRef, filter_key};
use braidlog_core::table::table::Payload;
use braidlog_core::wal::{BatchRef, Position, StreamView, View};
use braidlog_core::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::error::to_py;
use crate::exit::detach;
use crate::gate::Reader;

/// Bytes read from the log at a time.
const READ_BYTES: usize = 256 << 10;

/// Records made at a time, so that a batch of many small ones does not become a million objects.
const OBJECTS_MAX: u32 = 4096;

/// One record of a log. Immutable, hashable, comparable, picklable.
#[pyclass(frozen, module = "braidlog._native")]
pub struct Record {
    /// Position in the log, from 1.
    #[pyo3(get)]
    position: u64,
    /// Microseconds since the Unix epoch, UTC.
    #[pyo3(get)]
    timestamp: i64,
    /// Key, or `None`.
    #[pyo3(get)]
    key: Option<Py<PyBytes>>,
    /// Value, or `None` if it is null.
    #[pyo3(get)]
    value: Option<Py<PyBytes>>,
    headers: Option<Py<PyTuple>>,
}

#[pymethods]
impl Record {
    #[new]
    #[pyo3(signature = (position, timestamp, key, value, headers=None))]
    fn new(
        position: u64,
        timestamp: i64,
        key: Option<Py<PyBytes>>,
        value: Option<Py<PyBytes>>,
        headers: Option<Py<PyTuple>>,
    ) -> Self {
        Self {
            position,
            timestamp,
            key,
            value,
            headers,
        }
    }

    /// Named values beside the record, in order; a name may repeat, and a value may be `None`.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> Bound<'py, PyTuple> {
        self.headers
            .as_ref()
            .map_or_else(|| PyTuple::empty(py), |headers| headers.bind(py).clone())
    }

    fn as_tuple<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let key = self.key.as_ref().map(|key| key.clone_ref(py));
        (
            self.position,
            self.timestamp,
            key,
            self.value.as_ref().map(|value| value.clone_ref(py)),
            self.headers(py),
        )
            .into_pyobject(py)
    }

    fn __eq__(&self, py: Python<'_>, other: &Self) -> PyResult<bool> {
        self.as_tuple(py)?.eq(other.as_tuple(py)?)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.as_tuple(py)?.hash()
    }

    /// All of a small record; of a large one what tells it apart, and how much there is.
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shown = |bytes: &Option<Py<PyBytes>>| shown(bytes.as_ref().map(|all| all.bind(py)));
        let (key, value) = (shown(&self.key)?, shown(&self.value)?);
        let headers = self.headers(py);
        let headers = if headers.is_empty() {
            String::new()
        } else {
            format!(", headers={}", shown_headers(&headers)?)
        };
        Ok(format!(
            "Record(position={}, timestamp={}, key={key}, value={value}{headers})",
            self.position, self.timestamp
        ))
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        Ok((py.get_type::<Self>().into_any(), self.as_tuple(py)?))
    }
}

/// Bytes of a key or value that are shown.
const SHOWN_BYTES: usize = 100;

/// Headers that are shown.
const SHOWN_HEADERS: usize = 8;

/// Bytes as Python shows them; of many the first ones and how many there are.
fn shown(bytes: Option<&Bound<'_, PyBytes>>) -> PyResult<String> {
    let Some(bytes) = bytes else {
        return Ok("None".to_owned());
    };
    let all = bytes.as_bytes();
    if all.len() <= SHOWN_BYTES {
        return Ok(bytes.repr()?.to_string());
    }
    let begin = PyBytes::new(bytes.py(), &all[..SHOWN_BYTES]);
    Ok(format!("{}... ({} bytes)", begin.repr()?, all.len()))
}

fn shown_headers(headers: &Bound<'_, PyTuple>) -> PyResult<String> {
    let mut pairs = Vec::new();
    for pair in headers.iter().take(SHOWN_HEADERS) {
        let Ok((name, value)) = pair.extract::<(String, Option<Bound<'_, PyBytes>>)>() else {
            pairs.push(pair.repr()?.to_string());
            continue;
        };
        let cut: String = name.chars().take(SHOWN_BYTES).collect();
        let more = if cut.len() < name.len() { "..." } else { "" };
        let name = PyString::new(headers.py(), &cut);
        pairs.push(format!(
            "({}{more}, {})",
            name.repr()?,
            shown(value.as_ref())?
        ));
    }
    if headers.len() > SHOWN_HEADERS {
        pairs.push(format!("... {} in all", headers.len()));
    } else if headers.len() == 1 {
        pairs.push(String::new());
    }
    Ok(format!("({})", pairs.join(", ").trim_end()))
}

fn header_tuple(py: Python<'_>, headers: Headers<'_>) -> PyResult<Option<Py<PyTuple>>> {
    if headers.len() == 0 {
        return Ok(None);
    }
    let pairs: Vec<_> = headers
        .map(|(name, value)| (name, value.map(|value| PyBytes::new(py, value))))
        .collect();
    Ok(Some(PyTuple::new(py, pairs)?.unbind()))
}

/// Make the object of a record that was read. Python's collector does not look at it: it refers to bytes and text
/// alone, so no cycle goes through it, and those who keep many would pay for each of them again and again.
fn made(py: Python<'_>, record: Record) -> PyResult<Py<Record>> {
    let object = Py::new(py, record)?;
    // SAFETY: the object is whole, and of a class that the collector knows.
    unsafe { pyo3::ffi::PyObject_GC_UnTrack(object.as_ptr().cast()) };
    Ok(object)
}

/// The Python object of a borrowed record.
pub fn record_object(py: Python<'_>, position: u64, record: RecordRef<'_>) -> PyResult<Py<Record>> {
    let key = record.key.map(|key| PyBytes::new(py, key).unbind());
    let value = record.value.map(|value| PyBytes::new(py, value).unbind());
    let headers = header_tuple(py, record.headers)?;
    made(
        py,
        Record {
            position,
            timestamp: record.timestamp,
            key,
            value,
            headers,
        },
    )
}

/// The Python object of a record read by position.
pub fn owned_object(py: Python<'_>, position: u64, record: &OwnedRecord) -> PyResult<Py<Record>> {
    let object = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|all| PyBytes::new(py, all).unbind());
    let (key, value) = (object(&record.key), object(&record.value));
    let headers = if record.headers.is_empty() {
        None
    } else {
        let pairs: Vec<_> = record
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), object(value)))
            .collect();
        Some(PyTuple::new(py, pairs)?.unbind())
    };
    made(
        py,
        Record {
            position,
            timestamp: record.timestamp,
            key,
            value,
            headers,
        },
    )
}

/// The Python object of a record of a table.
pub fn row_object(
    py: Python<'_>,
    position: u64,
    key: Py<PyBytes>,
    payload: Payload<'_>,
) -> PyResult<Py<Record>> {
    let headers = if payload.headers.len() == 0 {
        None
    } else {
        let pairs: Vec<_> = payload
            .headers
            .map(|(name, value)| (name, value.map(|value| PyBytes::new(py, value))))
            .collect();
        Some(PyTuple::new(py, pairs)?.unbind())
    };
    made(
        py,
        Record {
            position,
            timestamp: payload.timestamp,
            key: Some(key),
            value: payload.value.map(|value| PyBytes::new(py, value).unbind()),
            headers,
        },
    )
}

/// What to read.
pub struct Selection {
    /// First position.
    pub start: u64,
    /// Whether `start` is the first position of the log, not one that the caller named.
    pub whole: bool,
    /// One past the last position.
    pub end: u64,
    /// From the last position to the first.
    pub reverse: bool,
    /// Only this key.
    pub key: Option<Vec<u8>>,
    /// Only timestamps from this one on.
    pub since: Option<i64>,
    /// Only timestamps below this one.
    pub until: Option<i64>,
    /// At most so many records.
    pub limit: u64,
    /// Whether to read on behind records that a repair declared lost.
    pub skip_holes: bool,
}

impl Selection {
    fn is_before(&self, timestamp: i64) -> bool {
        self.since.is_some_and(|since| timestamp < since)
    }

    fn is_after(&self, timestamp: i64) -> bool {
        self.until.is_some_and(|until| timestamp >= until)
    }
}

/// Iterates over records in position order, or against it. Holds about one chunk of the log in memory.
#[pyclass(module = "braidlog._native")]
pub struct RecordIterator {
    reader: Reader,
    wanted: Selection,
    /// Where the next read begins, or ends if it goes backwards.
    next: u64,
    position: Position,
    /// Batches that were read, the next one last.
    batches: Vec<BatchRef>,
    /// Records that were made, the next one last.
    ready: Vec<Py<Record>>,
    given: u64,
}

impl RecordIterator {
    /// Iterate over what `wanted` selects.
    pub fn new(reader: Reader, wanted: Selection) -> Self {
        let next = if wanted.reverse {
            wanted.end
        } else {
            wanted.start
        };
        Self {
            reader,
            wanted,
            next,
            position: Position::default(),
            batches: Vec::new(),
            ready: Vec::new(),
            given: 0,
        }
    }

    /// Make the objects of the next records; false at the end.
    fn fill(&mut self, py: Python<'_>) -> PyResult<bool> {
        while self.ready.is_empty() {
            if let Some(batch) = self.batches.pop() {
                self.take(py, batch)?;
                continue;
            }
            if self.given >= self.wanted.limit {
                return Ok(false);
            }
            // Filters may pass over much of the log.
            py.check_signals()?;
            let found = detach(py, || {
                if self.wanted.reverse {
                    self.read_back()
                } else {
                    self.read_on()
                }
            });
            self.batches = found.map_err(to_py)?;
            if self.batches.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn read_on(&mut self) -> Result<Vec<BatchRef>> {
        let (from, to, position) = (self.next, self.wanted.end, &mut self.position);
        if from >= to {
            return Ok(Vec::new());
        }
        let read =
            |view: &View, stream: &StreamView| view.read(stream, from, to, READ_BYTES, position);
        let mut found = self.reader.read(read)?;
        self.next = found.last().map_or(to, BatchRef::next);
        found.reverse();
        Ok(found)
    }

    fn read_back(&mut self) -> Result<Vec<BatchRef>> {
        while self.next > self.wanted.start {
            let (from, to) = (self.wanted.start, self.next);
            let read =
                |view: &View, stream: &StreamView| view.read_back(stream, from, to, READ_BYTES);
            match self.reader.read(read) {
                // All of the log was asked for, and this is where it begins by now.
                Err(Error::Trimmed { first, .. }) if self.wanted.whole && first > from => {
                    self.wanted.start = first;
                }
                found => {
                    let found = found?;
                    self.next = found.first().map_or(from, BatchRef::first);
                    return Ok(found);
                }
            }
        }
        Ok(Vec::new())
    }

    fn take(&mut self, py: Python<'_>, batch: BatchRef) -> PyResult<()> {
        let view = BatchView::parse_verified(batch.bytes()).map_err(to_py)?;
        let wanted = &self.wanted;
        let head = view.head();
        if head.is_hole() && wanted.skip_holes {
            return Ok(());
        }
        head.check_there(batch.llsn).map_err(to_py)?;
        if wanted.is_before(head.max_timestamp()) || wanted.is_after(head.min_timestamp()) {
            return Ok(());
        }
        // Not more objects than this at a time; the rest of the batch comes next.
        let (mut now, mut rest) = (batch.begin..batch.end, batch.clone());
        if wanted.key.is_none() && now.len() > OBJECTS_MAX as usize {
            if wanted.reverse {
                now.start = now.end - OBJECTS_MAX;
                rest.end = now.start;
            } else {
                now.end = now.start + OBJECTS_MAX;
                rest.begin = now.end;
            }
            self.batches.push(rest);
        }
        let mut push = |i: u32| -> PyResult<()> {
            match view.record(i) {
                Some(record)
                    if !wanted.is_before(record.timestamp)
                        && !wanted.is_after(record.timestamp) =>
                {
                    self.ready
                        .push(record_object(py, batch.llsn + u64::from(i), record)?);
                    Ok(())
                }
                _ => Ok(()),
            }
        };
        if let Some(key) = &wanted.key {
            for i in filter_key(&view, key) {
                if now.contains(&i) {
                    push(i)?;
                }
            }
        } else {
            now.try_for_each(push)?;
        }
        if !self.wanted.reverse {
            self.ready.reverse();
        }
        Ok(())
    }
}

#[pymethods]
impl RecordIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Py<Record>>> {
        self.reader.check().map_err(to_py)?;
        if self.given >= self.wanted.limit || (self.ready.is_empty() && !self.fill(py)?) {
            return Ok(None);
        }
        self.given += 1;
        Ok(self.ready.pop())
    }
}
