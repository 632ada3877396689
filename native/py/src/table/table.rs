//! A table that is open for writing.

use std::path::PathBuf;
use std::sync::Arc;

use braidlog_core::table::run::RunCache;
use braidlog_core::table::table as core;
use braidlog_core::table::tree::TreeStats;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::definition::{self, IndexTuple, TableTuple};
use super::follower::Telling;
use super::snapshot::{TableSnapshot, record_of};
use crate::error::to_py;
use crate::exit::{detach, with_python};
use crate::gate::Reader;
use crate::log::LogView;
use crate::record::Record;

/// Pages and open files that all tables of a directory share.
#[pyclass(frozen, module = "braidlog._native")]
pub struct TableCache {
    pub(super) inner: Arc<RunCache>,
}

#[pymethods]
impl TableCache {
    #[new]
    #[pyo3(signature = (bytes_max=None, files_max=None))]
    fn new(bytes_max: Option<usize>, files_max: Option<usize>) -> Self {
        let inner = match (bytes_max, files_max) {
            (None, None) => RunCache::default(),
            (bytes, files) => RunCache::new(
                bytes.unwrap_or(braidlog_core::limits::TABLE_CACHE_BYTES_DEFAULT),
                files.unwrap_or(braidlog_core::limits::RUN_FILES_OPEN_MAX),
            ),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Bytes of pages that it holds.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.inner.bytes()
    }
}

impl TableCache {
    /// The cache, for another one who opens tables.
    pub fn shared(&self) -> Arc<RunCache> {
        Arc::clone(&self.inner)
    }
}

/// Make the files of an empty table, before the catalog says that it exists.
#[pyfunction]
#[pyo3(signature = (log, directory, table, cache, **keywords))]
pub fn create_table_files(
    py: Python<'_>,
    log: &LogView,
    directory: PathBuf,
    table: TableTuple,
    cache: &TableCache,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let (definition, options) = (definition::table(table)?, definition::options(keywords)?);
    let vfs = Arc::clone(&log.reader().view.vfs);
    let create = || {
        vfs.create_dir_all(&directory)?;
        core::Table::create(&vfs, &directory, &definition, &options, &cache.inner)
    };
    detach(py, create).map_err(to_py)
}

/// A table, open for writing.
#[pyclass(frozen, module = "braidlog._native")]
pub struct Table {
    reader: Reader,
    inner: Arc<core::Table>,
    cache: Arc<RunCache>,
}

fn tree_dict<'py>(py: Python<'py>, stats: &TreeStats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in [
        ("applied", stats.applied),
        ("flushed", stats.flushed),
        ("floor", stats.floor),
        ("memory_bytes", stats.memory_bytes),
        ("runs", stats.runs),
        ("run_bytes", stats.run_bytes),
        ("run_entries", stats.run_entries),
        ("ranges", stats.ranges),
        ("slices", stats.slices),
        ("slices_max", stats.slices_max),
        ("obsolete", stats.obsolete),
    ] {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

/// How many, and the first of them with position and reason.
fn refusals(refusals: &core::Refusals) -> (u64, Vec<(u64, String)>) {
    (refusals.count, refusals.first.clone())
}

impl Table {
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&core::Table) -> braidlog_core::Result<T> + Send,
    ) -> PyResult<T> {
        self.reader.gate.check_forked().map_err(to_py)?;
        detach(py, || f(&self.inner)).map_err(to_py)
    }

    /// Apply what is durable now, or wait for the thread that does.
    fn reach(&self) -> braidlog_core::Result<()> {
        let end = self.reader.stream.range().end;
        if self.inner.position() + 1 < end {
            self.inner
                .catch_up(&self.reader.view, &self.reader.stream, end)?;
        }
        Ok(())
    }
}

