//! A table that a node of a cluster keeps.

use std::path::PathBuf;
use std::sync::Arc;

use braidlog_core::Error;
use braidlog_core::table::entry::Direction;
use braidlog_core::table::run::RunCache;
use braidlog_core::table::table as core;
use braidlog_core::vfs::{RealVfs, Vfs};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::definition::{self, IndexTuple, TableTuple};
use super::table::{TableCache, stats_dict};
use crate::append::with_bytes;
use crate::disk::take_disk;
use crate::error::to_py;
use crate::exit::{detach, with_python};

/// Batch, position of the first of its records, how many of the batch are before it, how many they are.
type Span<'py> = (Bound<'py, PyAny>, u64, u32, u32);

/// Position, batch, positions, which of the keys were found, how many were looked up.
type LookedUp<'py> = (u64, Bound<'py, PyBytes>, Vec<u64>, Vec<u64>, u64);

/// Position, batch, position of each row.
type Scanned<'py> = (
    u64,
    Bound<'py, PyBytes>,
    Vec<u64>,
    Option<Bound<'py, PyBytes>>,
);

/// Tells Python how much was read; a false result, or an error, stops it.
fn telling<'a>(
    progress: &'a Py<PyAny>,
    raised: &'a mut Option<PyErr>,
) -> impl FnMut(u64) -> bool + 'a {
    move |read| {
        Python::attach(|py| {
            let result = with_python(py, || progress.call1(py, (read,)));
            let goes_on = result.and_then(|result| result.is_truthy(py));
            goes_on.unwrap_or_else(|error| {
                *raised = Some(error);
                false
            })
        })
    }
}

/// Position, first key and bytes of each part, bytes of the whole tree.
type Divided<'py> = (u64, Vec<(Bound<'py, PyBytes>, u64)>, u64);

/// A table of a cluster, open.
#[pyclass(frozen, module = "braidlog._native")]
pub struct HostedTable {
    inner: core::HostedTable,
}

impl HostedTable {
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&core::HostedTable) -> braidlog_core::Result<T> + Send,
    ) -> PyResult<T> {
        detach(py, || f(&self.inner)).map_err(to_py)
    }
}

#[pymethods]
impl HostedTable {
    /// Open a table, or make it; `first` is the first position of the log.
    #[staticmethod]
    #[pyo3(signature = (directory, table, first, cache, **keywords))]
    fn open(
        py: Python<'_>,
        directory: PathBuf,
        table: TableTuple,
        first: u64,
        cache: &TableCache,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let vfs: Arc<dyn Vfs> = take_disk(keywords)?.unwrap_or_else(|| Arc::new(RealVfs));
        let (definition, options) = (definition::table(table)?, definition::options(keywords)?);
        let cache: Arc<RunCache> = cache.shared();
        let open = || {
            vfs.create_dir_all(&directory)?;
            core::HostedTable::open(&vfs, &directory, &definition, &options, first, &cache)
        };
        let inner = detach(py, open).map_err(to_py)?;
        Ok(Self { inner })
    }

    #[getter]
    fn applied(&self) -> u64 {
        self.inner.applied()
    }

    /// Last position of which something is here.
    #[getter]
    fn reached(&self) -> u64 {
        self.inner.reached()
    }

    /// Position of the record that has to be given next, or of an earlier one.
    #[getter]
    fn wanted(&self) -> u64 {
        self.inner.wanted()
    }

    #[getter]
    fn flushed(&self) -> u64 {
        self.inner.flushed()
    }

    #[getter]
    fn floor(&self) -> u64 {
        self.inner.floor()
    }

    #[getter]
    fn is_full(&self) -> bool {
        self.inner.is_full()
    }

    #[getter]
    fn memory_bytes(&self) -> usize {
        self.inner.memory_bytes()
    }

    /// Apply what the log has next, all of it or nothing.
    fn apply(&self, py: Python<'_>, spans: Vec<Span<'_>>) -> PyResult<()> {
        let mut owned = Vec::with_capacity(spans.len());
        for (batch, first, skip, records) in spans {
            let bytes = with_bytes(&batch, "batch", <[u8]>::to_vec)?;
            owned.push((bytes, first, skip, records));
        }
        self.run(py, |table| {
            let spans = owned.iter().map(|(batch, first, skip, records)| {
                let (first, skip, records) = (*first, *skip, *records);
                core::LogSpan {
                    batch,
                    first,
                    skip,
                    records,
                }
            });
            table.apply(&spans.collect::<Vec<_>>())
        })
    }

