//! A table as of one position.

use arrow_array::{Array, BinaryArray, BinaryViewArray, LargeBinaryArray, StringArray};
use braidlog_core::Error;
use braidlog_core::table::entry::Direction;
use braidlog_core::table::order::{IndexSpec, successor};
use braidlog_core::table::table as core;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::batches::{Rows, TableBatches};
use super::records::{Source, TableRecords, check_limit};
use super::value::{object, values};
use crate::append::with_bytes;
use crate::arrow::{Projection, import_stream};
use crate::error::to_py;
use crate::exit::detach;
use crate::gate::Reader;
use crate::log::projection;
use crate::record::{Record, row_object};
use crate::scan::ArrowBatch;

/// A table as of one position. What it needs stays there while it lives.
#[pyclass(frozen, module = "braidlog._native")]
pub struct TableSnapshot {
    reader: Reader,
    inner: core::TableSnapshot,
}

/// Begin, end, and about how many bytes of files lie between.
type Part<'py> = (Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>, u64);

/// The record of a row for Python.
fn record(py: Python<'_>, row: &core::Row) -> PyResult<Py<Record>> {
    let payload = row.payload().map_err(to_py)?;
    let key = PyBytes::new(py, row.key()).unbind();
    row_object(py, row.position(), key, payload)
}

/// The record of a key for Python, if there is one, with the key as it was asked for. `find` is given its bytes, where they are.
pub fn record_of(
    key: &Bound<'_, PyAny>,
    find: impl FnOnce(&[u8]) -> PyResult<Option<core::Row>>,
) -> PyResult<Option<Py<Record>>> {
    let Some(row) = with_bytes(key, "key", find)?? else {
        return Ok(None);
    };
    let Ok(key) = key.cast_exact::<PyBytes>() else {
        return record(key.py(), &row).map(Some);
    };
    let payload = row.payload().map_err(to_py)?;
    row_object(key.py(), row.position(), key.clone().unbind(), payload).map(Some)
}

fn owned(bytes: Option<&Bound<'_, PyAny>>, what: &'static str) -> PyResult<Option<Vec<u8>>> {
    bytes
        .map(|bytes| with_bytes(bytes, what, <[u8]>::to_vec))
        .transpose()
}

fn direction(reverse: bool) -> Direction {
    if reverse {
        Direction::Reverse
    } else {
        Direction::Forward
    }
}

impl TableSnapshot {
    pub fn new(reader: Reader, inner: core::TableSnapshot) -> Self {
        Self { reader, inner }
    }

    fn by_keys(
        &self,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Source> {
        self.reader.check().map_err(to_py)?;
        let (mut begin, mut end) = (owned(begin, "begin")?, owned(end, "end")?);
        if let Some(prefix) = owned(prefix, "prefix")? {
            let above = successor(&prefix);
            begin = Some(begin.map_or_else(|| prefix.clone(), |begin| begin.max(prefix.clone())));
            end = match (end, above) {
                (Some(end), Some(above)) => Some(end.min(above)),
                (end, above) => end.or(above),
            };
        }
        let rows = self
            .inner
            .scan(begin.as_deref(), end.as_deref(), direction(reverse));
        Ok(Source::Keys(Box::new(rows.map_err(to_py)?)))
    }

    fn by_index(
        &self,
        name: &str,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Source> {
        self.reader.check().map_err(to_py)?;
        // Not that of the table, which may have dropped it, or have another one of that name.
        let spec = self.inner.index_spec(name).map_err(to_py)?;
        let (begin, end) = bounds(spec, begin, end, prefix, value)?;
        let rows =
            self.inner
                .scan_index(name, begin.as_deref(), end.as_deref(), direction(reverse));
        Ok(Source::Index(Box::new(rows.map_err(to_py)?)))
    }
}

/// From and to which key.
pub type Bounds = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Bounds of index keys; `prefix` is values of the first fields, of which the last may be the beginning of a text.
pub fn bounds(
    spec: &IndexSpec,
    begin: Option<&Bound<'_, PyAny>>,
    end: Option<&Bound<'_, PyAny>>,
    prefix: Option<&Bound<'_, PyAny>>,
    value: Option<&Bound<'_, PyAny>>,
) -> PyResult<Bounds> {
    let encoded = |object: Option<&Bound<'_, PyAny>>| -> PyResult<Option<Vec<u8>>> {
        let Some(object) = object else {
            return Ok(None);
        };
        let mut out = Vec::new();
        spec.encode(&values(object)?, &mut out).map_err(to_py)?;
        Ok(Some(out))
    };
    if let Some(value) = value {
        if begin.is_some() || end.is_some() || prefix.is_some() {
            return Err(to_py(Error::InvalidArgument(
                "value excludes begin, end and prefix".into(),
            )));
        }
        let equal = encoded(Some(value))?;
        let above = equal.as_deref().and_then(successor);
        return Ok((equal, above));
    }
    if let Some(prefix) = prefix {
        if begin.is_some() || end.is_some() {
            return Err(to_py(Error::InvalidArgument(
                "prefix and begin or end exclude each other".into(),
            )));
        }
        let mut out = Vec::new();
        let values = values(prefix)?;
        spec.encode_beginning(&values, &mut out).map_err(to_py)?;
        let above = successor(&out);
        return Ok((Some(out), above));
    }
    Ok((encoded(begin)?, encoded(end)?))
}

#[pymethods]
impl TableSnapshot {
    #[getter]
    fn position(&self) -> u64 {
        self.inner.position()
    }

