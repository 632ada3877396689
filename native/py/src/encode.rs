//! Batches outside of a log: encoded for the way to it, and taken apart on the way back.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use braidlog_core::batch::{
    BatchView, ColumnsRef, Compression, Producer, Routed, encode_columns, parse_head, route,
};
use braidlog_core::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX};
use braidlog_core::wal::Sequenced;
use braidlog_core::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::append::{sequenced, with_bytes};
use crate::arrow::{Checks, Owner, columns_of, export_batch, import_records};
use crate::columns::{ListColumns, Piece};
use crate::error::to_py;
use crate::exit::detach;
use crate::log::projection;
use crate::number::Unsigned;
use crate::record::{Record, record_object};
use crate::scan::ArrowBatch;
use crate::store::{compression, now};

/// Records that one call makes objects of.
const OBJECTS_MAX: u32 = 4096;

fn encode(
    columns: &ColumnsRef<'_>,
    rows: Range<usize>,
    producer: Option<Sequenced>,
    compression: Compression,
) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(columns.encoded_len_max(&rows).min(BATCH_BYTES_MAX));
    encode_columns(columns, rows, header(producer), compression, &mut out)?;
    Ok(out)
}

fn header(producer: Option<Sequenced>) -> Producer {
    producer.map_or(Producer::default(), |(id, sequence)| Producer {
        id: id.id,
        epoch: id.epoch,
        base_sequence: sequence,
    })
}

/// Memory that a thread keeps for the next batch, so that its pages are there already.
#[derive(Default)]
struct Scratch {
    values: Vec<u8>,
    encoded: Vec<u8>,
}

/// Most of either that is kept.
const SCRATCH_BYTES_KEPT: usize = 2 << 20;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// One batch of what was appended in pieces, in their order.
#[pyfunction]
#[pyo3(signature = (pieces, producer, sequence, compression="none"))]
pub fn encode_pieces<'py>(
    py: Python<'py>,
    pieces: Vec<Piece<'py>>,
    producer: (u64, u32),
    sequence: Unsigned,
    compression: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let producer = header(sequenced(Some(producer), Some(sequence))?);
    let compression = self::compression(compression)?;
    // Taken, not borrowed: an item may be an object whose buffer is made by Python code.
    let Scratch {
        values,
        mut encoded,
    } = SCRATCH.take();
    let columns = ListColumns::gather(&pieces, values)?;
    encoded.clear();
    detach(py, || {
        let columns = columns.borrow();
        let rows = 0..columns.len;
        encode_columns(&columns, rows, producer, compression, &mut encoded)
    })
    .map_err(to_py)?;
    let bytes = PyBytes::new(py, &encoded);
    let mut values = columns.into_memory();
    for memory in [&mut values, &mut encoded] {
        if memory.capacity() > SCRATCH_BYTES_KEPT {
            *memory = Vec::new();
        }
    }
    SCRATCH.set(Scratch { values, encoded });
    Ok(bytes)
}

/// What a list of nothing but `bytes` holds: (bytes of all, bytes of the longest). `None` if
/// anything in it is something else.
#[pyfunction]
pub fn bytes_of(values: &Bound<'_, PyList>) -> Option<(usize, usize)> {
    let (mut all, mut longest) = (0, 0);
    for value in values.iter() {
        let len = value.cast_exact::<PyBytes>().ok()?.as_bytes().len();
        all += len;
        longest = longest.max(len);
    }
    Some((all, longest))
}

/// One batch of lists of values.
#[pyfunction]
#[pyo3(signature = (values, keys=None, timestamps=None, headers=None, producer=None, sequence=None, compression="none"))]
pub fn encode_batch<'py>(
    py: Python<'py>,
    values: &Bound<'py, PyAny>,
    keys: Option<&Bound<'py, PyAny>>,
    timestamps: Option<&Bound<'py, PyAny>>,
    headers: Option<&Bound<'py, PyAny>>,
    producer: Option<(u64, u32)>,
    sequence: Option<Unsigned>,
    compression: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let producer = sequenced(producer, sequence)?;
    let compression = self::compression(compression)?;
    let columns = ListColumns::from_py(values, keys, timestamps, headers, now())?;
    let encoded = detach(py, || {
        let columns = columns.borrow();
        encode(&columns, 0..columns.len, producer, compression)
    });
    Ok(PyBytes::new(py, &encoded.map_err(to_py)?))
}

