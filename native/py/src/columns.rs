//! Columns from Python lists, as the encoder takes them.
// One file: each kind of column has the same few steps, from objects of Python to slices.

use std::collections::TryReserveError;

use braidlog_core::Error;
use braidlog_core::batch::{
    Bitmap, BytesRef, ColumnsRef, HeadersRef, NullableRef, Offsets, Timestamps,
};
use pyo3::exceptions::{PyMemoryError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyInt, PyList, PyMemoryView, PyString, PyTuple};

use crate::append::{HeaderList, type_name, with_bytes_or_none};
use crate::error::to_py;
use crate::line::{Entry, Records};
use crate::number::Micros;

/// Add an item. Where there is no memory for it Python has an exception, and Rust ends the process.
fn push<T>(to: &mut Vec<T>, item: T) -> PyResult<()> {
    to.try_reserve(1).map_err(no_memory)?;
    to.push(item);
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn no_memory(error: TryReserveError) -> PyErr {
    PyMemoryError::new_err(format!("not enough memory for the records: {error}"))
}

/// A column of byte strings.
struct Strings {
    offsets: Vec<i64>,
    data: Vec<u8>,
}

impl Default for Strings {
    fn default() -> Self {
        Self::within(Vec::new())
    }
}

impl Strings {
    /// In memory that was used before.
    fn within(mut data: Vec<u8>) -> Self {
        data.clear();
        Self {
            offsets: vec![0],
            data,
        }
    }

    fn rows(&self) -> usize {
        self.offsets.len() - 1
    }

    fn push(&mut self, bytes: &[u8]) -> PyResult<()> {
        self.data.try_reserve(bytes.len()).map_err(no_memory)?;
        self.data.extend_from_slice(bytes);
        let end = i64::try_from(self.data.len()).unwrap_or(i64::MAX);
        push(&mut self.offsets, end)
    }

    fn borrow(&self) -> BytesRef<'_> {
        BytesRef {
            offsets: Offsets::I64(&self.offsets),
            data: &self.data,
        }
    }
}

/// A column of byte strings of which some may be null.
#[derive(Default)]
struct Nullable {
    strings: Strings,
    /// Bits that say which elements there are; empty until one is null.
    validity: Vec<u8>,
}

impl Nullable {
    fn rows(&self) -> usize {
        self.strings.rows()
    }

    /// Append the items of a list.
    fn extend(&mut self, items: &Bound<'_, PyAny>, what: &'static str) -> PyResult<()> {
        refuse_one(items, what)?;
        each(items, |item| self.push_item(item, what))
    }

    fn push_item(&mut self, item: &Bound<'_, PyAny>, what: &'static str) -> PyResult<()> {
        with_bytes_or_none(item, what, |bytes| self.push(bytes))?
    }

    fn push(&mut self, bytes: Option<&[u8]>) -> PyResult<()> {
        let row = self.rows();
        self.strings.push(bytes.unwrap_or_default())?;
        if bytes.is_some() && self.validity.is_empty() {
            return Ok(());
        }
        let len = row / 8 + 1;
        let more = len.saturating_sub(self.validity.len());
        self.validity.try_reserve(more).map_err(no_memory)?;
        if self.validity.is_empty() {
            // All before the first null one are present.
            self.validity.resize(len - 1, u8::MAX);
            self.validity.push((1 << (row % 8)) - 1);
        } else {
            self.validity.resize(len, 0);
            self.validity[row / 8] |= u8::from(bytes.is_some()) << (row % 8);
        }
        Ok(())
    }

    fn borrow(&self) -> NullableRef<'_> {
        NullableRef {
            bytes: self.strings.borrow(),
            validity: (!self.validity.is_empty()).then_some(Bitmap {
                bytes: &self.validity,
                offset: 0,
            }),
        }
    }
}

/// Records from Python lists, as columns.
pub struct ListColumns {
    len: usize,
    values: Nullable,
    keys: Option<Nullable>,
    timestamps: Option<Vec<i64>>,
    now: i64,
    headers: Option<HeaderColumn>,
}

