//! A table that another process may be writing.

use std::path::PathBuf;
use std::sync::Arc;

use braidlog_core::table::table as core;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::definition::{self, TableTuple};
use super::snapshot::{TableSnapshot, record_of};
use super::table::{TableCache, stats_dict};
use crate::error::to_py;
use crate::exit::{detach, with_python};
use crate::gate::Reader;
use crate::log::LogView;
use crate::record::Record;

/// A table that another process may be writing; changes nothing.
#[pyclass(frozen, module = "braidlog._native")]
pub struct TableFollower {
    reader: Reader,
    inner: Arc<core::TableFollower>,
}

impl TableFollower {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&core::FollowedLog<'_>) -> braidlog_core::Result<T> + Send,
    ) -> PyResult<T> {
        self.reader.check().map_err(to_py)?;
        let reader = &self.reader;
        let call = || {
            f(&core::FollowedLog {
                view: &reader.view,
                stream: &reader.stream,
                refresh: &|| reader.refresh(),
            })
        };
        let found = detach(py, call);
        // What fails because of a close or a delete meanwhile says that.
        found.map_err(|error| to_py(self.reader.check().err().unwrap_or(error)))
    }
}

#[pymethods]
impl TableFollower {
    /// Open a table of a log, with the indexes that are built; `directory` is that of all tables.
    #[staticmethod]
    #[pyo3(signature = (log, directory, table, cache, **keywords))]
    fn open(
        py: Python<'_>,
        log: &LogView,
        directory: PathBuf,
        table: TableTuple,
        cache: &TableCache,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (definition, options) = (definition::table(table)?, definition::options(keywords)?);
        let reader = log.reader().clone();
        reader.check().map_err(to_py)?;
        let first = reader.stream.range().first;
        let (vfs, cache) = (Arc::clone(&reader.view.vfs), Arc::clone(&cache.inner));
        let open =
            || core::TableFollower::open(&vfs, &directory, &definition, options, first, &cache);
        let inner = detach(py, open).map_err(to_py)?;
        Ok(Self { reader, inner })
    }

    /// Show what has become durable since; the last position.
    fn refresh(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |log| Ok(self.inner.snapshot(log)?.position()))
    }

    /// Check that the log is the one that the table was made of, without applying anything.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |log| self.inner.check(log))
    }

    /// The newest record of a key, of what the log has.
    fn get(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<Py<Record>>> {
        record_of(key, |key| self.with(py, |log| self.inner.get(log, key)))
    }

    /// The table as of a position that the log has, or as of all that it has.
    #[pyo3(signature = (position=None))]
    fn snapshot(&self, py: Python<'_>, position: Option<u64>) -> PyResult<TableSnapshot> {
        let snapshot = self.with(py, |log| {
            let snapshot = self.inner.snapshot(log)?;
            match position {
                Some(position) => snapshot.at(position),
                None => Ok(snapshot),
            }
        })?;
        Ok(TableSnapshot::new(self.reader.clone(), snapshot))
    }

    /// Indexes that could not be opened: name, tree, reason.
    fn lost(&self) -> Vec<(String, u128, String)> {
        let lost = self.inner.lost().iter();
        lost.map(|index| (index.name.clone(), index.id, index.reason.clone()))
            .collect()
    }

    /// Compare indexes and records, reading everything: (records, index entries). `progress` is called with how many
    /// were read so far.
    #[pyo3(signature = (progress=None))]
    fn verify(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<(u64, u64)> {
        let mut telling = Telling::new(progress);
        let verified = self.with(py, |log| {
            self.inner.verify(log, &mut |read| telling.tell(read))
        });
        telling.result()?;
        let verified = verified?;
        Ok((verified.records, verified.entries))
    }

    /// What it held when it was last looked at.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.reader.check().map_err(to_py)?;
        stats_dict(py, &detach(py, || self.inner.stats()))
    }
}

/// Calls Python with how far something is, until that raises.
pub struct Telling {
    progress: Option<Py<PyAny>>,
    raised: Option<PyErr>,
}

impl Telling {
    pub fn new(progress: Option<Py<PyAny>>) -> Self {
        Self {
            progress,
            raised: None,
        }
    }

    /// Whether to go on.
    pub fn tell(&mut self, read: u64) -> bool {
        let told = Python::attach(|py| {
            py.check_signals()?;
            match &self.progress {
                Some(progress) => with_python(py, || progress.call1(py, (read,))).map(|_| ()),
                None => Ok(()),
            }
        });
        self.raised = told.err();
        self.raised.is_none()
    }

    pub fn result(self) -> PyResult<()> {
        self.raised.map_or(Ok(()), Err)
    }
}
