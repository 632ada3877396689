//! The reader of a directory that another process may be writing.

use std::path::PathBuf;
use std::sync::Arc;

use braidlog_core::Error;
use braidlog_core::manifest::Identity;
use braidlog_core::table::table::{Table, counters_of};
use braidlog_core::table::tree::{RunCopy, TreeImage};
use braidlog_core::vfs::{RealVfs, Vfs};
use braidlog_core::wal;
use braidlog_core::wal::backup::TABLES;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::backup::{ImageRow, cut_dict, image_row};
use crate::ddl::TableRow;
use crate::disk::take_disk;
use crate::entry::{Entry, entries_dict};
use crate::error::to_py;
use crate::exit::detach;
use crate::gate::{Following, Gate, Reader};
use crate::held::Held;
use crate::log::LogView;
use crate::number::Unsigned;
use crate::options::options;
use crate::replicas::{Batch, Run, Standing, batches, runs, standing_of};

/// A read-only view of a node directory.
#[pyclass(frozen, module = "braidlog._native")]
pub struct Follower {
    follower: Arc<Following>,
    gate: Arc<Gate>,
}

/// A run of a table that is copied; its file stays readable when the table has merged it.
#[pyclass(frozen, module = "braidlog._native")]
pub struct CopiedRun {
    inner: RunCopy,
}

#[pymethods]
impl CopiedRun {
    /// Length of the file.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.inner.bytes()
    }

    /// Bytes from an offset on, at most so many; none at the end.
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: Unsigned,
        bytes_max: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let read = detach(py, || self.inner.read(offset.0, bytes_max));
        Ok(PyBytes::new(py, &read.map_err(to_py)?))
    }
}

impl Follower {
    /// Where the files of tables are, and whose they are.
    fn tables_place(&self, py: Python<'_>) -> PyResult<(Arc<dyn Vfs>, PathBuf, u128)> {
        let look = |follower: &mut wal::Follower| {
            let view = follower.view();
            let tables = view.dir.join(TABLES);
            Ok((Arc::clone(&view.vfs), tables, follower.node()))
        };
        detach(py, || self.follower.with(look)).map_err(to_py)
    }

    fn tree(
        &self,
        py: Python<'_>,
        table: u128,
        tree: u128,
    ) -> PyResult<(Arc<dyn Vfs>, PathBuf, u128)> {
        let (vfs, tables, node) = self.tables_place(py)?;
        let dir = Table::dir_in(&tables, table).join(format!("{tree:032x}"));
        Ok((vfs, dir, node))
    }
}

#[pymethods]
impl Follower {
    #[staticmethod]
    #[pyo3(signature = (path, *, locked=false, **keywords))]
    fn open(
        py: Python<'_>,
        path: std::path::PathBuf,
        locked: bool,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let vfs = take_disk(keywords)?.unwrap_or_else(|| Arc::new(RealVfs));
        let options = options(keywords)?;
        let open = if locked {
            wal::Follower::open_locked
        } else {
            wal::Follower::open
        };
        let opened = detach(py, || open(vfs, &path, &options));
        Ok(Self {
            follower: Arc::new(Following::new(opened.map_err(to_py)?)),
            gate: Arc::default(),
        })
    }

    /// Show what has become durable since; true if anything changed.
    fn refresh(&self, py: Python<'_>) -> PyResult<bool> {
        detach(py, || self.follower.with(wal::Follower::refresh)).map_err(to_py)
    }