/// Batches of about `bytes` bytes each of Arrow data; their sequences go on from one to the next.
#[pyfunction]
#[pyo3(signature = (data, producer=None, sequence=None, compression="none", batch_bytes=1_048_576))]
pub fn encode_arrow<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    producer: Option<(u64, u32)>,
    sequence: Option<Unsigned>,
    compression: &str,
    batch_bytes: usize,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let producer = sequenced(producer, sequence)?;
    let compression = self::compression(compression)?;
    let (batches, stamp) = (import_records(data)?, now());
    let encoded = detach(py, || {
        let (mut done, mut encoded) = (0, Vec::new());
        for batch in batches {
            let columns = columns_of(&batch?, done, stamp)?;
            let columns = columns.borrow();
            let size = batch_bytes.clamp(1, BATCH_BYTES_MAX);
            for rows in columns.split(0..columns.len, size, BATCH_RECORDS_MAX) {
                let count = rows.len() as u64;
                let producer = producer.map(|(id, first)| (id, first + done));
                encoded.push(encode(&columns, rows, producer, compression)?);
                done += count;
            }
        }
        Ok(encoded)
    });
    let encoded: Result<Vec<Vec<u8>>> = encoded;
    let encoded = encoded.map_err(to_py)?;
    Ok(encoded
        .iter()
        .map(|bytes| PyBytes::new(py, bytes))
        .collect())
}

/// Where the records of one Arrow batch go: for each of `streams` streams, and last for those without
/// a key, the numbers of the rows as a buffer of `int32`; and the bytes that the largest takes encoded.
#[pyfunction]
pub fn route_arrow<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    streams: usize,
) -> PyResult<(Vec<Bound<'py, PyBytes>>, usize)> {
    let batches = import_records(data)?;
    let routed = detach(py, || {
        let (mut done, mut all) = (0_u64, Routed::default());
        for batch in batches {
            if done > 0 {
                let reason = "rows are routed batch by batch";
                return Err(Error::InvalidArgument(reason.into()));
            }
            let columns = columns_of(&batch?, done, 0)?;
            all = route(&columns.borrow(), streams)?;
            done += columns.len() as u64;
        }
        Ok(all)
    });
    let routed = routed.map_err(to_py)?;
    let groups = routed.streams.iter().chain([&routed.keyless]);
    let bytes = |rows: &Vec<u32>| {
        let rows: Vec<u8> = rows.iter().flat_map(|row| row.to_le_bytes()).collect();
        PyBytes::new(py, &rows)
    };
    Ok((groups.map(bytes).collect(), routed.largest))
}

/// What the head of a batch says, its body unseen: (records, bytes, producer, its epoch, first sequence,
/// smallest and largest timestamp).
#[pyfunction]
pub fn batch_header(data: &Bound<'_, PyAny>) -> PyResult<(u32, usize, u64, u32, u64, i64, i64)> {
    with_bytes(data, "batch", |bytes| {
        let head = parse_head(bytes)?;
        let from = head.producer();
        Ok((
            head.count(),
            head.total_len(),
            from.id,
            from.epoch,
            from.base_sequence,
            head.min_timestamp(),
            head.max_timestamp(),
        ))
    })?
    .map_err(to_py)
}

/// An encoded batch that was verified to its last byte.
#[pyclass(frozen, module = "braidlog._native")]
pub struct Batch {
    bytes: Arc<Vec<u8>>,
    count: u32,
    producer: Producer,
    timestamps: (i64, i64),
}

/// A batch that Arrow buffers keep alive.
struct Held(Arc<Vec<u8>>);

