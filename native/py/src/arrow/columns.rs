//! Columns of an Arrow record batch, by name, as the encoder takes them.

use std::hash::{DefaultHasher, Hash, Hasher};

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_array::{Array, ArrowPrimitiveType, BinaryArray, MapArray, RecordBatch};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, TimeUnit};
use braidlog_core::batch::{ColumnsRef, HeadersRef, Offsets, Timestamps};
use braidlog_core::{Error, Result};

use super::bytes::Bytes;
use super::schema::Column;

/// Records of one Arrow record batch. Shares its buffers.
#[derive(Clone, Debug)]
pub struct Columns {
    len: usize,
    values: Bytes,
    keys: Option<Bytes>,
    timestamps: OwnedTimestamps,
    headers: Option<OwnedHeaders>,
}

#[derive(Clone, Debug)]
enum OwnedTimestamps {
    Each(ScalarBuffer<i64>),
    All(i64),
}

#[derive(Clone, Debug)]
struct OwnedHeaders {
    offsets: OffsetBuffer<i32>,
    names: Bytes,
    values: Bytes,
}

/// Columns of `batch` by name: `value`, and optionally `key`, `timestamp` and `headers`. Without
/// timestamps all records get `now` (microseconds). `first_row` is the number of the batch's first
/// row in the whole input, for messages.
///
/// Whatever cannot be appended is `InvalidArgument` and names column and row: other columns, other
/// types, null timestamps and such as do not fit into microseconds, null names
/// of headers. Nanoseconds are rounded down.
pub fn columns_of(batch: &RecordBatch, first_row: u64, now: i64) -> Result<Columns> {
    let (mut values, mut keys, mut timestamps, mut headers) = (None, None, None, None);
    for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
        let at = At {
            column: field.name(),
            first_row,
        };
        let array = array.as_ref();
        let repeated = match Column::named(field.name()) {
            Some(Column::Value) => values.replace(value_column(array, at)?).is_some(),
            Some(Column::Key) => keys.replace(key_column(array, at)?).is_some(),
            Some(Column::Timestamp) => timestamps.replace(timestamp_column(array, at)?).is_some(),
            Some(Column::Headers) => headers.replace(header_column(array, at)?).is_some(),
            Some(Column::Position) => {
                return Err(at.refuse("is assigned by the log; drop it"));
            }
            None => {
                return Err(at.refuse("is not one of value, key, timestamp, headers"));
            }
        };
        if repeated {
            return Err(at.refuse("is there twice"));
        }
    }
    let Some(values) = values else {
        return Err(Error::InvalidArgument("column `value` is missing".into()));
    };
    Ok(Columns {
        len: batch.num_rows(),
        values,
        keys: keys.flatten(),
        timestamps: timestamps.unwrap_or(OwnedTimestamps::All(now)),
        headers: headers.flatten(),
    })
}

impl Columns {
    /// Records.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// As the encoder takes them.
    pub fn borrow(&self) -> ColumnsRef<'_> {
        ColumnsRef {
            len: self.len,
            values: self.values.borrow(),
            keys: self.keys.as_ref().map(Bytes::borrow),
            timestamps: match &self.timestamps {
                OwnedTimestamps::Each(each) => Timestamps::Each(each),
                OwnedTimestamps::All(all) => Timestamps::All(*all),
            },
            headers: self.headers.as_ref().map(|headers| HeadersRef {
                offsets: Offsets::I32(&headers.offsets),
                names: headers.names.borrow().bytes,
                values: headers.values.borrow(),
            }),
        }
    }
}

impl Columns {
    /// A hash of each record: of everything that its writer gave. The same for the same records in every build
    /// of one version, and for nothing that is kept.
    pub fn digests(&self) -> Vec<i64> {
        (0..self.len).map(|row| self.digest(row)).collect()
    }

    fn digest(&self, row: usize) -> i64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_i64(match &self.timestamps {
            OwnedTimestamps::Each(each) => each.get(row).copied().unwrap_or_default(),
            OwnedTimestamps::All(all) => *all,
        });
        self.keys
            .as_ref()
            .filter(|keys| !keys.is_null(row))
            .map(|keys| keys.get(row))
            .hash(&mut hasher);
        let value = Some(self.values.get(row)).filter(|_| !self.values.is_null(row));
        value.hash(&mut hasher);
        if let Some(headers) = &self.headers {
            let at = |row: usize| {
                let offset = headers.offsets.get(row).copied().unwrap_or_default();
                usize::try_from(offset).unwrap_or_default()
            };
            for entry in at(row)..at(row + 1) {
                headers.names.get(entry).hash(&mut hasher);
                let value = Some(headers.values.get(entry));
                let value = value.filter(|_| !headers.values.is_null(entry));
                value.hash(&mut hasher);
            }
        }
        hasher.finish().cast_signed()
    }
}

/// What a refusal is about.
#[derive(Clone, Copy)]
struct At<'a> {
    column: &'a str,
    first_row: u64,
}

