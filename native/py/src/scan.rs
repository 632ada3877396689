//! Scans as Arrow record batches.
//!
//! Large batches leave as they are, in place. Small ones (appended one by one) are gathered into
//! larger ones first: an engine pays for every batch it is given.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use braidlog_core::Result;
use braidlog_core::batch::{BatchBuilder, BatchView, Compression, parse_head};
use braidlog_core::wal::{BatchRef, Position, StreamView, View};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::arrow::{
    Checks, Owner, Projection, array_capsules, export_batch, schema_capsule, stream_capsule,
};
use crate::error::to_py;
use crate::exit::detach;
use crate::gate::Reader;

/// Bytes read from the log at a time.
const READ_BYTES: usize = 1 << 20;

/// Batches below this size are gathered.
const SMALL_BYTES: usize = 64 << 10;

/// Gathered batches are given out at this size.
const GATHERED_BYTES: usize = 1 << 20;

/// A batch of the log that Arrow buffers keep alive.
struct Held(AssertUnwindSafe<BatchRef>);

// SAFETY: the bytes belong to a chunk or part behind an `Arc`, which nobody changes once it is
// shared.
unsafe impl Owner for Held {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// Reads a range of a stream as Arrow.
pub struct Scan {
    reader: Reader,
    projection: Projection,
    next: u64,
    end: u64,
    position: Position,
    batches: VecDeque<BatchRef>,
    /// Whether to read on behind records that a repair declared lost.
    skip_holes: bool,
}

impl Scan {
    /// Read positions `start..end`.
    pub fn new(reader: Reader, projection: Projection, start: u64, end: u64) -> Self {
        let (position, batches) = (Position::default(), VecDeque::new());
        Self {
            reader,
            projection,
            next: start,
            end,
            position,
            batches,
            skip_holes: false,
        }
    }

    /// Read on behind holes, or not.
    pub fn skipping(self, skip_holes: bool) -> Self {
        Self { skip_holes, ..self }
    }

    fn peek(&mut self) -> Result<Option<&BatchRef>> {
        while self.batches.is_empty() && self.next < self.end {
            let (from, to, position) = (self.next, self.end, &mut self.position);
            let read = |view: &View, stream: &StreamView| {
                view.read(stream, from, to, READ_BYTES, position)
            };
            let found = self.reader.read(read)?;
            let Some(last) = found.last() else { break };
            self.next = last.next();
            for batch in found {
                let hole = parse_head(batch.bytes())?.is_hole();
                if !(hole && self.skip_holes) {
                    self.batches.push_back(batch);
                }
            }
        }
        Ok(self.batches.front())
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        self.reader.check()?;
        let small = |batch: &BatchRef| batch.bytes().len() < SMALL_BYTES;
        match self.peek()? {
            None => Ok(None),
            Some(batch) if is_hole(batch)? => {
                parse_head(batch.bytes())?.check_there(batch.llsn)?;
                Ok(None)
            }
            Some(batch) if small(batch) => self.gather().map(Some),
            Some(_) => {
                let batch = self.batches.pop_front();
                batch.map(|batch| self.export(batch)).transpose()
            }
        }
    }

    fn export(&self, batch: BatchRef) -> Result<RecordBatch> {
        let (first, range, clip) = (batch.llsn, 0..batch.bytes().len(), batch.begin..batch.end);
        let owner: Arc<dyn Owner> = Arc::new(Held(AssertUnwindSafe(batch)));
        export_batch(
            &owner,
            range,
            first,
            clip,
            &self.projection,
            Checks::Verified,
        )
    }

    /// Copy small batches into a larger one.
    fn gather(&mut self) -> Result<RecordBatch> {
        let mut builder = BatchBuilder::new();
        let first = self.batches.front().map_or(0, BatchRef::first);
        let mut next = first;
        while builder.encoded_len_max() < GATHERED_BYTES {
            match self.peek()? {
                // Positions of one Arrow batch are consecutive.
                Some(batch)
                    if batch.bytes().len() < SMALL_BYTES
                        && batch.first() == next
                        && !is_hole(batch)? => {}
                _ => break,
            }
            let Some(batch) = self.batches.pop_front() else {
                break;
            };
            next = batch.next();
            let view = BatchView::parse_verified(batch.bytes())?;
            for i in batch.begin..batch.end {
                if let Some(record) = view.record(i) {
                    let headers: Vec<_> = record.headers.collect();
                    builder.push(record.value, record.key, record.timestamp, &headers)?;
                }
            }
        }
        let count = builder.len() as u32;
        let mut bytes = Vec::with_capacity(builder.encoded_len_max());
        builder.encode_into(Compression::None, &mut bytes)?;
        let range = 0..bytes.len();
        let owner: Arc<dyn Owner> = Arc::new(bytes);
        export_batch(
            &owner,
            range,
            first,
            0..count,
            &self.projection,
            Checks::Verified,
        )
    }
}

fn is_hole(batch: &BatchRef) -> Result<bool> {
    Ok(parse_head(batch.bytes())?.is_hole())
}

impl Iterator for Scan {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.next_batch();
        if found.is_err() {
            self.next = self.end;
            self.batches.clear();
        }
        found
            .map_err(|error| ArrowError::ExternalError(Box::new(error)))
            .transpose()
    }
}

impl RecordBatchReader for Scan {
    fn schema(&self) -> SchemaRef {
        self.projection.schema()
    }
}

/// One Arrow record batch, to be imported by any Arrow library.
#[pyclass(frozen, module = "braidlog._native")]
pub struct ArrowBatch {
    batch: RecordBatch,
}

impl ArrowBatch {
    /// For Python.
    pub fn new(batch: RecordBatch) -> Self {
        Self { batch }
    }
}

#[pymethods]
impl ArrowBatch {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        array_capsules(py, &self.batch)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.batch.schema())
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }
}

/// Iterates over a range as [`ArrowBatch`]es; also an Arrow stream, once.
#[pyclass(module = "braidlog._native")]
pub struct BatchIterator {
    scan: Option<Scan>,
    projection: Projection,
}

impl BatchIterator {
    /// Iterate over a scan.
    pub fn new(scan: Scan) -> Self {
        let projection = scan.projection.clone();
        Self {
            scan: Some(scan),
            projection,
        }
    }
}

#[pymethods]
impl BatchIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<ArrowBatch>> {
        let Some(scan) = self.scan.as_mut() else {
            return Ok(None);
        };
        let found = detach(py, || scan.next_batch()).map_err(to_py)?;
        Ok(found.map(|batch| ArrowBatch { batch }))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &mut self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let scan = self.scan.take();
        let scan = scan.ok_or_else(|| {
            to_py(braidlog_core::Error::InvalidArgument(
                "this Arrow stream was read already; start another scan".into(),
            ))
        })?;
        stream_capsule(py, Box::new(scan))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.projection.schema())
    }
}
