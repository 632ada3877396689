//! What appends take from Python: single values, lists, Arrow.

use std::ops::Range;

use braidlog_core::batch::{
    Bitmap, BytesRef, ColumnsRef, HeadersRef, KeysRef, Offsets, Timestamps,
};
use braidlog_core::wal::{ProducerId, Sequenced};
use braidlog_core::{Error, limits::RECORD_HEADERS_MAX};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{
    PyByteArray, PyBytes, PyInt, PyList, PyMemoryView, PySequence, PyString, PyTuple,
};

use crate::error::to_py;
use crate::number::{Micros, Unsigned};

/// Run `f` on the bytes of a `bytes` or any contiguous buffer of bytes.
pub fn with_bytes<R>(
    object: &Bound<'_, PyAny>,
    what: &str,
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
    Ok(f(&buffer.to_vec(object.py())?))
}

fn type_name(object: &Bound<'_, PyAny>) -> String {
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
            "producer and sequence go together".into(),
        ))),
    }
}

/// Headers of one record: (name, value) pairs.
#[derive(Default)]
pub struct HeaderList(Vec<(String, Vec<u8>)>);

impl HeaderList {
    /// From any iterable of pairs.
    pub fn from_py(headers: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(headers) = headers else {
            return Ok(Self::default());
        };
        let mut pairs = Vec::new();
        let pairs_of = headers.try_iter().map_err(|_| {
            let found = type_name(headers);
            PyTypeError::new_err(format!("headers must be (name, value) pairs, not {found}"))
        })?;
        for pair in pairs_of {
            let pair = pair?;
            let (name, value) = pair
                .extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()
                .map_err(|_| {
                    PyTypeError::new_err(
                        "headers must be (name, value) pairs, name str, value bytes",
                    )
                })?;
            let name: String = name.extract()?;
            pairs.push((name, with_bytes(&value, "header value", <[u8]>::to_vec)?));
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
    pub fn borrow(&self) -> Vec<(&str, &[u8])> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
            .collect()
    }
}

/// A column of byte strings.
#[derive(Default)]
struct Strings {
    offsets: Vec<i64>,
    data: Vec<u8>,
}

impl Strings {
    fn with_capacity(rows: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self {
            offsets,
            data: Vec::new(),
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
        self.offsets
            .push(i64::try_from(self.data.len()).unwrap_or(i64::MAX));
    }

    fn borrow(&self) -> BytesRef<'_> {
        BytesRef {
            offsets: Offsets::I64(&self.offsets),
            data: &self.data,
        }
    }
}

/// Records from Python lists, as columns.
pub struct ListColumns {
    len: usize,
    values: Strings,
    keys: Option<(Strings, Vec<u8>)>,
    timestamps: Option<Vec<i64>>,
    now: i64,
    headers: Option<(Vec<i64>, Strings, Strings)>,
}

impl ListColumns {
    /// Copy lists of one length. `now` stamps records without a timestamp.
    pub fn from_py(
        values: &Bound<'_, PyAny>,
        keys: Option<&Bound<'_, PyAny>>,
        timestamps: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        now: i64,
    ) -> PyResult<Self> {
        let values = strings(values, "value")?;
        let len = values.offsets.len() - 1;
        let keys = keys.map(|keys| keys_of(keys, len)).transpose()?;
        let (timestamps, now) = match timestamps {
            None => (None, now),
            Some(one) if one.is_instance_of::<PyInt>() => (None, one.extract::<Micros>()?.0),
            Some(one) if one.extract::<i64>().is_ok() => (None, one.extract()?),
            Some(each) => (Some(stamps(each, now)?), now),
        };
        if let Some(timestamps) = &timestamps {
            check_len("timestamps", timestamps.len(), len)?;
        }
        let headers = headers
            .map(|headers| headers_of(headers, len))
            .transpose()?;
        Ok(Self {
            len,
            values,
            keys,
            timestamps,
            now,
            headers,
        })
    }