    /// (Position, batch, positions, which of the keys were found, how many were looked up).
    fn get_rows<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Vec<u8>>,
        at: u64,
        bytes_max: usize,
    ) -> PyResult<LookedUp<'py>> {
        let found = self.run(py, |table| {
            let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
            table.get_rows(&keys, at, bytes_max)
        })?;
        let batch = PyBytes::new(py, &found.batch);
        Ok((
            found.position,
            batch,
            found.positions,
            found.found,
            found.looked,
        ))
    }

    /// (Position, batch, positions, where it goes on).
    #[pyo3(signature = (tree, begin, end, reverse, count_max, bytes_max, at))]
    fn scan_rows<'py>(
        &self,
        py: Python<'py>,
        tree: Option<u128>,
        begin: Vec<u8>,
        end: Option<Vec<u8>>,
        reverse: bool,
        count_max: usize,
        bytes_max: usize,
        at: u64,
    ) -> PyResult<Scanned<'py>> {
        let direction = if reverse {
            Direction::Reverse
        } else {
            Direction::Forward
        };
        let found = self.run(py, |table| {
            let bounds = core::Bounds {
                tree,
                begin: &begin,
                end: end.as_deref(),
                direction,
                count_max,
                bytes_max,
            };
            table.scan_rows(&bounds, at)
        })?;
        let next = found.next.map(|next| PyBytes::new(py, &next));
        let batch = PyBytes::new(py, &found.batch);
        Ok((found.position, batch, found.positions, next))
    }

    /// Where to divide a scan: (position, first key and bytes of each part, bytes of the whole tree).
    #[pyo3(signature = (tree, begin, end, count_max, bytes_max, at))]
    fn divide<'py>(
        &self,
        py: Python<'py>,
        tree: Option<u128>,
        begin: Vec<u8>,
        end: Option<Vec<u8>>,
        count_max: usize,
        bytes_max: usize,
        at: u64,
    ) -> PyResult<Divided<'py>> {
        let divided = self.run(py, |table| {
            let bounds = core::Bounds {
                tree,
                begin: &begin,
                end: end.as_deref(),
                direction: Direction::Forward,
                count_max,
                bytes_max,
            };
            table.divide(&bounds, at)
        })?;
        let parts = divided.parts.iter();
        let parts = parts.map(|(begin, bytes)| (PyBytes::new(py, begin), *bytes));
        Ok((divided.position, parts.collect(), divided.whole))
    }

    /// Keep what a position sees.
    fn lease(&self, position: u64) -> PyResult<TableLease> {
        let lease = self.inner.lease(position).map_err(to_py)?;
        Ok(TableLease {
            inner: Mutex::new(Some(lease)),
        })
    }

    fn flush(&self, py: Python<'_>) -> PyResult<bool> {
        self.run(py, core::HostedTable::flush)
    }

    fn merge(&self, py: Python<'_>) -> PyResult<bool> {
        self.run(py, core::HostedTable::merge)
    }

    /// Whether an index is built; `None` if it is not here.
    fn is_built(&self, tree: u128) -> Option<bool> {
        self.inner.is_built(tree)
    }

    /// Begin an index, if it is not here.
    fn attach(&self, py: Python<'_>, index: IndexTuple) -> PyResult<()> {
        let index = definition::index(index)?;
        self.run(py, |table| table.attach(&index))
    }

    /// Build an index; `progress` is called with the number of records read, and stops it by a false result.
    fn build(&self, py: Python<'_>, tree: u128, progress: Py<PyAny>) -> PyResult<()> {
        let mut raised = None;
        let built = self.run(py, |table| {
            table.build(tree, &mut telling(&progress, &mut raised))
        });
        match raised {
            Some(error) => Err(error),
            None => built,
        }
    }

    /// Give an index up; nothing if it is not here.
    fn detach(&self, py: Python<'_>, tree: u128) -> PyResult<()> {
        self.run(py, |table| table.detach(tree))
    }

    fn pin(&self, py: Python<'_>) -> PyResult<PinnedTable> {
        let pinned = self.run(py, core::HostedTable::pin)?;
        Ok(PinnedTable {
            flushed: pinned.flushed,
            inner: Mutex::new(Some(Arc::new(pinned))),
        })
    }

    /// Compare indexes and records, reading everything: (records, index entries). `progress` is called with how many
    /// were read so far, and stops it by a false result.
    fn verify(&self, py: Python<'_>, progress: Py<PyAny>) -> PyResult<(u64, u64)> {
        let mut raised = None;
        let verified = self.run(py, |table| {
            table.verify(&mut telling(&progress, &mut raised))
        });
        if let Some(error) = raised {
            return Err(error);
        }
        let verified = verified?;
        Ok((verified.records, verified.entries))
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.run(py, |table| Ok(table.stats()))?;
        stats_dict(py, &stats)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, core::HostedTable::close)
    }
}

/// Keeps what a position sees until it is released.
#[pyclass(frozen, module = "braidlog._native")]
pub struct TableLease {
    inner: Mutex<Option<core::TableLease>>,
}

#[pymethods]
impl TableLease {
    fn release(&self) {
        self.inner.lock().take();
    }
}

/// The files of one version of a table; they stay until it is released.
#[pyclass(frozen, module = "braidlog._native")]
pub struct PinnedTable {
    #[pyo3(get)]
    flushed: u64,
    inner: Mutex<Option<Arc<core::PinnedTable>>>,
}

impl PinnedTable {
    fn held(&self) -> PyResult<Arc<core::PinnedTable>> {
        let held = self.inner.lock().clone();
        held.ok_or_else(|| to_py(Error::Closed))
    }
}

#[pymethods]
impl PinnedTable {
    /// Path below the table's directory and bytes of each file.
    fn files(&self) -> PyResult<Vec<(String, u64)>> {
        let held = self.held()?;
        let files = held.files.iter();
        Ok(files.map(|file| (file.path.clone(), file.len())).collect())
    }

    /// Read a file that is a run, and check all of it.
    fn verify(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        let held = self.held()?;
        detach(py, || held.verify(path)).map_err(to_py)
    }

    /// A part of a file; shorter at its end.
    fn read<'py>(
        &self,
        py: Python<'py>,
        path: &str,
        offset: u64,
        size: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let held = self.held()?;
        let part = detach(py, || held.read(path, offset, size)).map_err(to_py)?;
        Ok(PyBytes::new(py, &part))
    }

    fn release(&self) {
        self.inner.lock().take();
    }
}
