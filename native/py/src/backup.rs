//! Backups: the state of a directory at one place, parts with its records, and a new directory made of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use braidlog_core::table::table::{TableRestore, bases_of};
use braidlog_core::table::tree::TreeImage;
use braidlog_core::vfs::RealVfs;
use braidlog_core::wal::backup::part::{Entries, Header, anonymous as without_producer, put};
use braidlog_core::wal::backup::{
    Cut, LogCut, NewDirectory, Restore as Restoring, TABLES, TableCut,
};
use braidlog_core::wal::{Cursor, Index, IndexState, NewIndex, NewLog, Producers, Table};
use braidlog_core::{Error, Result as CoreResult};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::disk::take_disk;
use crate::error::to_py;
use crate::exit::detach;
use crate::held::Held;
use crate::number::Unsigned;

/// Add what this file has to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Restore>()?;
    m.add_class::<HostedRestore>()?;
    m.add_function(wrap_pyfunction!(table_bases, m)?)?;
    m.add_function(wrap_pyfunction!(check_image, m)?)?;
    m.add_function(wrap_pyfunction!(check_part, m)?)?;
    m.add_function(wrap_pyfunction!(part_entries, m)?)?;
    m.add_function(wrap_pyfunction!(part_entry, m)?)?;
    m.add_function(wrap_pyfunction!(part_header, m)?)?;
    m.add_function(wrap_pyfunction!(producers_below, m)?)?;
    Ok(())
}

/// Name, position, pin, touched, lease.
type CursorRow = (String, u64, bool, i64, u64);

/// A log as Python has it: name, id, stream, created, options, first, end, producers, cursors.
type LogRow = (
    String,
    u128,
    u32,
    i64,
    Vec<u8>,
    u64,
    u64,
    Vec<u8>,
    Vec<CursorRow>,
);

fn log_of(row: LogRow) -> CoreResult<LogCut> {
    let (name, id, stream, created, options, first, end, producers, cursors) = row;
    let cursor = |(name, position, pin, touched, lease)| {
        let cursor = Cursor {
            position,
            pin,
            touched,
            lease,
        };
        (name, cursor)
    };
    Ok(LogCut {
        log: NewLog {
            id,
            explicit_commit: false,
            created,
            name,
            options,
        },
        stream,
        first,
        end,
        producers: Producers::parse(&producers)?,
        cursors: cursors.into_iter().map(cursor).collect::<BTreeMap<_, _>>(),
    })
}

fn log_row(py: Python<'_>, log: LogCut) -> PyResult<Bound<'_, PyTuple>> {
    let mut producers = Vec::with_capacity(log.producers.encoded_len());
    log.producers.encode(&mut producers);
    let cursors: Vec<CursorRow> = log
        .cursors
        .into_iter()
        .map(|(name, at)| (name, at.position, at.pin, at.touched, at.lease))
        .collect();
    let options = PyBytes::new(py, &log.log.options);
    let producers = PyBytes::new(py, &producers);
    (
        log.log.name,
        log.log.id,
        log.stream,
        log.log.created,
        options,
        log.first,
        log.end,
        producers,
        cursors,
        log.log.explicit_commit,
    )
        .into_pyobject(py)
}

/// Tree, name, field, whether it is used, position behind its base.
type IndexRow = (u128, String, Vec<u8>, bool, u64);

/// A table as Python has it: id, name, log, created, start, primary tree, options, indexes, pin.
type TableRow = (
    u128,
    String,
    u128,
    i64,
    u64,
    u128,
    Vec<u8>,
    Vec<IndexRow>,
    u64,
);

fn table_of(row: TableRow) -> TableCut {
    let (id, name, log, created, start, primary, options, indexes, pin) = row;
    let index = |(tree, name, spec, active, position): IndexRow| Index {
        index: NewIndex { tree, name, spec },
        state: if active {
            IndexState::Active(position)
        } else {
            IndexState::Building(position)
        },
    };
    let table = Table {
        id,
        name,
        log,
        created,
        start,
        primary,
        options,
        indexes: indexes.into_iter().map(index).collect(),
    };
    TableCut { table, pin }
}

/// A run that an image lists: number, length of its file, what tells it from others of the number.
type RunRow<'py> = (u64, u64, Bound<'py, PyBytes>);

/// What Python needs to know of an image: up to where it is flushed, and its runs.
pub type ImageRow<'py> = (u64, Vec<RunRow<'py>>);

/// An image as Python sees it.
pub fn image_row<'py>(py: Python<'py>, image: &TreeImage) -> ImageRow<'py> {
    let runs = image.runs().map(|listed| {
        let info = &listed.info;
        let mut identity = Vec::new();
        info.encode(&mut identity);
        (info.number, info.bytes, PyBytes::new(py, &identity))
    });
    (image.flushed(), runs.collect())
}

