//! Rows of Arrow data: the stream that their keys belong to, the last ones of their keys, and a hash of what is in them.

use std::sync::Arc;

use ahash::RandomState;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, BooleanArray, Int32Array, Int64Array, RecordBatch};
use arrow_schema::{Field, Schema};
use braidlog_core::crc32::crc32;
use braidlog_core::{Error, Result};
use hashbrown::HashTable;
use pyo3::prelude::*;

use crate::arrow::{Bytes, RecordBatches, columns_of, import_stream};
use crate::error::to_py;
use crate::exit::detach;
use crate::scan::ArrowBatch;

/// Rows that are looked at together: their hash table stays in the cache of a processor.
const BUCKET_ROWS: usize = 8192;
/// Which bits of a hash tell the bucket: none of those that tell the place in a small table.
const BUCKET_SHIFT: u32 = 24;

/// An order of the rows of one record batch in which each part is in one piece, and where the pieces begin and end
/// (one more than there are parts). Within a part rows keep their order.
///
/// Needs the columns `position` and `key`. A key belongs to the part that its CRC-32 modulo `parts` names, as in
/// `braidlog.client.connection.routing`; records without a key are spread by their positions.
#[pyfunction]
pub fn split_by_key(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    parts: u32,
) -> PyResult<(ArrowBatch, Vec<usize>)> {
    let batches = import_stream(data)?;
    detach(py, || {
        let (rows, bounds) = split(&one(batches)?, parts)?;
        Ok((named("row", rows)?, bounds))
    })
    .map_err(to_py)
}

/// Which rows of one record batch are the last of their keys, as a column of booleans. Rows without a key are none.
///
/// Needs the column `key`.
#[pyfunction]
pub fn latest_by_key(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<ArrowBatch> {
    let batches = import_stream(data)?;
    detach(py, || {
        let batch = one(batches)?;
        let latest = latest(&keys_of(&batch)?, batch.num_rows())?;
        named("latest", BooleanArray::from(latest))
    })
    .map_err(to_py)
}

/// A hash of each record of one record batch: of key, value, timestamp and headers, which are its columns. For
/// comparing copies, by processes of one version; nothing that is kept.
#[pyfunction]
pub fn digest_records(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<ArrowBatch> {
    let batches = import_stream(data)?;
    detach(py, || {
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
        return Err(refused("at least one part is needed"));
    }
    let part_of = parts_of(batch, parts)?;
    let (rows, bounds) = grouped(part_of.len(), parts as usize, |row| part_of[row] as usize)?;
    Ok((rows.into(), bounds))
}

/// Rows in the order of their groups, within a group in their own, and where the groups begin and end.
fn grouped(
    rows: usize,
    groups: usize,
    group_of: impl Fn(usize) -> usize,
) -> Result<(Vec<i32>, Vec<usize>)> {
    let count = i32::try_from(rows).map_err(|_| refused("too many rows"))?;
    let mut bounds = vec![0; groups + 1];
    for row in 0..rows {
        bounds[group_of(row) + 1] += 1;
    }
    for group in 0..groups {
        bounds[group + 1] += bounds[group];
    }
    let mut next = bounds.clone();
    let mut ordered = vec![0; rows];
    for row in 0..count {
        let place = &mut next[group_of(row.unsigned_abs() as usize)];
        ordered[*place] = row;
        *place += 1;
    }
    Ok((ordered, bounds))
}

fn parts_of(batch: &RecordBatch, parts: u32) -> Result<Vec<u32>> {
    let positions = batch
        .column_by_name("position")
        .and_then(|array| array.as_primitive_opt::<Int64Type>())
        .ok_or_else(|| refused("column `position` is missing, or not int64"))?;
    let keys = keys_of(batch)?;
    let part = |row: usize| {
        if keys.is_null(row) {
            (positions.value(row).cast_unsigned() % u64::from(parts)) as u32
        } else {
            crc32(keys.get(row)) % parts
        }
    };
    Ok((0..batch.num_rows()).map(part).collect())
}

fn keys_of(batch: &RecordBatch) -> Result<Bytes> {
    let missing = || refused("column `key` is missing, or not binary");
    let column = batch.column_by_name("key").ok_or_else(missing)?;
    Bytes::of(column)?.ok_or_else(missing)
}

/// Bucket by bucket from the last row to the first: what is seen first of a key is the last of it.
fn latest(keys: &Bytes, rows: usize) -> Result<Vec<bool>> {
    // Seeded anew each time: nobody can choose keys that all have one hash.
    let state = RandomState::new();
    let hashes: Vec<u64> = (0..rows).map(|row| state.hash_one(keys.get(row))).collect();
    let buckets = rows.div_ceil(BUCKET_ROWS).next_power_of_two();
    let bucket_of = |row: usize| {
        // Rows without a key have a bucket of their own, which nobody looks into.
        let bucket = (hashes[row] >> BUCKET_SHIFT) as usize & (buckets - 1);
        if keys.is_null(row) { buckets } else { bucket }
    };
    let (ordered, bounds) = grouped(rows, buckets + 1, bucket_of)?;
    let mut latest = vec![false; rows];
    let mut seen = HashTable::<usize>::new();
    for bucket in bounds[..=buckets].windows(2) {
        seen.clear();
        for row in ordered[bucket[0]..bucket[1]].iter().rev() {
            let row = row.unsigned_abs() as usize;
            let same = |&other: &usize| keys.get(other) == keys.get(row);
            if seen.find(hashes[row], same).is_none() {
                seen.insert_unique(hashes[row], row, |&other| hashes[other]);
                latest[row] = true;
            }
        }
    }
    Ok(latest)
}
