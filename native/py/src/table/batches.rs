//! Scans of a table as Arrow record batches.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, Int64Array, MapArray, RecordBatch, RecordBatchOptions,
    RecordBatchReader, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, SchemaRef};
use braidlog_core::table::run::Stretch;
use braidlog_core::table::table::Payload;
use braidlog_core::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::records::Source;
use crate::arrow::{
    Column, Projection, entries_field, entry_fields, schema_capsule, stream_capsule,
};
use crate::error::to_py;
use crate::exit::detach;
use crate::gate::Reader;
use crate::scan::ArrowBatch;

/// Rows and bytes of a record batch.
const ROWS_MAX: usize = 64 << 10;
const BYTES_MAX: usize = 1 << 20;

/// Which of many rows are there; nothing is noted before the first one that is not.
#[derive(Default)]
struct Valid(Option<Vec<bool>>);

impl Valid {
    /// Note one behind `before` others.
    #[inline]
    fn push(&mut self, before: usize, is_there: bool) {
        match &mut self.0 {
            Some(valid) => valid.push(is_there),
            None if is_there => {}
            None => {
                let mut valid = vec![true; before];
                valid.push(false);
                self.0 = Some(valid);
            }
        }
    }

    /// Note so many that are there.
    fn extend(&mut self, count: usize) {
        if let Some(valid) = &mut self.0 {
            valid.resize(valid.len() + count, true);
        }
    }

    fn nulls(self) -> Option<NullBuffer> {
        self.0.map(NullBuffer::from)
    }
}

/// Bytes of many values, and where each begins; the last of these is where the last one ends.
struct Bytes {
    data: Vec<u8>,
    offsets: Vec<i32>,
    valid: Valid,
}

impl Default for Bytes {
    fn default() -> Self {
        Self::sized(0, 0)
    }
}

impl Bytes {
    /// Room for as much as there was before, and some more.
    fn sized(rows: usize, bytes: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + rows / 8 + 1);
        offsets.push(0);
        Self {
            data: Vec::with_capacity(bytes + bytes / 8),
            offsets,
            valid: Valid::default(),
        }
    }

    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    #[inline]
    fn push(&mut self, value: Option<&[u8]>) {
        self.valid.push(self.len(), value.is_some());
        self.data.extend_from_slice(value.unwrap_or_default());
        // Batches end long before 2 GiB: one record has at most 16 MiB.
        self.offsets.push(self.data.len() as i32);
    }

    /// Add values that stand one behind the other, and end there.
    fn extend(&mut self, data: &[u8], ends: impl ExactSizeIterator<Item = u32>) {
        let begin = self.data.len() as u32;
        self.valid.extend(ends.len());
        self.data.extend_from_slice(data);
        self.offsets.extend(ends.map(|end| (begin + end) as i32));
    }

    fn binary(self) -> std::result::Result<BinaryArray, ArrowError> {
        BinaryArray::try_new(
            offsets(self.offsets),
            Buffer::from_vec(self.data),
            self.valid.nulls(),
        )
    }
}

fn offsets(offsets: Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(ScalarBuffer::from(offsets))
}

/// Columns of rows.
#[derive(Default)]
pub struct Rows {
    positions: Vec<i64>,
    timestamps: Vec<i64>,
    keys: Bytes,
    values: Bytes,
    header_ends: Vec<i32>,
    header_names: Bytes,
    header_values: Bytes,
    found: Valid,
}

impl Rows {
    /// With room for as many rows, and bytes of keys and values, as a batch before had.
    fn sized(rows: usize, keys: usize, values: usize) -> Self {
        let many = rows + rows / 8;
        Self {
            positions: Vec::with_capacity(many),
            timestamps: Vec::with_capacity(many),
            keys: Bytes::sized(rows, keys),
            values: Bytes::sized(rows, values),
            header_ends: Vec::with_capacity(many + 1),
            ..Self::default()
        }
    }