impl At<'_> {
    fn refuse(self, reason: &str) -> Error {
        Error::InvalidArgument(format!("column `{}` {reason}", self.column))
    }

    fn refuse_row(self, row: usize, reason: &str) -> Error {
        let row = self.first_row + row as u64;
        Error::InvalidArgument(format!("column `{}`, row {row}: {reason}", self.column))
    }

    fn refuse_type(self, array: &dyn Array, expected: &str) -> Error {
        self.refuse(&format!(
            "has type {}, expected {expected}",
            array.data_type()
        ))
    }
}

const BYTES: &str = "binary or string (also large, view or dictionary)";

/// Whether it has no rows, of which somebody made a column without knowing their type.
fn is_untyped(array: &dyn Array) -> bool {
    array.is_empty() && *array.data_type() == DataType::Null
}

fn value_column(array: &dyn Array, at: At<'_>) -> Result<Bytes> {
    if *array.data_type() == DataType::Null {
        return value_column(&BinaryArray::new_null(array.len()), at);
    }
    Bytes::of(array)?.ok_or_else(|| at.refuse_type(array, BYTES))
}

fn key_column(array: &dyn Array, at: At<'_>) -> Result<Option<Bytes>> {
    if *array.data_type() == DataType::Null {
        return Ok(None);
    }
    Bytes::of(array)?
        .map(Some)
        .ok_or_else(|| at.refuse_type(array, BYTES))
}

fn timestamp_column(array: &dyn Array, at: At<'_>) -> Result<OwnedTimestamps> {
    if is_untyped(array) {
        return Ok(OwnedTimestamps::All(0));
    }
    if array.logical_null_count() != 0
        && let Some(row) =
            (0..array.len()).find(|&row| array.data_type() == &DataType::Null || array.is_null(row))
    {
        return Err(at.refuse_row(row, "null timestamp"));
    }
    let values = match array.data_type() {
        DataType::Int64 => numbers::<Int64Type>(array),
        DataType::Timestamp(TimeUnit::Microsecond, _) => numbers::<TimestampMicrosecondType>(array),
        DataType::Timestamp(TimeUnit::Second, _) => {
            multiplied(&numbers::<TimestampSecondType>(array), 1_000_000, at)?
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            multiplied(&numbers::<TimestampMillisecondType>(array), 1_000, at)?
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            let nanoseconds = numbers::<TimestampNanosecondType>(array);
            nanoseconds
                .iter()
                .map(|nanoseconds| nanoseconds.div_euclid(1_000))
                .collect()
        }
        _ => return Err(at.refuse_type(array, "timestamp or int64 (microseconds)")),
    };
    Ok(OwnedTimestamps::Each(values))
}

fn numbers<T: ArrowPrimitiveType<Native = i64>>(array: &dyn Array) -> ScalarBuffer<i64> {
    array.as_primitive::<T>().values().clone()
}

fn multiplied(values: &[i64], factor: i64, at: At<'_>) -> Result<ScalarBuffer<i64>> {
    let microseconds = values.iter().enumerate().map(|(row, value)| {
        let overflow = || at.refuse_row(row, "timestamp does not fit into microseconds");
        value.checked_mul(factor).ok_or_else(overflow)
    });
    microseconds.collect()
}

fn header_column(array: &dyn Array, at: At<'_>) -> Result<Option<OwnedHeaders>> {
    const EXPECTED: &str = "map<string, binary>";
    if *array.data_type() == DataType::Null {
        return Ok(None);
    }
    let Some(map) = array.as_map_opt() else {
        return Err(at.refuse_type(array, EXPECTED));
    };
    let is_text = matches!(
        map.keys().data_type(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    );
    let (Some(names), Some(values), true) =
        (Bytes::of(map.keys())?, Bytes::of(map.values())?, is_text)
    else {
        return Err(at.refuse_type(array, EXPECTED));
    };
    for row in (0..map.len()).filter(|&row| !map.is_null(row)) {
        if names.nulls.is_none() {
            break;
        }
        if entries_of(map, row).any(|entry| names.is_null(entry)) {
            return Err(at.refuse_row(row, "null name of a header"));
        }
    }
    let headers = OwnedHeaders {
        offsets: map.offsets().clone(),
        names,
        values,
    };
    let hidden = |row| map.is_null(row) && map.value_length(row) != 0;
    if (0..map.len()).any(hidden) {
        return without_hidden(map, &headers).map(Some);
    }
    Ok(Some(headers))
}

fn entries_of(map: &MapArray, row: usize) -> std::ops::Range<usize> {
    let offsets = map.value_offsets();
    // Arrow's own constructors verified that offsets are not negative.
    offsets[row].cast_unsigned() as usize..offsets[row + 1].cast_unsigned() as usize
}

/// A null map may span entries, which are not headers of the record. Rare, so copied.
fn without_hidden(map: &MapArray, headers: &OwnedHeaders) -> Result<OwnedHeaders> {
    let visible = |row: &usize| !map.is_null(*row);
    let indexes: Vec<usize> = (0..map.len())
        .filter(visible)
        .flat_map(|row| entries_of(map, row))
        .collect();
    let lengths = (0..map.len()).map(|row| {
        if map.is_null(row) {
            0
        } else {
            entries_of(map, row).len()
        }
    });
    Ok(OwnedHeaders {
        offsets: OffsetBuffer::from_lengths(lengths),
        names: headers.names.take(&indexes)?,
        values: headers.values.take(&indexes)?,
    })
}