/// Verify an image, which is that of a tree.
#[pyfunction]
fn check_image<'py>(
    py: Python<'py>,
    image: &Bound<'_, PyAny>,
    tree: u128,
) -> PyResult<ImageRow<'py>> {
    let image = Held::of(image, "image")?;
    let path = PathBuf::from(format!("{tree:032x}"));
    let image = TreeImage::decode(&path, image.as_slice()).map_err(to_py)?;
    if image.identity().object != tree {
        let reason = format!("it is of tree {:032x}", image.identity().object);
        return Err(to_py(Error::corrupt(&path, 0, reason)));
    }
    Ok(image_row(py, &image))
}

/// A cut as Python sees it.
pub fn cut_dict(py: Python<'_>, cut: Cut) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("wal", cut.wal)?;
    dict.set_item("segment_bytes", cut.segment_bytes)?;
    dict.set_item("bound", cut.bound)?;
    dict.set_item("place", cut.place)?;
    let logs: PyResult<Vec<_>> = cut.logs.into_iter().map(|log| log_row(py, log)).collect();
    dict.set_item("logs", logs?)?;
    Ok(dict)
}

/// A directory that is being made of a backup.
#[pyclass(frozen, module = "braidlog._native")]
pub struct Restore {
    restoring: Mutex<Option<(Restoring, TableRestore)>>,
}

impl Restore {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut Restoring, &mut TableRestore) -> CoreResult<T> + Send,
    ) -> PyResult<T> {
        detach(py, || match self.restoring.lock().as_mut() {
            Some((restoring, tables)) => f(restoring, tables),
            None => Err(Error::Closed),
        })
        .map_err(to_py)
    }
}

#[pymethods]
impl Restore {
    /// Begin. `keywords` are the fields of `NewDirectory`, and a disk in memory.
    #[new]
    #[pyo3(signature = (path, logs, tables, *, segment_bytes, bound, bytes, entropy, holder, note, **keywords))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        logs: Vec<LogRow>,
        tables: Vec<TableRow>,
        segment_bytes: u32,
        bound: Option<u64>,
        bytes: u64,
        entropy: u64,
        holder: String,
        note: String,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let vfs = take_disk(keywords)?.unwrap_or_else(|| Arc::new(RealVfs));
        let how = NewDirectory {
            segment_bytes,
            bound,
            bytes,
            entropy,
            holder,
            note,
        };
        let begun = detach(py, || {
            let logs: CoreResult<Vec<_>> = logs.into_iter().map(log_of).collect();
            let tables = tables.into_iter().map(table_of).collect();
            let restoring = Restoring::create(Arc::clone(&vfs), &path, logs?, tables, &how)?;
            let tables = TableRestore::new(vfs, path.join(TABLES), restoring.node());
            Ok((restoring, tables))
        });
        Ok(Self {
            restoring: Mutex::new(Some(begun.map_err(to_py)?)),
        })
    }

    /// Append the records of a part that its log still lacks.
    fn place(&self, py: Python<'_>, part: &Bound<'_, PyAny>) -> PyResult<()> {
        let part = Held::of(part, "part")?;
        self.with(py, |restoring, _| restoring.place(part.as_slice()))
    }

    /// Begin a tree of a table with its image.
    fn begin_tree(
        &self,
        py: Python<'_>,
        table: u128,
        tree: u128,
        image: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let image = Held::of(image, "image")?;
        self.with(py, |_, tables| tables.begin(table, tree, image.as_slice()))
    }

    /// Append to the file of a run of that tree.
    fn append_run(&self, py: Python<'_>, run: u64, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let data = Held::of(data, "data")?;
        self.with(py, |_, tables| tables.append(run, data.as_slice()))
    }

    /// End that tree, all of whose runs are there.
    fn end_tree(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |_, tables| tables.end())
    }

    /// End a table, with what it counted.
    fn end_table(
        &self,
        py: Python<'_>,
        table: u128,
        counters: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let counters = counters.map(|of| Held::of(of, "counters")).transpose()?;
        let counters = counters.as_ref().map(Held::as_slice);
        self.with(py, |_, tables| tables.end_table(table, counters))
    }

    /// Let the directory be opened.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        detach(py, || match self.restoring.lock().take() {
            Some((restoring, _)) => restoring.finish(),
            None => Err(Error::Closed),
        })
        .map_err(to_py)
    }

    /// Let go of the files; the directory cannot be opened. Does nothing after `finish`.
    fn abandon(&self, py: Python<'_>) {
        detach(py, || drop(self.restoring.lock().take()));
    }
}

/// A table of a node of a cluster that is being made of a backup.
#[pyclass(frozen, module = "braidlog._native")]
pub struct HostedRestore {
    restoring: Mutex<TableRestore>,
    bases: Vec<(u128, u64)>,
}

impl HostedRestore {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut TableRestore) -> CoreResult<T> + Send,
    ) -> PyResult<T> {
        detach(py, || f(&mut self.restoring.lock())).map_err(to_py)
    }
}

#[pymethods]
impl HostedRestore {
    /// Begin a table in the directory of all tables of a node; `bases` say where its indexes begin, by tree.
    #[new]
    fn new(directory: PathBuf, table: u128, bases: Vec<(u128, u64)>) -> Self {
        // The trees of all hosts of a table have the same identities, so they name it in place of a node.
        let restoring = TableRestore::new(Arc::new(RealVfs), directory, table);
        Self {
            restoring: Mutex::new(restoring),
            bases,
        }
    }