    #[getter]
    fn floor(&self) -> u64 {
        self.inner.floor()
    }

    /// The same at an earlier position.
    fn at(&self, position: u64) -> PyResult<Self> {
        let inner = self.inner.clone().at(position).map_err(to_py)?;
        Ok(Self::new(self.reader.clone(), inner))
    }

    fn get(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<Py<Record>>> {
        self.reader.check().map_err(to_py)?;
        record_of(key, |key| detach(py, || self.inner.get(key)).map_err(to_py))
    }

    fn get_many(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<Option<Py<Record>>>> {
        self.reader.check().map_err(to_py)?;
        let mut all = Vec::new();
        for key in keys.try_iter()? {
            all.push(with_bytes(&key?, "key", <[u8]>::to_vec)?);
        }
        let found = detach(py, || self.inner.get_many(&all)).map_err(to_py)?;
        found
            .iter()
            .map(|row| row.as_ref().map(|row| record(py, row)).transpose())
            .collect()
    }

    /// Look up the keys of the first column of Arrow data, or of the one named `key`: one row each, in their order, with nulls
    /// where there is no record.
    #[pyo3(signature = (keys, columns=None))]
    fn get_many_arrow(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        columns: Option<Vec<String>>,
    ) -> PyResult<ArrowBatch> {
        self.reader.check().map_err(to_py)?;
        let projection = projection(columns.as_deref())?;
        let batches = import_stream(keys)?;
        let found = detach(py, || self.look_up(batches, &projection)).map_err(to_py)?;
        Ok(ArrowBatch::new(found))
    }

    #[pyo3(signature = (begin=None, end=None, prefix=None, reverse=false, limit=None))]
    fn scan(
        &self,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
        limit: Option<i64>,
    ) -> PyResult<TableRecords> {
        let limit = check_limit(limit)?;
        let source = self.by_keys(begin, end, prefix, reverse)?;
        Ok(TableRecords::new(self.reader.clone(), source, limit))
    }

    #[pyo3(signature = (begin=None, end=None, prefix=None, reverse=false, limit=None, columns=None))]
    fn batches(
        &self,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
        limit: Option<i64>,
        columns: Option<Vec<String>>,
    ) -> PyResult<TableBatches> {
        let (limit, projection) = (check_limit(limit)?, projection(columns.as_deref())?);
        let source = self.by_keys(begin, end, prefix, reverse)?;
        Ok(TableBatches::new(
            self.reader.clone(),
            source,
            limit,
            projection,
        ))
    }

    #[pyo3(signature = (name, begin=None, end=None, prefix=None, reverse=false, limit=None, value=None))]
    fn scan_index(
        &self,
        name: &str,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
        limit: Option<i64>,
        value: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<TableRecords> {
        let limit = check_limit(limit)?;
        let source = self.by_index(name, begin, end, prefix, value, reverse)?;
        Ok(TableRecords::new(self.reader.clone(), source, limit))
    }

    #[pyo3(signature = (name, begin=None, end=None, prefix=None, reverse=false, limit=None, columns=None, value=None))]
    fn index_batches(
        &self,
        name: &str,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
        limit: Option<i64>,
        columns: Option<Vec<String>>,
        value: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<TableBatches> {
        let (limit, projection) = (check_limit(limit)?, projection(columns.as_deref())?);
        let source = self.by_index(name, begin, end, prefix, value, reverse)?;
        Ok(TableBatches::new(
            self.reader.clone(),
            source,
            limit,
            projection,
        ))
    }

    /// Index keys taken apart: the values of each entry's fields, and the record's key.
    #[pyo3(signature = (name, limit))]
    fn index_values<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        limit: u64,
    ) -> PyResult<Vec<(Bound<'py, PyTuple>, Bound<'py, PyBytes>)>> {
        self.reader.check().map_err(to_py)?;
        let spec = self.inner.index_spec(name).map_err(to_py)?;
        let rows = self.inner.scan_index(name, None, None, Direction::Forward);
        let mut rows = rows.map_err(to_py)?;
        let mut found = Vec::new();
        while (found.len() as u64) < limit && detach(py, || rows.advance()).map_err(to_py)? {
            let (fields, key) = spec.split(rows.index_key()).map_err(to_py)?;
            let fields: Vec<_> = fields
                .iter()
                .map(|value| object(py, value))
                .collect::<PyResult<_>>()?;
            found.push((PyTuple::new(py, fields)?, PyBytes::new(py, key)));
        }
        Ok(found)
    }

    /// About how many bytes of an index's files are between two values, and of how many.
    #[pyo3(signature = (name, begin=None, end=None))]
    fn index_part(
        &self,
        name: &str,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(u64, u64)> {
        self.reader.check().map_err(to_py)?;
        let spec = self.inner.index_spec(name).map_err(to_py)?;
        let (begin, end) = bounds(spec, begin, end, None, None)?;
        let part = self
            .inner
            .index_part(name, begin.as_deref(), end.as_deref());
        part.map_err(to_py)
    }

    /// Divide the keys from `begin` to `end`, or of an index the entries between two values, into parts with about so many bytes of
    /// files each: begin, end, and bytes of each part.
    #[pyo3(signature = (bytes_per_part, parts_max, name=None, begin=None, end=None))]
    fn divide<'py>(
        &self,
        py: Python<'py>,
        bytes_per_part: u64,
        parts_max: usize,
        name: Option<&str>,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<Part<'py>>> {
        self.reader.check().map_err(to_py)?;
        let (begin, end) = match name {
            None => (owned(begin, "begin")?, owned(end, "end")?),
            Some(name) => {
                let spec = self.inner.index_spec(name).map_err(to_py)?;
                bounds(spec, begin, end, None, None)?
            }
        };
        let (low, high) = (begin.as_deref(), end.as_deref());
        let divide = || {
            self.inner
                .divide(name, low, high, bytes_per_part, parts_max)
        };
        let parts = detach(py, divide).map_err(to_py)?;
        let ends = parts.iter().skip(1).map(|(begin, _)| Some(&begin[..]));
        let ends = ends.chain([high]);
        let whole = parts.iter().zip(ends).map(|((begin, bytes), end)| {
            let end = end.map(|end| PyBytes::new(py, end));
            (PyBytes::new(py, begin), end, *bytes)
        });
        Ok(whole.collect())
    }

    /// Go through the entries of an index between two of its keys, as `divide` gives them.
    #[pyo3(signature = (name, begin, end, columns=None))]
    fn index_part_batches(
        &self,
        name: &str,
        begin: &[u8],
        end: Option<&[u8]>,
        columns: Option<Vec<String>>,
    ) -> PyResult<TableBatches> {
        self.reader.check().map_err(to_py)?;
        let projection = projection(columns.as_deref())?;
        let rows = self
            .inner
            .scan_index(name, Some(begin), end, Direction::Forward);
        let source = Source::Index(Box::new(rows.map_err(to_py)?));
        let reader = self.reader.clone();
        Ok(TableBatches::new(reader, source, None, projection))
    }
}

impl TableSnapshot {
    fn look_up(
        &self,
        batches: crate::arrow::RecordBatches,
        projection: &Projection,
    ) -> braidlog_core::Result<arrow_array::RecordBatch> {
        let mut rows = Rows::default();
        for batch in batches {
            let batch = batch?;
            let column = batch
                .column_by_name("key")
                .or_else(|| batch.columns().first());
            let keys = column
                .and_then(|column| keys_of(column.as_ref()))
                .ok_or_else(|| {
                    Error::InvalidArgument(
                        "keys must be a column of binary or text without nulls".into(),
                    )
                })?;
            let found = self.inner.get_many(&keys)?;
            for (key, row) in keys.iter().zip(&found) {
                let found = match row {
                    Some(row) => Some((row.position(), row.payload()?)),
                    None => None,
                };
                rows.push(key, found);
            }
        }
        rows.finish(projection)
    }
}

/// The keys of a column; none if it is of another type, or one is null.
fn keys_of(column: &dyn Array) -> Option<Vec<&[u8]>> {
    if column.null_count() > 0 {
        return None;
    }
    let any = column.as_any();
    if let Some(keys) = any.downcast_ref::<BinaryArray>() {
        return Some(keys.iter().flatten().collect());
    }
    if let Some(keys) = any.downcast_ref::<LargeBinaryArray>() {
        return Some(keys.iter().flatten().collect());
    }
    if let Some(keys) = any.downcast_ref::<BinaryViewArray>() {
        return Some(keys.iter().flatten().collect());
    }
    let keys = any.downcast_ref::<StringArray>()?;
    Some(keys.iter().flatten().map(str::as_bytes).collect())
}
