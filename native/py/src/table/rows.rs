//! Rows that came from a host of a table: one encoded batch, and the position of each row.

use braidlog_core::batch::BatchView;
use braidlog_core::table::order::IndexSpec;
use braidlog_core::table::table::{Payload, encode_payload};
use braidlog_core::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::batches::Rows;
use super::snapshot::bounds;
use crate::append::with_bytes;
use crate::error::to_py;
use crate::exit::detach;
use crate::log::projection;
use crate::record::{Record, record_object};
use crate::scan::ArrowBatch;

/// From and to which key of an index.
type IndexBounds<'py> = (Option<Bound<'py, PyBytes>>, Option<Bound<'py, PyBytes>>);

/// The batch, if there is one, with as many records as there are positions.
fn view<'a>(batch: &'a [u8], positions: &[u64]) -> Result<Option<BatchView<'a>>> {
    let view = (!batch.is_empty())
        .then(|| BatchView::parse(batch))
        .transpose()?;
    let count = view.as_ref().map_or(0, BatchView::count) as usize;
    if count != positions.len() {
        return Err(Error::InvalidArgument(format!(
            "{count} rows and {} positions",
            positions.len()
        )));
    }
    Ok(view)
}

/// The rows as records.
#[pyfunction]
pub fn rows_records(
    py: Python<'_>,
    batch: &Bound<'_, PyAny>,
    positions: Vec<u64>,
) -> PyResult<Vec<Py<Record>>> {
    let bytes = with_bytes(batch, "batch", <[u8]>::to_vec)?;
    let Some(view) = detach(py, || view(&bytes, &positions)).map_err(to_py)? else {
        return Ok(Vec::new());
    };
    let mut records = Vec::with_capacity(positions.len());
    for (position, record) in positions.iter().zip(view.iter()) {
        records.push(record_object(py, *position, record)?);
    }
    Ok(records)
}

/// The rows as an Arrow batch. With `keys` there is a row for each of them, with nulls where it is not `found`.
#[pyfunction]
#[pyo3(signature = (batch, positions, columns=None, keys=None, found=None))]
pub fn rows_arrow(
    py: Python<'_>,
    batch: &Bound<'_, PyAny>,
    positions: Vec<u64>,
    columns: Option<Vec<String>>,
    keys: Option<Vec<Vec<u8>>>,
    found: Option<Vec<u64>>,
) -> PyResult<ArrowBatch> {
    let projection = projection(columns.as_deref())?;
    let bytes = with_bytes(batch, "batch", <[u8]>::to_vec)?;
    let gather = || {
        let view = view(&bytes, &positions)?;
        let mut rows = Rows::default();
        let mut missing = keys
            .iter()
            .flatten()
            .zip(0..)
            .map(|(key, number)| (number, key));
        let mut found = found.iter().flatten();
        let mut payload = Vec::new();
        let records = view.iter().flat_map(BatchView::iter);
        for (position, record) in positions.iter().zip(records) {
            let key = record.key.unwrap_or_default();
            if keys.is_some() {
                let number: u64 = *found.next().unwrap_or(&u64::MAX);
                let before = missing.by_ref().take_while(|(other, _)| *other != number);
                before.for_each(|(_, key)| rows.push(key, None));
            }
            payload.clear();
            let (value, headers) = (record.value, record.headers);
            encode_payload(record.timestamp, value, headers, &mut payload);
            rows.push(key, Some((*position, Payload::decode(&payload)?)));
        }
        missing.for_each(|(_, key)| rows.push(key, None));
        rows.finish(&projection)
    };
    Ok(ArrowBatch::new(detach(py, gather).map_err(to_py)?))
}

/// Bounds of an index over a field as the index orders them: (begin, end), `None` is no bound.
#[pyfunction]
#[pyo3(signature = (spec, begin=None, end=None, prefix=None, value=None))]
pub fn index_bounds<'py>(
    py: Python<'py>,
    spec: &str,
    begin: Option<&Bound<'py, PyAny>>,
    end: Option<&Bound<'py, PyAny>>,
    prefix: Option<&Bound<'py, PyAny>>,
    value: Option<&Bound<'py, PyAny>>,
) -> PyResult<IndexBounds<'py>> {
    let spec = IndexSpec::parse(spec).map_err(to_py)?;
    let (begin, end) = bounds(&spec, begin, end, prefix, value)?;
    let object = |bytes: Option<Vec<u8>>| bytes.map(|bytes| PyBytes::new(py, &bytes));
    Ok((object(begin), object(end)))
}