#[pymethods]
impl Table {
    /// Open a table of a log; `directory` is that of all tables.
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
        let open = || {
            let table = core::Table::open(&vfs, &directory, &definition, options, first, &cache)?;
            table.check_origin(&reader.view, &reader.stream)?;
            Ok(table)
        };
        let inner = detach(py, open).map_err(to_py)?;
        Ok(Self {
            reader,
            inner,
            cache,
        })
    }

    #[getter]
    fn position(&self) -> u64 {
        self.inner.position()
    }

    #[getter]
    fn floor(&self) -> u64 {
        self.inner.floor()
    }

    /// The log is not needed up to this position.
    #[getter]
    fn retained(&self) -> u64 {
        self.inner.retained()
    }

    #[getter]
    fn memory_bytes(&self) -> usize {
        self.inner.memory_bytes()
    }

    /// Apply a piece of what the log has; waits for another thread that does. (position, whether memory is full).
    #[pyo3(signature = (end=None))]
    fn follow(&self, py: Python<'_>, end: Option<u64>) -> PyResult<(u64, bool)> {
        let end = end.unwrap_or(u64::MAX);
        let followed = self.run(py, |table| {
            table.follow(&self.reader.view, &self.reader.stream, end)
        });
        followed.map(|followed| (followed.position, followed.is_full))
    }

    /// Apply everything that the log has below `end`, flushing as memory needs it.
    #[pyo3(signature = (end=None))]
    fn catch_up(&self, py: Python<'_>, end: Option<u64>) -> PyResult<u64> {
        let end = end.unwrap_or(u64::MAX);
        self.run(py, |table| {
            table.catch_up(&self.reader.view, &self.reader.stream, end)
        })
    }

    /// The newest record of a key, of what the log has.
    fn get(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<Py<Record>>> {
        self.reader.check().map_err(to_py)?;
        record_of(key, |key| {
            self.run(py, |table| {
                self.reach()?;
                table.get(key)
            })
        })
    }

    /// The table as of a position that is applied, or as of what the log has.
    #[pyo3(signature = (position=None))]
    fn snapshot(&self, py: Python<'_>, position: Option<u64>) -> PyResult<TableSnapshot> {
        self.reader.check().map_err(to_py)?;
        let snapshot = self.run(py, |table| {
            self.reach()?;
            match position {
                Some(position) => table.snapshot_at(position),
                None => table.snapshot(),
            }
        })?;
        Ok(TableSnapshot::new(self.reader.clone(), snapshot))
    }

    fn flush(&self, py: Python<'_>) -> PyResult<bool> {
        self.run(py, core::Table::flush)
    }

    fn merge(&self, py: Python<'_>) -> PyResult<bool> {
        self.run(py, core::Table::merge)
    }

    fn compact(&self, py: Python<'_>) -> PyResult<bool> {
        self.run(py, core::Table::compact)
    }

    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, core::Table::settle)
    }

    fn abandon(&self) {
        self.inner.abandon();
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, core::Table::close)
    }

    /// Make the files of an index that is to be built; `table` is the table without it.
    /// Returns its base.
    fn begin_index(&self, py: Python<'_>, table: TableTuple, index: IndexTuple) -> PyResult<u64> {
        let (table, index) = (definition::table(table)?, definition::index(index)?);
        self.run(py, |inner| {
            let begun = inner.begin_index(&table, &index, &self.cache)?;
            Ok(begun.base())
        })
    }

    /// Indexes that could not be opened: name, tree, reason.
    fn lost(&self) -> Vec<(String, u128, String)> {
        let lost = self.inner.lost().iter();
        lost.map(|index| (index.name.clone(), index.id, index.reason.clone()))
            .collect()
    }

    /// All trees that need their files.
    fn trees(&self) -> Vec<u128> {
        self.inner.tree_ids()
    }

    /// Trees of indexes that were dropped and that somebody still reads.
    fn dropped_and_read(&self) -> Vec<u128> {
        self.inner.dropped_and_read()
    }

    /// Whether somebody reads it, or goes on after it was dropped.
    #[getter]
    fn is_read(&self) -> bool {
        self.inner.is_read()
    }

    /// Build an index; `progress` is called with the number of records read, and stops it by a false result.
    #[pyo3(signature = (tree, progress=None))]
    fn build_index(&self, py: Python<'_>, tree: u128, progress: Option<Py<PyAny>>) -> PyResult<()> {
        let mut raised = None;
        let mut tell = |read: u64| {
            Python::attach(|py| {
                if let Err(error) = py.check_signals() {
                    raised = Some(error);
                    return false;
                }
                let Some(progress) = &progress else {
                    return true;
                };
                let result = with_python(py, || progress.call1(py, (read,)));
                let goes_on = result.and_then(|result| result.is_truthy(py));
                goes_on.unwrap_or_else(|error| {
                    raised = Some(error);
                    false
                })
            })
        };
        let built = self.run(py, |table| {
            table.build_index(tree, &self.reader.view, &self.reader.stream, &mut tell)
        });
        match raised {
            Some(error) => Err(error),
            None => built,
        }
    }

    fn drop_index(&self, tree: u128) -> PyResult<()> {
        self.inner.drop_index(tree).map_err(to_py)
    }

    /// Names of the indexes that can be read, and of those that are being built.
    fn indexes(&self) -> (Vec<String>, Vec<String>) {
        let names = |indexes: &[Arc<core::Index>]| {
            indexes
                .iter()
                .map(|index| index.name().to_owned())
                .collect()
        };
        (names(&self.inner.indexes()), names(&self.inner.building()))
    }

    /// Compare indexes and records, reading everything: (records, index entries). `progress` is called with how many
    /// were read so far.
    #[pyo3(signature = (progress=None))]
    fn verify(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<(u64, u64)> {
        let mut telling = Telling::new(progress);
        let verified = self.run(py, |table| {
            table.verify_while(&mut |read| telling.tell(read))
        });
        telling.result()?;
        let verified = verified?;
        Ok((verified.records, verified.entries))
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats_dict(py, &self.run(py, |table| Ok(table.stats()))?)
    }
}

/// What a table holds.
pub fn stats_dict<'py>(py: Python<'py>, stats: &core::TableStats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("position", stats.position)?;
    dict.set_item("floor", stats.floor)?;
    dict.set_item("retained", stats.retained)?;
    dict.set_item("records", stats.counters.records)?;
    dict.set_item("without_key", refusals(&stats.counters.without_key))?;
    dict.set_item("long_keys", refusals(&stats.counters.long_keys))?;
    dict.set_item("lost", refusals(&stats.counters.lost))?;
    dict.set_item("primary", tree_dict(py, &stats.primary)?)?;
    let indexes = PyList::empty(py);
    for (name, tree, is_built, refused) in &stats.indexes {
        let index = tree_dict(py, tree)?;
        index.set_item("name", name)?;
        index.set_item("built", is_built)?;
        index.set_item("refused", refusals(refused))?;
        indexes.append(index)?;
    }
    dict.set_item("indexes", indexes)?;
    Ok(dict)
}