    /// Begin a tree of a table with its image.
    fn begin_tree(
        &self,
        py: Python<'_>,
        table: u128,
        tree: u128,
        image: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let image = Held::of(image, "image")?;
        self.with(py, |tables| tables.begin(table, tree, image.as_slice()))
    }

    /// Append to the file of a run of that tree.
    fn append_run(&self, py: Python<'_>, run: u64, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let data = Held::of(data, "data")?;
        self.with(py, |tables| tables.append(run, data.as_slice()))
    }

    /// End that tree, all of whose runs are there.
    fn end_tree(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, TableRestore::end)
    }

    /// End the table, with what it counted; durable on return.
    fn end_table(
        &self,
        py: Python<'_>,
        table: u128,
        counters: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let counters = counters.map(|of| Held::of(of, "counters")).transpose()?;
        let counters = counters.as_ref().map(Held::as_slice);
        self.with(py, |tables| {
            tables.put_bases(table, &self.bases)?;
            tables.end_table(table, counters)
        })
    }
}

/// Where the indexes of a table begin, of the bytes of its `BASES`: base by tree.
#[pyfunction]
fn table_bases(file: &Bound<'_, PyAny>, table: u128) -> PyResult<Vec<(u128, u64)>> {
    let file = Held::of(file, "file")?;
    bases_of(table, file.as_slice()).map_err(to_py)
}

/// The bytes before the first entry of a part.
#[pyfunction]
fn part_header(py: Python<'_>, log: u128, stream: u32) -> Bound<'_, PyBytes> {
    PyBytes::new(py, &Header { log, stream }.encode())
}

/// An entry with some records of a batch; `anonymous` without its producer.
#[pyfunction]
#[pyo3(signature = (llsn, glsn, skip, count, batch, *, anonymous=false))]
fn part_entry<'py>(
    py: Python<'py>,
    llsn: Unsigned,
    glsn: Unsigned,
    skip: u32,
    count: u32,
    batch: &Bound<'_, PyAny>,
    anonymous: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let batch = Held::of(batch, "batch")?;
    let entry = detach(py, || {
        let mut out = Vec::with_capacity(batch.as_slice().len() + 24);
        let bare;
        let batch = if anonymous {
            bare = without_producer(batch.as_slice())?;
            &bare
        } else {
            batch.as_slice()
        };
        put(&mut out, (llsn.0, glsn.0), skip, count, batch).map(|()| out)
    });
    Ok(PyBytes::new(py, &entry.map_err(to_py)?))
}

/// Verify a part: (log, stream, first LLSN, LLSN behind the last, first GLSN, GLSN behind the last, records).
#[pyfunction]
fn check_part(
    py: Python<'_>,
    part: &Bound<'_, PyAny>,
) -> PyResult<(u128, u32, u64, u64, u64, u64, u64)> {
    let part = Held::of(part, "part")?;
    detach(py, || {
        let entries = Entries::new(part.as_slice())?;
        let header = entries.header;
        let (mut begin, mut end, mut records) = ((0, 0), (0, 0), 0);
        for entry in entries {
            let entry = entry?;
            let count = u64::from(entry.count);
            if records == 0 {
                begin = (entry.llsn, entry.glsn);
            }
            end = (entry.llsn + count, entry.glsn + count);
            records += count;
        }
        Ok((
            header.log,
            header.stream,
            begin.0,
            end.0,
            begin.1,
            end.1,
            records,
        ))
    })
    .map_err(to_py)
}

/// LLSN, GLSN, records, batch.
type EntryRow<'py> = (u64, u64, u32, Bound<'py, PyBytes>);

/// The entries of a part, each verified.
#[pyfunction]
fn part_entries<'py>(py: Python<'py>, part: &Bound<'_, PyAny>) -> PyResult<Vec<EntryRow<'py>>> {
    let part = Held::of(part, "part")?;
    let found = detach(py, || {
        Entries::new(part.as_slice())?.collect::<CoreResult<Vec<_>>>()
    });
    let row = |entry: &braidlog_core::wal::backup::part::Entry<'_>| {
        let batch = PyBytes::new(py, entry.batch);
        (entry.llsn, entry.glsn, entry.count, batch)
    };
    Ok(found.map_err(to_py)?.iter().map(row).collect())
}

/// Producer windows of what is stored below `llsn`.
#[pyfunction]
fn producers_below<'py>(
    py: Python<'py>,
    windows: &Bound<'_, PyAny>,
    llsn: Unsigned,
) -> PyResult<Bound<'py, PyBytes>> {
    let windows = Held::of(windows, "producers")?;
    let mut producers = Producers::parse(windows.as_slice()).map_err(to_py)?;
    producers.cut(llsn.0);
    producers.settle();
    let mut out = Vec::with_capacity(producers.encoded_len());
    producers.encode(&mut out);
    Ok(PyBytes::new(py, &out))
}