// SAFETY: a vector behind a shared reference neither moves nor changes what it points to.
unsafe impl Owner for Held {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[pymethods]
impl Batch {
    #[new]
    fn new(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Self> {
        let bytes = with_bytes(data, "batch", <[u8]>::to_vec)?;
        let seen = detach(py, || {
            let view = BatchView::parse(&bytes)?;
            let head = view.head();
            head.check_there(0)?;
            let timestamps = (head.min_timestamp(), head.max_timestamp());
            Ok((view.count(), head.producer(), timestamps))
        });
        let (count, producer, timestamps) = seen.map_err(to_py)?;
        Ok(Self {
            bytes: Arc::new(bytes),
            count,
            producer,
            timestamps,
        })
    }

    #[getter]
    fn count(&self) -> u32 {
        self.count
    }

    /// Who wrote it, 0 if nobody in particular.
    #[getter]
    fn producer(&self) -> u64 {
        self.producer.id
    }

    #[getter]
    fn producer_epoch(&self) -> u32 {
        self.producer.epoch
    }

    /// Sequence of the first record.
    #[getter]
    fn sequence(&self) -> u64 {
        self.producer.base_sequence
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes.len()
    }

    /// Smallest and largest timestamp.
    #[getter]
    fn timestamps(&self) -> (i64, i64) {
        self.timestamps
    }

    fn __len__(&self) -> usize {
        self.count as usize
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes)
    }

    /// Its records `begin..end`; the first record of the batch has position `position`.
    #[pyo3(signature = (position, begin=0, end=None))]
    fn records(&self, position: Unsigned, begin: u32, end: Option<u32>) -> PyResult<BatchRecords> {
        let end = self.clip(position, begin, end)?.end;
        Ok(BatchRecords {
            bytes: Arc::clone(&self.bytes),
            position: position.0,
            next: begin.min(end),
            end,
            ready: Vec::new(),
        })
    }

    /// Its records `begin..end` as Arrow data.
    #[pyo3(signature = (position, begin=0, end=None, columns=None))]
    fn arrow(
        &self,
        py: Python<'_>,
        position: Unsigned,
        begin: u32,
        end: Option<u32>,
        columns: Option<Vec<String>>,
    ) -> PyResult<ArrowBatch> {
        let clip = self.clip(position, begin, end)?;
        let projection = projection(columns.as_deref())?;
        let owner: Arc<dyn Owner> = Arc::new(Held(Arc::clone(&self.bytes)));
        let range = 0..self.bytes.len();
        let batch = detach(py, || {
            export_batch(
                &owner,
                range,
                position.0,
                clip,
                &projection,
                Checks::Verified,
            )
        });
        Ok(ArrowBatch::new(batch.map_err(to_py)?))
    }
}

impl Batch {
    fn clip(&self, position: Unsigned, begin: u32, end: Option<u32>) -> PyResult<Range<u32>> {
        if position.0.checked_add(self.count.into()).is_none() {
            let reason = "positions end below 2**64";
            return Err(to_py(Error::InvalidArgument(reason.into())));
        }
        let end = end.unwrap_or(self.count).min(self.count);
        Ok(begin.min(end)..end)
    }
}

/// Iterates over the records of a batch.
#[pyclass(module = "braidlog._native")]
pub struct BatchRecords {
    bytes: Arc<Vec<u8>>,
    position: u64,
    next: u32,
    end: u32,
    ready: Vec<Py<Record>>,
}

#[pymethods]
impl BatchRecords {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Py<Record>>> {
        if self.ready.is_empty() && self.next < self.end {
            let view = BatchView::parse_verified(&self.bytes).map_err(to_py)?;
            let end = self.end.min(self.next + OBJECTS_MAX);
            for index in (self.next..end).rev() {
                if let Some(record) = view.record(index) {
                    let position = self.position + u64::from(index);
                    self.ready.push(record_object(py, position, record)?);
                }
            }
            self.next = end;
        }
        Ok(self.ready.pop())
    }
}
