//! Scans of a table as records.

use braidlog_core::table::table::{IndexRows, Payload, Rows};
use braidlog_core::{Error, Result};
use pyo3::prelude::*;

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

/// What is shown a record: key, position, and the rest.
type Take<'t> = dyn FnMut(&[u8], u64, Payload<'_>) -> Result<()> + 't;

/// A record that was found, copied out of its page.
pub struct Copied {
    pub key: Vec<u8>,
    pub position: u64,
    pub payload: Vec<u8>,
}

impl Source {
    /// Step to the next record, and show it: key, position, payload. False behind the last.
    pub fn next(&mut self, take: &mut Take<'_>) -> Result<bool> {
        match self {
            Self::Keys(rows) => {
                if !rows.advance()? {
                    return Ok(false);
                }
                let (key, position, payload) = rows.record()?;
                take(key, position, payload)?;
            }
            Self::Index(rows) => {
                if !rows.advance()? {
                    return Ok(false);
                }
                let row = rows.row();
                take(row.key(), row.position(), row.payload()?)?;
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
    /// Found, the next one last.
    ready: Vec<Copied>,
    /// How many may still be given.
    left: u64,
    is_over: bool,
}

impl TableRecords {
    pub fn new(reader: Reader, source: Source, limit: Option<u64>) -> Self {
        Self {
            reader,
            source,
            ready: Vec::new(),
            left: limit.unwrap_or(u64::MAX),
            is_over: false,
        }
    }

    fn fill(&mut self) -> Result<()> {
        let (mut bytes, ready) = (0, &mut self.ready);
        while ready.len() < ROWS_MAX && bytes < BYTES_MAX && (ready.len() as u64) < self.left {
            let more = self.source.next(&mut |key, position, payload| {
                let mut copy = Vec::new();
                let Payload {
                    timestamp,
                    value,
                    headers,
                } = payload;
                braidlog_core::table::table::encode_payload(timestamp, value, headers, &mut copy);
                bytes += key.len() + copy.len();
                ready.push(Copied {
                    key: key.into(),
                    position,
                    payload: copy,
                });
                Ok(())
            })?;
            if !more {
                self.is_over = true;
                break;
            }
        }
        ready.reverse();
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
        if self.ready.is_empty() && !self.is_over && self.left > 0 {
            py.check_signals()?;
            detach(py, || self.fill()).map_err(to_py)?;
        }
        let Some(Copied {
            key,
            position,
            payload,
        }) = self.ready.pop()
        else {
            return Ok(None);
        };
        self.left -= 1;
        let payload = Payload::decode(&payload).map_err(to_py)?;
        row_object(py, position, &key, payload).map(Some)
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