impl ListColumns {
    /// Copy lists of one length. `now` stamps records without a timestamp.
    ///
    /// Lengths that are known are compared before an item is read, and no more is reserved for what they
    /// say than for what there is: anybody's class may say anything.
    pub fn from_py(
        values: &Bound<'_, PyAny>,
        keys: Option<&Bound<'_, PyAny>>,
        timestamps: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        now: i64,
    ) -> PyResult<Self> {
        let (each_stamp, now) = match timestamps {
            None => (None, now),
            Some(one) if one.is_instance_of::<PyInt>() => (None, one.extract::<Micros>()?.0),
            Some(one) if one.extract::<i64>().is_ok() => (None, one.extract()?),
            each => (each, now),
        };
        refuse_one(values, "value")?;
        if let Some(expected) = known_len(values)? {
            for (what, column) in [
                ("keys", keys),
                ("timestamps", each_stamp),
                ("headers", headers),
            ] {
                if let Some(found) = column.map(known_len).transpose()?.flatten() {
                    check_len(what, found, expected)?;
                }
            }
        }
        let mut column = Nullable::default();
        column.extend(values, "value")?;
        let len = column.rows();
        let keys = keys.map(|keys| keys_of(keys, len)).transpose()?;
        let timestamps = each_stamp
            .map(|items| stamps(items, now, len))
            .transpose()?;
        let headers = headers
            .map(|headers| headers_of(headers, len))
            .transpose()?;
        Ok(Self {
            len,
            values: column,
            keys,
            timestamps,
            now,
            headers,
        })
    }

    /// Copy pieces, each of lists of one length, behind one another into `memory`, which
    /// [`ListColumns::into_memory`] gives back.
    pub fn gather(pieces: &[Piece<'_>], memory: Vec<u8>) -> PyResult<Self> {
        let mut values = Nullable {
            strings: Strings::within(memory),
            validity: Vec::new(),
        };
        let mut ends = Vec::with_capacity(pieces.len());
        for piece in pieces {
            match piece {
                Piece::One(value, ..) => values.push(Some(value.as_bytes()))?,
                Piece::Values(items, _) => values.extend(items, "value")?,
                Piece::Many((items, ..)) => values.extend(items, "value")?,
            }
            ends.push(values.rows());
        }
        let len = values.rows();
        let headers = pieces.iter().map(Piece::headers);
        let (timestamps, now) = gathered_stamps(pieces, &ends)?;
        Ok(Self {
            len,
            values,
            keys: gathered_keys(pieces, &ends)?,
            timestamps,
            now,
            headers: gathered_headers(headers, &ends)?,
        })
    }

    /// The memory of the values, for the next ones.
    pub fn into_memory(self) -> Vec<u8> {
        self.values.strings.data
    }

    /// As the encoder takes them.
    pub fn borrow(&self) -> ColumnsRef<'_> {
        ColumnsRef {
            len: self.len,
            values: self.values.borrow(),
            keys: self.keys.as_ref().map(Nullable::borrow),
            timestamps: match &self.timestamps {
                None => Timestamps::All(self.now),
                Some(each) => Timestamps::Each(each),
            },
            headers: self.headers.as_ref().map(|column| HeadersRef {
                offsets: Offsets::I64(&column.offsets),
                names: column.names.borrow(),
                values: column.values.borrow(),
            }),
        }
    }
}

/// Timestamps, one a record; `None` means now.
fn stamps(items: &Bound<'_, PyAny>, now: i64, len: usize) -> PyResult<Vec<i64>> {
    let mut out = Vec::new();
    each(items, |item| {
        check_more("timestamps", out.len(), len)?;
        let stamp = if item.is_none() {
            now
        } else {
            item.extract::<Micros>()?.0
        };
        push(&mut out, stamp)
    })?;
    check_len("timestamps", out.len(), len)?;
    Ok(out)
}