    /// Identity of the node.
    fn node(&self, py: Python<'_>) -> PyResult<u128> {
        let node = |follower: &mut wal::Follower| Ok(follower.node());
        detach(py, || self.follower.with(node)).map_err(to_py)
    }

    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = |follower: &mut wal::Follower| Ok(follower.with_state(Entry::all));
        let entries = detach(py, || self.follower.with(all)).map_err(to_py)?;
        entries_dict(py, entries)
    }

    /// All tables of the catalog.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<TableRow>> {
        let all = |follower: &mut wal::Follower| Ok(follower.with_state(TableRow::all));
        detach(py, || self.follower.with(all)).map_err(to_py)
    }

    /// One table of the catalog, or `None`.
    fn table_row(&self, py: Python<'_>, name: &str) -> PyResult<Option<TableRow>> {
        let one = |follower: &mut wal::Follower| {
            Ok(follower.with_state(|state| TableRow::of(state, name)))
        };
        detach(py, || self.follower.with(one)).map_err(to_py)
    }

    /// One log of the state, or `None`.
    fn entry<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let one =
            |follower: &mut wal::Follower| Ok(follower.with_state(|state| Entry::of(state, name)));
        let found = detach(py, || self.follower.with(one)).map_err(to_py)?;
        found.map(|entry| entry.into_row(py)).transpose()
    }

    #[pyo3(signature = (stream, log=None))]
    fn view(&self, py: Python<'_>, stream: u32, log: Option<&str>) -> PyResult<LogView> {
        let view = |follower: &mut wal::Follower| Ok(Arc::clone(follower.view()));
        let view = detach(py, || self.follower.with(view)).map_err(to_py)?;
        let stream = view.stream(stream).map_err(to_py)?;
        Ok(LogView::new(Reader {
            view,
            stream,
            log: log.map(Arc::from),
            gate: Arc::clone(&self.gate),
            store: None,
            follower: Some(Arc::clone(&self.follower)),
        }))
    }

    /// Whole batches that hold any of `begin..end`, committed or not; see `Replicas.read`.
    fn read<'py>(
        &self,
        py: Python<'py>,
        stream: u32,
        begin: Unsigned,
        end: Unsigned,
        bytes_max: usize,
    ) -> PyResult<Vec<Batch<'py>>> {
        let read =
            |follower: &mut wal::Follower| follower.read_encoded(stream, begin.0, end.0, bytes_max);
        let found = detach(py, || self.follower.with(read)).map_err(to_py)?;
        Ok(batches(py, &found))
    }

    /// Everything the directory knows beside its records, as of the last refresh.
    fn cut<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let look = |follower: &mut wal::Follower| Ok(follower.cut());
        let cut = detach(py, || self.follower.with(look)).map_err(to_py)?;
        cut_dict(py, cut)
    }

    /// Positions `begin..end` of an embedded log as entries of a part, about `bytes_max` bytes: where to go on, and
    /// the entries.
    fn copy<'py>(
        &self,
        py: Python<'py>,
        stream: u32,
        begin: Unsigned,
        end: Unsigned,
        bytes_max: usize,
    ) -> PyResult<(u64, Bound<'py, PyBytes>)> {
        let mut out = Vec::new();
        let copy = |follower: &mut wal::Follower| {
            follower.copy_part(stream, begin.0, end.0, bytes_max, &mut out)
        };
        let next = detach(py, || self.follower.with(copy)).map_err(to_py)?;
        Ok((next, PyBytes::new(py, &out)))
    }

    /// What a tree of a table consists of now: the image, then what it says.
    fn tree_image<'py>(
        &self,
        py: Python<'py>,
        table: u128,
        tree: u128,
    ) -> PyResult<(Bound<'py, PyBytes>, ImageRow<'py>)> {
        let (vfs, dir, node) = self.tree(py, table, tree)?;
        let read = || {
            let image = TreeImage::read(&vfs, &dir, Identity { object: tree, node })?;
            let bytes = image.encode()?;
            Ok::<_, Error>((image, bytes))
        };
        let (image, bytes) = detach(py, read).map_err(to_py)?;
        Ok((PyBytes::new(py, &bytes), image_row(py, &image)))
    }

    /// A run that an image lists, verified and open for being copied.
    fn tree_run(
        &self,
        py: Python<'_>,
        table: u128,
        tree: u128,
        image: &Bound<'_, PyAny>,
        run: u64,
    ) -> PyResult<CopiedRun> {
        let (vfs, dir, _) = self.tree(py, table, tree)?;
        let image = Held::of(image, "image")?;
        let open = || {
            let image = TreeImage::decode(&dir, image.as_slice())?;
            RunCopy::open(&vfs, &dir, &image, run)
        };
        let inner = detach(py, open).map_err(to_py)?;
        Ok(CopiedRun { inner })
    }

    /// What a table of a log counted, as its file has it, and up to where; nothing if none was saved.
    fn table_counters<'py>(
        &self,
        py: Python<'py>,
        table: u128,
        stream: u32,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, u64)>> {
        let (vfs, tables, _) = self.tables_place(py)?;
        let view = |follower: &mut wal::Follower| Ok(Arc::clone(follower.view()));
        let read = || {
            let view = self.follower.with(view)?;
            let stream = view.stream(stream)?;
            counters_of(vfs.as_ref(), &tables, table, &view, &stream)
        };
        let found = detach(py, read).map_err(to_py)?;
        Ok(found.map(|(bytes, position)| (PyBytes::new(py, &bytes), position)))
    }

    /// As `Replicas.state`, as of the last refresh; all that is seen is durable.
    fn standing(&self, py: Python<'_>, stream: u32) -> PyResult<Standing> {
        let look = |follower: &mut wal::Follower| {
            let standing = |state: &wal::State| {
                let found = state.stream(stream)?;
                Ok(standing_of(found, found.next))
            };
            follower.with_state(standing)
        };
        detach(py, || self.follower.with(look)).map_err(to_py)
    }

    /// Commit runs of the LLSNs `begin..end`: (LLSN, GLSN, length).
    fn runs(
        &self,
        py: Python<'_>,
        stream: u32,
        begin: Unsigned,
        end: Unsigned,
    ) -> PyResult<Vec<Run>> {
        let look =
            |follower: &mut wal::Follower| follower.view().commit_runs(stream, begin.0, end.0);
        let found = detach(py, || self.follower.with(look)).map_err(to_py)?;
        Ok(runs(&found))
    }

    /// The committed record with the smallest GLSN not below `glsn`: (GLSN, LLSN).
    fn glsn_ceil(
        &self,
        py: Python<'_>,
        stream: u32,
        glsn: Unsigned,
    ) -> PyResult<Option<(u64, u64)>> {
        let look = |follower: &mut wal::Follower| follower.view().glsn_ceil(stream, glsn.0);
        let found = detach(py, || self.follower.with(look)).map_err(to_py)?;
        Ok(found.map(|point| (point.glsn, point.llsn)))
    }

    /// End everything that was made from this; there is no lock to release.
    fn close(&self, py: Python<'_>) {
        self.gate.close();
        detach(py, || self.follower.close());
    }
}
