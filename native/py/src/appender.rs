//! Appending one record at a time: the base class of a log, so that a call costs no Python frame.

#![allow(
    clippy::doc_markdown,
    reason = "what documents a method is its Python docstring"
)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use braidlog_core::wal::{ProducerId, Sequenced};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::append::sequenced;
use crate::exit::with_python;
use crate::number::{Micros, Unsigned};
use crate::pending::Pending;
use crate::store::Store;

/// Appends single records to one stream of a store.
///
/// A subclass says which with ``_appends_to()``, and starts the sync thread of
/// `submit` with ``_start_syncer()``. Each is called once. ``_told(error)`` returns an
/// error as the caller shall see it.
#[pyclass(name = "Log", subclass, frozen, module = "braidlog._native")]
#[derive(Default)]
pub struct Appender {
    target: OnceLock<(Py<Store>, u32)>,
    syncing: AtomicBool,
}

fn target<'a>(slf: &'a Bound<'_, Appender>) -> PyResult<&'a (Py<Store>, u32)> {
    let known = &slf.get().target;
    if let Some(found) = known.get() {
        return Ok(found);
    }
    let found = with_python(slf.py(), || slf.call_method0("_appends_to"))?.extract()?;
    Ok(known.get_or_init(|| found))
}

/// The error in the words of the subclass, which knows the name of the log.
fn told(slf: &Bound<'_, Appender>, error: PyErr) -> PyErr {
    // A thread that calls again and again runs this while the interpreter ends.
    let answer = with_python(slf.py(), || {
        slf.call_method1("_told", (error.value(slf.py()),))
    });
    match answer {
        Ok(told) => PyErr::from_value(told),
        Err(_) => error,
    }
}

/// A `braidlog.Producer` and the sequence that goes with it.
fn identity(
    producer: Option<&Bound<'_, PyAny>>,
    sequence: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Sequenced>> {
    let sequence = Unsigned::optional(sequence, "sequence")?;
    let Some(producer) = producer else {
        return sequenced(None, sequence);
    };
    let class = producer
        .py()
        .import("braidlog.types")?
        .getattr("Producer")?;
    if !producer.is_instance(&class)? {
        let text = format!(
            "producer must be a braidlog.Producer, not {}",
            crate::append::type_name(producer)
        );
        return Err(PyTypeError::new_err(text));
    }
    let id = ProducerId {
        id: producer.getattr("id")?.extract()?,
        epoch: producer.getattr("epoch")?.extract()?,
    };
    sequenced(Some((id.id, id.epoch)), sequence)
}

#[pymethods]
impl Appender {
    #[new]
    #[pyo3(signature = (*_arguments, **_keywords))]
    fn new(_arguments: &Bound<'_, PyTuple>, _keywords: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    /// Append one record and return its position once it is durable.
    ///
    /// Concurrent appends share one sync. With ``producer`` and ``sequence`` a repeat
    /// returns the original position. A record without timestamp gets the time of the
    /// call, in microseconds.
    ///
    /// Raises:
    ///     LogFullError: `wal_bytes_max` is reached; trim, then retry.
    ///     TooLargeError: the record exceeds 16 MiB or a quarter of a segment.
    ///     SequenceGapError: ``sequence`` is not the next one.
    ///     FencedError: a newer epoch of the producer is in charge.
    ///     StoreFailedError: a write or sync failed; whether the record survives shows
    ///         when the directory is opened again.
    ///     ReadOnlyError: the directory was opened read-only.
    #[pyo3(signature = (value, *, key=None, timestamp=None, headers=None, producer=None, sequence=None))]
    fn append(
        slf: &Bound<'_, Self>,
        value: &Bound<'_, PyAny>,
        key: Option<&Bound<'_, PyAny>>,
        timestamp: Option<Micros>,
        headers: Option<&Bound<'_, PyAny>>,
        producer: Option<&Bound<'_, PyAny>>,
        sequence: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let (store, stream) = target(slf)?;
        let producer = identity(producer, sequence)?;
        let store = store.get();
        store
            .append(slf.py(), *stream, value, key, timestamp, headers, producer)
            .map_err(|error| told(slf, error))
    }

    /// Append one record without waiting; its position is known at once.
    ///
    /// The record is durable when ``result()`` returns. Records become durable in the
    /// order of positions. Waits only when too many bytes are on their way. Raises what
    /// `append` raises, durability errors from ``result()``.
    #[pyo3(signature = (value, *, key=None, timestamp=None, headers=None, producer=None, sequence=None))]
    fn submit(
        slf: &Bound<'_, Self>,
        value: &Bound<'_, PyAny>,
        key: Option<&Bound<'_, PyAny>>,
        timestamp: Option<Micros>,
        headers: Option<&Bound<'_, PyAny>>,
        producer: Option<&Bound<'_, PyAny>>,
        sequence: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Pending> {
        let (store, stream) = target(slf)?;
        let syncing = &slf.get().syncing;
        if !syncing.load(Ordering::Acquire) {
            with_python(slf.py(), || slf.call_method0("_start_syncer"))?;
            syncing.store(true, Ordering::Release);
        }
        let producer = identity(producer, sequence)?;
        let store = store.get();
        store
            .submit(slf.py(), *stream, value, key, timestamp, headers, producer)
            .map_err(|error| told(slf, error))
    }
}