fn check_len(what: &str, found: usize, expected: usize) -> PyResult<()> {
    if found == expected {
        return Ok(());
    }
    Err(to_py(Error::InvalidArgument(format!(
        "got {found} {what} for {expected} values"
    ))))
}

/// Refuse one item more than there are values: what goes on for ever is not read to its end.
fn check_more(what: &str, found: usize, expected: usize) -> PyResult<()> {
    if found < expected {
        return Ok(());
    }
    Err(to_py(Error::InvalidArgument(format!(
        "got more than {expected} {what} for {expected} values"
    ))))
}

/// The length of what has one that a computer can count.
fn known_len(items: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    match items.len() {
        Ok(len) => Ok(Some(len)),
        Err(error) => {
            let py = items.py();
            let none = error.is_instance_of::<PyTypeError>(py)
                || error.is_instance_of::<PyOverflowError>(py);
            if none { Ok(None) } else { Err(error) }
        }
    }
}

/// Visit the items of a list or tuple quickly, of any other iterable one by one.
fn each(
    items: &Bound<'_, PyAny>,
    mut f: impl FnMut(&Bound<'_, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    if let Ok(list) = items.cast::<PyList>() {
        for item in list.iter() {
            f(&item)?;
        }
    } else if let Ok(tuple) = items.cast::<PyTuple>() {
        for item in tuple.iter() {
            f(&item)?;
        }
    } else {
        for item in items.try_iter()? {
            f(&item?)?;
        }
    }
    Ok(())
}

/// Refuse what is one item and not a list of them.
fn refuse_one(items: &Bound<'_, PyAny>, what: &str) -> PyResult<()> {
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
    Ok(())
}

/// Append the keys of the rows up to `end`.
fn extend_keys(keys: &mut Nullable, items: &Bound<'_, PyAny>, end: usize) -> PyResult<()> {
    each(items, |item| {
        check_more("keys", keys.rows(), end)?;
        keys.push_item(item, "key")
    })?;
    check_len("keys", keys.rows(), end)
}

fn keys_of(items: &Bound<'_, PyAny>, len: usize) -> PyResult<Nullable> {
    let mut out = Nullable::default();
    extend_keys(&mut out, items, len)?;
    Ok(out)
}

fn headers_of(items: &Bound<'_, PyAny>, len: usize) -> PyResult<HeaderColumn> {
    let mut out = HeaderColumn::new();
    out.extend(items, len)?;
    Ok(out)
}

/// Headers of all records.
struct HeaderColumn {
    offsets: Vec<i64>,
    names: Strings,
    values: Nullable,
}

impl HeaderColumn {
    fn new() -> Self {
        Self {
            offsets: vec![0],
            names: Strings::default(),
            values: Nullable::default(),
        }
    }

    fn rows(&self) -> usize {
        self.offsets.len() - 1
    }

    fn close_row(&mut self) -> PyResult<()> {
        let end = i64::try_from(self.names.rows()).unwrap_or(i64::MAX);
        push(&mut self.offsets, end)
    }

    /// Append the headers of the rows up to `end`.
    fn extend(&mut self, items: &Bound<'_, PyAny>, end: usize) -> PyResult<()> {
        each(items, |item| {
            check_more("headers", self.rows(), end)?;
            let headers = HeaderList::from_py(Some(item).filter(|item| !item.is_none()))?;
            for (name, value) in headers.borrow() {
                self.names.push(name.as_bytes())?;
                self.values.push(value)?;
            }
            self.close_row()
        })?;
        check_len("headers", self.rows(), end)
    }
}

/// Records that were appended together.
pub enum Piece<'py> {
    /// One without headers: value, key or none, timestamp.
    One(Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>, i64),
    /// Some, values alone.
    Values(Bound<'py, PyList>, i64),
    /// Columns.
    Many(Columns<'py>),
}

/// Values, keys or none, their timestamps or one for all, headers or none.
type Columns<'py> = (
    Bound<'py, PyAny>,
    Option<Bound<'py, PyAny>>,
    Bound<'py, PyAny>,
    Option<Bound<'py, PyAny>>,
);