    /// Add a record, or a row of nulls but for the key.
    pub fn push(&mut self, key: &[u8], found: Option<(u64, Payload<'_>)>) {
        self.keys.push(Some(key));
        self.found.push(self.positions.len(), found.is_some());
        if let Some((position, payload)) = found {
            self.positions.push(position.cast_signed());
            self.push_payload(payload);
        } else {
            self.positions.push(0);
            self.timestamps.push(0);
            self.values.push(None);
        }
        self.header_ends.push(self.header_names.len() as i32);
    }

    fn push_payload(&mut self, payload: Payload<'_>) {
        self.timestamps.push(payload.timestamp);
        self.values.push(payload.value);
        for (name, value) in payload.headers {
            self.header_names.push(Some(name.as_bytes()));
            self.header_values.push(value);
        }
    }

    /// Add records that lie together in a page, column by column.
    fn extend(&mut self, stretch: &Stretch<'_>) -> Result<()> {
        let (keys, key_ends) = stretch.keys();
        let (payloads, ends) = stretch.payloads();
        self.values.data.reserve(payloads.len());
        let mut begin = 0;
        for end in ends {
            let payload = &payloads[begin..end as usize];
            begin = end as usize;
            if let Some((timestamp, value)) = Payload::plain(payload) {
                self.timestamps.push(timestamp);
                self.values.push(value);
            } else {
                self.push_payload(Payload::decode(payload)?);
            }
            self.header_ends.push(self.header_names.len() as i32);
        }
        self.keys.extend(keys, key_ends);
        self.found.extend(stretch.len());
        self.positions
            .extend(stretch.positions().map(u64::cast_signed));
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.positions.len()
    }

    fn bytes(&self) -> usize {
        self.keys.data.len() + self.values.data.len() + self.header_values.data.len()
    }

    /// The record batch of these columns.
    pub fn finish(self, projection: &Projection) -> Result<RecordBatch> {
        let rows = self.len();
        self.arrays(projection)
            .and_then(|columns| {
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                RecordBatch::try_new_with_options(projection.schema(), columns, &options)
            })
            .map_err(|reason| Error::InvalidArgument(format!("arrow export: {reason}")))
    }

    fn arrays(self, projection: &Projection) -> std::result::Result<Vec<ArrayRef>, ArrowError> {
        let names = StringArray::try_from_binary(self.header_names.binary()?)?;
        let values = self.header_values.binary()?;
        let entries = StructArray::try_new(
            entry_fields(),
            vec![Arc::new(names), Arc::new(values)],
            None,
        )?;
        let nulls = self.found.nulls();
        let timestamps = ScalarBuffer::from(self.timestamps);
        let timestamps = TimestampMicrosecondArray::try_new(timestamps, nulls.clone())?;
        let timestamps = timestamps.with_timezone("UTC");
        let positions = ScalarBuffer::from(self.positions);
        let positions: ArrayRef = Arc::new(Int64Array::try_new(positions, nulls.clone())?);
        let mut header_ends = self.header_ends;
        header_ends.insert(0, 0);
        let header_ends = offsets(header_ends);
        let headers = MapArray::try_new(entries_field(), header_ends, entries, nulls, false)?;
        let timestamps: ArrayRef = Arc::new(timestamps);
        let keys: ArrayRef = Arc::new(self.keys.binary()?);
        let values: ArrayRef = Arc::new(self.values.binary()?);
        let headers: ArrayRef = Arc::new(headers);
        let column = |column: &Column| {
            Arc::clone(match column {
                Column::Position => &positions,
                Column::Timestamp => &timestamps,
                Column::Key => &keys,
                Column::Value => &values,
                Column::Headers => &headers,
            })
        };
        Ok(projection.columns().iter().map(column).collect())
    }
}

impl Source {
    /// Step over the next records, at most `max`, and add them. False behind the last.
    fn next_rows(&mut self, max: usize, rows: &mut Rows) -> Result<bool> {
        let Self::Keys(found) = self else {
            return self.next(&mut |key, position, payload| {
                rows.push(key, Some((position, Payload::decode(payload)?)));
                Ok(())
            });
        };
        if !found.advance_stretch(max)? {
            return Ok(false);
        }
        if let Some(stretch) = found.stretch() {
            rows.extend(&stretch)?;
        } else {
            let (key, position, payload) = found.record()?;
            rows.push(key, Some((position, payload)));
        }
        Ok(true)
    }
}

/// A scan that gives record batches.
struct Scan {
    reader: Reader,
    source: Source,
    projection: Projection,
    left: u64,
    is_over: bool,
    /// Rows of the last batch, and bytes of its keys and values.
    size: (usize, usize, usize),
}

impl Scan {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        self.reader.check()?;
        let (rows, keys, values) = self.size;
        let mut rows = Rows::sized(rows, keys, values);
        while !self.is_over && self.left > 0 && rows.len() < ROWS_MAX && rows.bytes() < BYTES_MAX {
            let before = rows.len();
            let max = self.left.min((ROWS_MAX - before) as u64) as usize;
            self.is_over = !self.source.next_rows(max, &mut rows)?;
            self.left -= (rows.len() - before) as u64;
        }
        if rows.len() == 0 {
            return Ok(None);
        }
        self.size = (rows.len(), rows.keys.data.len(), rows.values.data.len());
        rows.finish(&self.projection).map(Some)
    }
}

impl Iterator for Scan {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch()
            .map_err(|error| ArrowError::ExternalError(Box::new(error)))
            .transpose()
    }
}

impl RecordBatchReader for Scan {
    fn schema(&self) -> SchemaRef {
        self.projection.schema()
    }
}

/// Iterates over records of a table as Arrow batches; also an Arrow stream, once.
#[pyclass(module = "braidlog._native")]
pub struct TableBatches {
    scan: Option<Scan>,
    projection: Projection,
}

impl TableBatches {
    pub fn new(reader: Reader, source: Source, limit: Option<u64>, projection: Projection) -> Self {
        let scan = Scan {
            reader,
            source,
            projection: projection.clone(),
            left: limit.unwrap_or(u64::MAX),
            is_over: false,
            size: (0, 0, 0),
        };
        Self {
            scan: Some(scan),
            projection,
        }
    }
}

#[pymethods]
impl TableBatches {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<ArrowBatch>> {
        let Some(scan) = self.scan.as_mut() else {
            return Ok(None);
        };
        let found = detach(py, || scan.next_batch()).map_err(to_py)?;
        Ok(found.map(ArrowBatch::new))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &mut self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let scan = self.scan.take().ok_or_else(|| {
            to_py(Error::InvalidArgument(
                "this Arrow stream was read already; start another scan".into(),
            ))
        })?;
        stream_capsule(py, Box::new(scan))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.projection.schema())
    }
}
