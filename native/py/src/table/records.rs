//! Scans of a table as records.

use braidlog_core::table::table::{IndexRows, Payload, Rows};
use braidlog_core::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::to_py;
use crate::exit::detach;
use crate::gate::Reader;
use crate::record::{Record, row_object};

/// Records found at a time without the interpreter's lock, and their bytes.
const ROWS_MAX: usize = 1024;
const BYTES_MAX: usize = 1 << 20;

/// What is gone through: a table by its keys, or by an index.
pub enum Source {
    /// By keys.
    Keys(Box<Rows>),
    /// By an index.
    Index(Box<IndexRows>),
}

/// What is shown a record: key, position, and the rest as [`Payload::decode`] takes it.
type Take<'t> = dyn FnMut(&[u8], u64, &[u8]) -> Result<()> + 't;

/// Records that were found, copied out of their pages.
#[derive(Default)]
struct Ready {
    /// Key and payload of each, one behind the other.
    bytes: Vec<u8>,
    /// Position of each, and where its key and its payload end.
    rows: Vec<(u64, usize, usize)>,
    /// How many were given, and where the bytes of the next one begin.
    given: usize,
    begin: usize,
}

impl Ready {
    fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
        (self.given, self.begin) = (0, 0);
    }

    fn push(&mut self, key: &[u8], position: u64, payload: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        self.rows.push((position, key_end, self.bytes.len()));
    }

    fn is_given(&self) -> bool {
        self.given == self.rows.len()
    }

    /// Key, position and payload of the next one.
    fn next(&mut self) -> Option<(&[u8], u64, &[u8])> {
        let &(position, key_end, end) = self.rows.get(self.given)?;
        let key = &self.bytes[self.begin..key_end];
        (self.given, self.begin) = (self.given + 1, end);
        Some((key, position, &self.bytes[key_end..end]))
    }
}

impl Source {
    /// Step to the next record, and show it. False behind the last.
    pub fn next(&mut self, take: &mut Take<'_>) -> Result<bool> {
        match self {
            Self::Keys(rows) => {
                if !rows.advance()? {
                    return Ok(false);
                }
                take(rows.key(), rows.position(), rows.encoded())?;
            }
            Self::Index(rows) => {
                if !rows.advance()? {
                    return Ok(false);
                }
                let row = rows.row();
                take(row.key(), row.position(), row.encoded())?;
            }
        }
        Ok(true)
    }
}

/// Iterates over records of a table.
#[pyclass(module = "braidlog._native")]
pub struct TableRecords {
    reader: Reader,
    source: Source,
    ready: Ready,
    /// How many may still be given.
    left: u64,
    is_over: bool,
}

impl TableRecords {
    pub fn new(reader: Reader, source: Source, limit: Option<u64>) -> Self {
        Self {
            reader,
            source,
            ready: Ready::default(),
            left: limit.unwrap_or(u64::MAX),
            is_over: false,
        }
    }

    fn fill(&mut self) -> Result<()> {
        let ready = &mut self.ready;
        ready.clear();
        while !self.is_over
            && ready.rows.len() < ROWS_MAX
            && ready.bytes.len() < BYTES_MAX
            && (ready.rows.len() as u64) < self.left
        {
            self.is_over = !self.source.next(&mut |key, position, payload| {
                ready.push(key, position, payload);
                Ok(())
            })?;
        }
        Ok(())
    }
}

#[pymethods]
impl TableRecords {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Py<Record>>> {
        self.reader.check().map_err(to_py)?;
        if self.ready.is_given() && !self.is_over && self.left > 0 {
            py.check_signals()?;
            detach(py, || self.fill()).map_err(to_py)?;
        }
        let Some((key, position, payload)) = self.ready.next() else {
            return Ok(None);
        };
        self.left -= 1;
        let payload = Payload::decode(payload).map_err(to_py)?;
        let key = PyBytes::new(py, key).unbind();
        row_object(py, position, key, payload).map(Some)
    }
}

/// Refuse a limit that is none.
pub fn check_limit(limit: Option<i64>) -> PyResult<Option<u64>> {
    limit
        .map(|limit| {
            u64::try_from(limit).map_err(|_| {
                to_py(Error::InvalidArgument(format!(
                    "limit must not be negative: {limit}"
                )))
            })
        })
        .transpose()
}