    /// As the encoder takes them.
    pub fn borrow(&self) -> ColumnsRef<'_> {
        ColumnsRef {
            len: self.len,
            values: self.values.borrow(),
            keys: self.keys.as_ref().map(|(keys, validity)| KeysRef {
                bytes: keys.borrow(),
                validity: Some(Bitmap {
                    bytes: validity,
                    offset: 0,
                }),
            }),
            timestamps: match &self.timestamps {
                None => Timestamps::All(self.now),
                Some(each) => Timestamps::Each(each),
            },
            headers: self
                .headers
                .as_ref()
                .map(|(offsets, names, values)| HeadersRef {
                    offsets: Offsets::I64(offsets),
                    names: names.borrow(),
                    values: values.borrow(),
                }),
        }
    }
}

/// Timestamps, one a record; `None` means now.
fn stamps(items: &Bound<'_, PyAny>, now: i64) -> PyResult<Vec<i64>> {
    let mut out = Vec::new();
    each(items, |item| {
        out.push(if item.is_none() {
            now
        } else {
            item.extract::<Micros>()?.0
        });
        Ok(())
    })?;
    Ok(out)
}

fn check_len(what: &str, found: usize, expected: usize) -> PyResult<()> {
    if found == expected {
        return Ok(());
    }
    Err(to_py(Error::InvalidArgument(format!(
        "{found} {what} for {expected} values"
    ))))
}

/// Visit the items of a list or tuple quickly, of any other iterable one by one.
fn each(
    items: &Bound<'_, PyAny>,
    mut f: impl FnMut(&Bound<'_, PyAny>) -> PyResult<()>,
) -> PyResult<usize> {
    let mut count = 0;
    if let Ok(list) = items.cast::<PyList>() {
        for item in list.iter() {
            f(&item)?;
            count += 1;
        }
    } else if let Ok(tuple) = items.cast::<PyTuple>() {
        for item in tuple.iter() {
            f(&item)?;
            count += 1;
        }
    } else {
        for item in items.try_iter()? {
            f(&item?)?;
            count += 1;
        }
    }
    Ok(count)
}

fn strings(items: &Bound<'_, PyAny>, what: &str) -> PyResult<Strings> {
    let is_one = items.is_instance_of::<PyBytes>()
        || items.is_instance_of::<PyByteArray>()
        || items.is_instance_of::<PyMemoryView>()
        || items.is_instance_of::<PyString>();
    if is_one {
        return Err(PyTypeError::new_err(format!(
            "{what}s must be a list, not one {}",
            type_name(items)
        )));
    }
    let rows = items
        .cast::<PySequence>()
        .map_or(0, |sequence| sequence.len().unwrap_or(0));
    let mut out = Strings::with_capacity(rows);
    each(items, |item| {
        with_bytes(item, what, |bytes| out.push(bytes))
    })?;
    Ok(out)
}

fn keys_of(items: &Bound<'_, PyAny>, len: usize) -> PyResult<(Strings, Vec<u8>)> {
    let (mut out, mut validity) = (Strings::with_capacity(len), vec![0; len.div_ceil(8)]);
    let mut row = 0;
    each(items, |item| {
        if item.is_none() {
            out.push(&[]);
        } else {
            with_bytes(item, "key", |bytes| out.push(bytes))?;
            if let Some(byte) = validity.get_mut(row / 8) {
                *byte |= 1 << (row % 8);
            }
        }
        row += 1;
        Ok(())
    })?;
    check_len("keys", row, len)?;
    Ok((out, validity))
}

fn headers_of(items: &Bound<'_, PyAny>, len: usize) -> PyResult<(Vec<i64>, Strings, Strings)> {
    let mut offsets = vec![0];
    let (mut names, mut values) = (Strings::with_capacity(0), Strings::with_capacity(0));
    let rows = each(items, |item| {
        let headers = HeaderList::from_py(Some(item).filter(|item| !item.is_none()))?;
        for (name, value) in headers.borrow() {
            names.push(name.as_bytes());
            values.push(value);
        }
        offsets.push(i64::try_from(names.offsets.len()).unwrap_or(i64::MAX) - 1);
        Ok(())
    })?;
    check_len("headers", rows, len)?;
    Ok((offsets, names, values))
}

/// Rows of about `bytes` bytes each, so that a large append is placed piece by piece.
pub fn pieces(columns: &ColumnsRef<'_>, bytes: usize) -> Vec<Range<usize>> {
    columns.split(0..columns.len, bytes, usize::MAX).collect()
}
