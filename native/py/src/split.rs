//! Rows of Arrow data: the stream that their keys belong to, and a hash of what is in them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, Int32Array, Int64Array, RecordBatch};
use arrow_schema::{Field, Schema};
use braidlog_core::crc32::crc32;
use braidlog_core::{Error, Result};
use pyo3::prelude::*;

use crate::arrow::{Bytes, RecordBatches, columns_of, import_stream};
use crate::error::to_py;
use crate::scan::ArrowBatch;

/// An order of the rows of one record batch in which each part is in one piece, and where the pieces begin and end
/// (one more than there are parts). Within a part rows keep their order.
///
/// Needs the columns `position` and `key`. A key belongs to the part that its CRC-32 modulo `parts` names, as in
/// `braidlog.client.routing`; records without a key are spread by their positions.
#[pyfunction]
pub fn split_by_key(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    parts: u32,
) -> PyResult<(ArrowBatch, Vec<usize>)> {
    let batches = import_stream(data)?;
    py.detach(|| {
        let (rows, bounds) = split(&one(batches)?, parts)?;
        Ok((named("row", rows)?, bounds))
    })
    .map_err(to_py)
}

/// A hash of each record of one record batch: of key, value, timestamp and headers, which are its columns. For
/// comparing copies, by processes of one version; nothing that is kept.
#[pyfunction]
pub fn digest_records(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<ArrowBatch> {
    let batches = import_stream(data)?;
    py.detach(|| {
        let columns = columns_of(&one(batches)?, 0, 0)?;
        named("digest", Int64Array::from(columns.digests()))
    })
    .map_err(to_py)
}

fn one(mut batches: RecordBatches) -> Result<RecordBatch> {
    match (batches.next(), batches.next()) {
        (Some(batch), None) => batch,
        _ => Err(refused("expected one record batch")),
    }
}

fn named(name: &str, column: impl Array + 'static) -> Result<ArrowBatch> {
    let field = Field::new(name, column.data_type().clone(), false);
    let schema = Arc::new(Schema::new(vec![field]));
    RecordBatch::try_new(schema, vec![Arc::new(column)])
        .map(ArrowBatch::new)
        .map_err(|error| refused(&error.to_string()))
}

fn refused(reason: &str) -> Error {
    Error::InvalidArgument(reason.to_owned())
}

fn split(batch: &RecordBatch, parts: u32) -> Result<(Int32Array, Vec<usize>)> {
    if parts == 0 {
        return Err(refused("there has to be a part"));
    }
    let part_of = parts_of(batch, parts)?;
    let mut bounds = vec![0; parts as usize + 1];
    for &part in &part_of {
        bounds[part as usize + 1] += 1;
    }
    for part in 0..parts as usize {
        bounds[part + 1] += bounds[part];
    }
    let mut next = bounds.clone();
    let mut rows = vec![0_i32; part_of.len()];
    for (row, &part) in part_of.iter().enumerate() {
        let place = &mut next[part as usize];
        rows[*place] = i32::try_from(row).map_err(|_| refused("too many rows"))?;
        *place += 1;
    }
    Ok((rows.into(), bounds))
}

fn parts_of(batch: &RecordBatch, parts: u32) -> Result<Vec<u32>> {
    let positions = batch
        .column_by_name("position")
        .and_then(|array| array.as_primitive_opt::<Int64Type>())
        .ok_or_else(|| refused("column `position` is missing, or not int64"))?;
    let keys = batch
        .column_by_name("key")
        .and_then(|array| Bytes::of(array))
        .ok_or_else(|| refused("column `key` is missing, or not binary"))?;
    let part = |row: usize| {
        if keys.is_null(row) {
            (positions.value(row).cast_unsigned() % u64::from(parts)) as u32
        } else {
            crc32(keys.get(row)) % parts
        }
    };
    Ok((0..batch.num_rows()).map(part).collect())
}
