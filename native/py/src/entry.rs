//! Catalog entries as Python rows.

use std::collections::BTreeMap;

use braidlog_core::wal::{Cursor, Log, NewLog, State};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

/// One log of a state, copied out so that no lock is held while Python objects are made.
pub struct Entry {
    log: NewLog,
    stream: u32,
    epoch: u64,
    cursors: BTreeMap<String, Cursor>,
}

impl Entry {
    /// The log of that name.
    pub fn of(state: &State, name: &str) -> Option<Self> {
        state.log_named(name).and_then(|log| Self::copy(state, log))
    }

    /// All logs.
    pub fn all(state: &State) -> Vec<Self> {
        state
            .logs
            .values()
            .filter_map(|log| Self::copy(state, log))
            .collect()
    }

    fn copy(state: &State, log: &Log) -> Option<Self> {
        let stream = state.streams.get(&log.stream)?;
        let (epoch, cursors) = (stream.epoch, stream.cursors.clone());
        Some(Self {
            log: log.log.clone(),
            stream: log.stream,
            epoch,
            cursors,
        })
    }

    /// (id, stream, created, options, epoch, {cursor: (position, pin, touched, lease)}).
    pub fn into_row(self, py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        let cursors = PyDict::new(py);
        for (name, cursor) in &self.cursors {
            cursors.set_item(
                name,
                (cursor.position, cursor.pin, cursor.touched, cursor.lease),
            )?;
        }
        let options = PyBytes::new(py, &self.log.options);
        (
            self.log.id,
            self.stream,
            self.log.created,
            options,
            self.epoch,
            cursors,
        )
            .into_pyobject(py)
    }
}

/// All logs of a state: {name: row}, see [`Entry::into_row`].
pub fn entries_dict(py: Python<'_>, entries: Vec<Entry>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for entry in entries {
        dict.set_item(entry.log.name.clone(), entry.into_row(py)?)?;
    }
    Ok(dict)
}
