//! What appends take from Python: single values, lists, Arrow.

use std::ops::Range;

use braidlog_core::Error;
use braidlog_core::batch::ColumnsRef;
use braidlog_core::limits::{BATCH_BYTES_MAX, RECORD_HEADERS_MAX};
use braidlog_core::wal::{ProducerId, Sequenced};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::error::to_py;
use crate::number::Unsigned;

/// Run `f` on the bytes of a `bytes` or any buffer of bytes.
pub fn with_bytes<R>(
    object: &Bound<'_, PyAny>,
    what: &'static str,
    f: impl FnOnce(&[u8]) -> R,
) -> PyResult<R> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(f(bytes.as_bytes()));
    }
    let wrong = || {
        PyTypeError::new_err(format!(
            "{what} must be bytes or a buffer of bytes, not {}",
            type_name(object)
        ))
    };
    let buffer = PyBuffer::<u8>::get(object).map_err(|_| wrong())?;
    // A view that repeats one byte is as long as it says, in no memory of its own.
    let size = buffer.len_bytes();
    if size > BATCH_BYTES_MAX {
        let (size, max) = (size as u64, BATCH_BYTES_MAX as u64);
        return Err(to_py(Error::TooLarge { what, size, max }));
    }
    Ok(f(&buffer.to_vec(object.py())?))
}

/// Name of an object's class, for messages.
pub fn type_name(object: &Bound<'_, PyAny>) -> String {
    object
        .get_type()
        .name()
        .map_or_else(|_| "?".into(), |name| name.to_string())
}

/// Producer and sequence from Python: both or none.
pub fn sequenced(
    producer: Option<(u64, u32)>,
    sequence: Option<Unsigned>,
) -> PyResult<Option<Sequenced>> {
    match (producer, sequence) {
        (None, None) => Ok(None),
        (Some((id, epoch)), Some(Unsigned(sequence))) => {
            Ok(Some((ProducerId { id, epoch }, sequence)))
        }
        _ => Err(to_py(Error::InvalidArgument(
            "producer and sequence go together: pass both, or neither".into(),
        ))),
    }
}

/// As [`with_bytes`], of what may be `None`.
pub fn with_bytes_or_none<R>(
    object: &Bound<'_, PyAny>,
    what: &'static str,
    f: impl FnOnce(Option<&[u8]>) -> R,
) -> PyResult<R> {
    if object.is_none() {
        return Ok(f(None));
    }
    with_bytes(object, what, |bytes| f(Some(bytes)))
}

/// Headers of one record: (name, value) pairs.
#[derive(Default)]
pub struct HeaderList(Vec<(String, Option<Vec<u8>>)>);

impl HeaderList {
    /// From any iterable of pairs.
    pub fn from_py(headers: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(headers) = headers else {
            return Ok(Self::default());
        };
        let mut pairs = Vec::new();
        // A dict, or another mapping: one header for each name.
        let items = headers.hasattr("items")?;
        let items = items.then(|| headers.call_method0("items")).transpose()?;
        let pairs_of = items.as_ref().unwrap_or(headers).try_iter().map_err(|_| {
            let found = type_name(headers);
            PyTypeError::new_err(format!(
                "headers must be a dict or (name, value) pairs, not {found}"
            ))
        })?;
        for pair in pairs_of {
            let pair = pair?;
            let (name, value) = pair
                .extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()
                .map_err(|_| {
                    PyTypeError::new_err(
                        "headers must be a dict or (name, value) pairs: the name a str, the value bytes or None",
                    )
                })?;
            if !name.is_instance_of::<PyString>() {
                let found = type_name(&name);
                let text = format!("header name must be str, not {found}");
                return Err(PyTypeError::new_err(text));
            }
            // A `str` may hold half of a surrogate pair, which UTF-8 cannot.
            let Ok(text) = name.extract::<String>() else {
                let shown = name.repr()?;
                return Err(to_py(Error::InvalidArgument(format!(
                    "header name {shown} cannot be stored as UTF-8"
                ))));
            };
            let bytes = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
            pairs.push((text, with_bytes_or_none(&value, "header value", bytes)?));
            if pairs.len() > RECORD_HEADERS_MAX {
                let (size, max) = (pairs.len() as u64, RECORD_HEADERS_MAX as u64);
                return Err(to_py(Error::TooLarge {
                    what: "number of headers",
                    size,
                    max,
                }));
            }
        }
        Ok(Self(pairs))
    }

    /// Borrowed, as the core takes them.
    pub fn borrow(&self) -> Vec<(&str, Option<&[u8]>)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref()))
            .collect()
    }
}

/// Rows of about `bytes` bytes each, so that a large append is placed piece by piece.
pub fn pieces(columns: &ColumnsRef<'_>, bytes: usize) -> Vec<Range<usize>> {
    columns.split(0..columns.len, bytes, usize::MAX).collect()
}