impl<'py> FromPyObject<'_, 'py> for Piece<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let Ok(entry) = object.cast_exact::<Entry>() else {
            return object.extract().map(Self::Many);
        };
        match &entry.get().records {
            Records::One {
                value,
                key,
                timestamp,
            } => {
                let key = key.as_ref().map(|key| key.bind(py).clone());
                Ok(Self::One(value.bind(py).clone(), key, *timestamp))
            }
            Records::Values { values, timestamp } => {
                Ok(Self::Values(values.bind(py).clone(), *timestamp))
            }
            Records::Many(columns) => columns.bind(py).extract().map(Self::Many),
        }
    }
}

impl<'py> Piece<'py> {
    /// The timestamp, if it is one for all.
    fn stamp(&self) -> PyResult<Option<i64>> {
        match self {
            Self::One(_, _, stamp) | Self::Values(_, stamp) => Ok(Some(*stamp)),
            Self::Many((.., stamps, _)) if stamps.is_instance_of::<PyInt>() => {
                stamps.extract::<Micros>().map(|stamp| Some(stamp.0))
            }
            Self::Many(_) => Ok(None),
        }
    }

    fn has_keys(&self) -> bool {
        matches!(
            self,
            Self::One(_, Some(_), _) | Self::Many((_, Some(_), ..))
        )
    }

    fn headers(&self) -> Column<'_, 'py> {
        match self {
            Self::One(..) | Self::Values(..) => None,
            Self::Many((.., headers)) => headers.as_ref(),
        }
    }
}

/// The timestamps of pieces that end at `ends`; alone if it is one for all.
fn gathered_stamps(pieces: &[Piece<'_>], ends: &[usize]) -> PyResult<(Option<Vec<i64>>, i64)> {
    let one: Vec<Option<i64>> = pieces.iter().map(Piece::stamp).collect::<PyResult<_>>()?;
    if let Some(Some(first)) = one.first()
        && one.iter().all(|stamp| *stamp == Some(*first))
    {
        return Ok((None, *first));
    }
    let mut out = Vec::new();
    for ((piece, stamp), end) in pieces.iter().zip(one).zip(ends) {
        match (piece, stamp) {
            (_, Some(stamp)) => out.resize(*end, stamp),
            (Piece::Many((.., stamps, _)), None) => each(stamps, |item| {
                check_more("timestamps", out.len(), *end)?;
                push(&mut out, item.extract::<Micros>()?.0)
            })?,
            (Piece::One(..) | Piece::Values(..), None) => {}
        }
        check_len("timestamps", out.len(), *end)?;
    }
    Ok((Some(out), 0))
}

type Column<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

fn gathered_keys(pieces: &[Piece<'_>], ends: &[usize]) -> PyResult<Option<Nullable>> {
    if !pieces.iter().any(Piece::has_keys) {
        return Ok(None);
    }
    let mut out = Nullable::default();
    for (piece, end) in pieces.iter().zip(ends) {
        match piece {
            Piece::One(_, Some(key), _) => out.push(Some(key.as_bytes()))?,
            Piece::Many((_, Some(keys), ..)) => extend_keys(&mut out, keys, *end)?,
            _ => (out.rows()..*end).try_for_each(|_| out.push(None))?,
        }
    }
    Ok(Some(out))
}

fn gathered_headers<'a, 'py: 'a>(
    columns: impl Iterator<Item = Column<'a, 'py>> + Clone,
    ends: &[usize],
) -> PyResult<Option<HeaderColumn>> {
    if columns.clone().all(|headers| headers.is_none()) {
        return Ok(None);
    }
    let mut out = HeaderColumn::new();
    for (headers, end) in columns.zip(ends) {
        match headers {
            Some(headers) => out.extend(headers, *end)?,
            None => (out.rows()..*end).try_for_each(|_| out.close_row())?,
        }
    }
    Ok(Some(out))
}
