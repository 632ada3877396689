//! The writer: append, wait, administer.
// One file: the calls of one Python class; what they do is elsewhere.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use braidlog_core::Error;
use braidlog_core::batch::Compression;
use braidlog_core::table::table::collect_orphans;
use braidlog_core::vfs::RealVfs;
use braidlog_core::wal::{self, Cursor, NewLog, NewRecord, Sequenced, Ticket};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::append::{HeaderList, sequenced, with_bytes, with_bytes_or_none};
use crate::arrow::import_records;
use crate::bulk::Bulk;
use crate::closing::Closing;
use crate::columns::ListColumns;
use crate::ddl::TableRow;
use crate::disk::take_disk;
use crate::entry::{Entry, entries_dict};
use crate::error::to_py;
use crate::exit::detach;
use crate::gate::{Gate, Reader};
use crate::log::LogView;
use crate::number::{Micros, Seconds, Unsigned};
use crate::options::{options, report_dict};
use crate::pending::{Pending, SIGNAL_INTERVAL, wait_group};
use crate::replicas::Replicas;

/// Microseconds since the Unix epoch.
pub fn now() -> i64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX)
}

/// The writer of a node directory.
#[pyclass(frozen, module = "braidlog._native")]
pub struct Store {
    inner: Arc<wal::Store>,
    gate: Arc<Gate>,
    closing: Arc<Closing>,
    /// Of a simulation: no thread but the caller's.
    simulated: bool,
}

/// The compression of that name.
pub fn compression(name: &str) -> PyResult<Compression> {
    match name {
        "none" => Ok(Compression::None),
        "zstd" => Ok(Compression::Zstd),
        "lz4" => Ok(Compression::Lz4),
        other => Err(to_py(Error::InvalidArgument(format!(
            "compression must be none, zstd or lz4, got {other:?}"
        )))),
    }
}

/// Bytes of a value, near enough for a reservation.
fn length(value: &Bound<'_, PyAny>) -> usize {
    value.len().unwrap_or(0)
}

impl Store {
    fn check(&self) -> PyResult<&Arc<wal::Store>> {
        self.gate.check_forked().map_err(to_py)?;
        Ok(&self.inner)
    }

    /// Make everything submitted so far durable.
    fn make_durable(&self, store: &wal::Store) -> braidlog_core::Result<()> {
        if self.simulated {
            store.flush()
        } else {
            store.sync()
        }
    }

    /// Append one record; durable on return.
    pub fn append(
        &self,
        py: Python<'_>,
        stream: u32,
        value: &Bound<'_, PyAny>,
        key: Option<&Bound<'_, PyAny>>,
        timestamp: Option<Micros>,
        headers: Option<&Bound<'_, PyAny>>,
        producer: Option<Sequenced>,
    ) -> PyResult<u64> {
        let ticket = self.push(py, stream, value, key, timestamp, headers, producer)?;
        wait_group(py, &self.inner, ticket.group, None)?;
        Ok(ticket.llsn)
    }

    /// Append one record; durable once the result says so.
    pub fn submit(
        &self,
        py: Python<'_>,
        stream: u32,
        value: &Bound<'_, PyAny>,
        key: Option<&Bound<'_, PyAny>>,
        timestamp: Option<Micros>,
        headers: Option<&Bound<'_, PyAny>>,
        producer: Option<Sequenced>,
    ) -> PyResult<Pending> {
        let ticket = self.push(py, stream, value, key, timestamp, headers, producer)?;
        self.inner.nudge();
        Ok(Pending::new(&self.inner, &self.gate, ticket, false))
    }

    fn push(
        &self,
        py: Python<'_>,
        stream: u32,
        value: &Bound<'_, PyAny>,
        key: Option<&Bound<'_, PyAny>>,
        timestamp: Option<Micros>,
        headers: Option<&Bound<'_, PyAny>>,
        producer: Option<Sequenced>,
    ) -> PyResult<Ticket> {
        let store = self.check()?;
        let timestamp = timestamp.map_or_else(now, |Micros(timestamp)| timestamp);
        let headers = HeaderList::from_py(headers)?;
        let headers = headers.borrow();
        // Never wait for other appenders, or for the disk, with the GIL held.
        let of_headers: usize = headers
            .iter()
            .map(|(name, value)| 16 + name.len() + value.map_or(0, <[u8]>::len))
            .sum();
        let bytes = 1024 + length(value) + key.map_or(0, length) + of_headers;
        while store.would_wait(stream, bytes) {
            detach(py, || store.wait_for_room(stream, bytes, SIGNAL_INTERVAL)).map_err(to_py)?;
            py.check_signals()?;
        }
        let nulls = value.is_none() || headers.iter().any(|(_, value)| value.is_none());
        if nulls {
            detach(py, || store.allow_nulls(true)).map_err(to_py)?;
        }
        let append = |value: Option<&[u8]>, key: Option<&[u8]>| {
            store.append(
                stream,
                NewRecord {
                    value,
                    key,
                    timestamp,
                    headers: &headers,
                },
                producer,
            )
        };
        let ticket = with_bytes_or_none(value, "value", |value| match key {
            None => Ok(append(value, None)),
            Some(key) => with_bytes(key, "key", |key| append(value, Some(key))),
        })??;
        ticket.map_err(to_py)
    }
}

#[pymethods]
impl Store {
    /// Open a directory for writing: the store, and what the open found.
    #[staticmethod]
    #[pyo3(signature = (path, **keywords))]
    fn open<'py>(
        py: Python<'py>,
        path: std::path::PathBuf,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<(Self, Bound<'py, PyDict>)> {
        let disk = take_disk(keywords)?;
        let options = options(keywords)?;
        let simulated = disk.is_some();
        let vfs = disk.unwrap_or_else(|| Arc::new(RealVfs));
        let opened = detach(py, || wal::open(vfs, &path, options));
        let (store, report) = opened.map_err(to_py)?;
        let store = Self {
            inner: Arc::new(store),
            gate: Arc::default(),
            closing: Arc::default(),
            simulated,
        };
        Ok((store, report_dict(py, &report)?))
    }

    /// Make this object refuse everything: called in the child of a fork.
    fn set_forked(&self) {
        self.gate.fork();
        self.inner.abandon_lock();
    }

    /// Append lists of values at consecutive positions.
    #[pyo3(signature = (stream, values, keys=None, timestamps=None, headers=None, producer=None, sequence=None))]
    fn submit_many(
        &self,
        py: Python<'_>,
        stream: u32,
        values: &Bound<'_, PyAny>,
        keys: Option<&Bound<'_, PyAny>>,
        timestamps: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        producer: Option<(u64, u32)>,
        sequence: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Pending> {
        let store = self.check()?;
        let producer = sequenced(producer, Unsigned::optional(sequence, "sequence")?)?;
        let columns = ListColumns::from_py(values, keys, timestamps, headers, now())?;
        let bulk = Bulk::new(store, stream, producer);
        let ticket =
            detach(py, || bulk.columns(&columns.borrow())).map_err(|broken| broken.into_py(py))?;
        store.nudge();
        Ok(Pending::new(store, &self.gate, ticket, true))
    }

    /// Append Arrow data at consecutive positions.
    #[pyo3(signature = (stream, data, producer=None, sequence=None))]
    fn submit_arrow(
        &self,
        py: Python<'_>,
        stream: u32,
        data: &Bound<'_, PyAny>,
        producer: Option<(u64, u32)>,
        sequence: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Pending> {
        let store = self.check()?;
        let producer = sequenced(producer, Unsigned::optional(sequence, "sequence")?)?;
        let batches = import_records(data)?;
        let (stamp, bulk) = (now(), Bulk::new(store, stream, producer));
        let ticket =
            detach(py, || bulk.batches(batches, stamp)).map_err(|broken| broken.into_py(py))?;
        store.nudge();
        Ok(Pending::new(store, &self.gate, ticket, true))
    }

    /// Serve as the sync thread until the store closes; after each sync 1 is added to the eventfd-like
    /// descriptor `notify`, if it is not negative.
    fn run_syncer(&self, py: Python<'_>, notify: i32) {
        // The thread is joined by who closes the store.
        detach(py, || {
            let mut durable = 0;
            while let Some(group) = self.inner.sync_next(durable) {
                durable = group;
                crate::notify::signal(notify);
            }
            crate::notify::signal(notify);
        });
    }

    fn is_durable(&self, group: u64) -> PyResult<bool> {
        self.check()?.is_durable(group).map_err(to_py)
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.check()?;
        detach(py, || self.make_durable(store)).map_err(to_py)
    }

    /// The part that deals with replicas.
    fn replicas(&self) -> PyResult<Replicas> {
        Ok(Replicas::new(self.check()?, &self.gate))
    }

    #[pyo3(signature = (stream, log=None))]
    fn view(&self, py: Python<'_>, stream: u32, log: Option<&str>) -> PyResult<LogView> {
        let store = self.check()?;
        let view = Arc::clone(store.view());
        let stream = view.stream(stream).or_else(|_| {
            // Another thread may be creating the log: the state has it, readers will when it is durable.
            detach(py, || store.sync().and_then(|()| view.stream(stream))).map_err(to_py)
        })?;
        Ok(LogView::new(Reader {
            view,
            stream,
            log: log.map(Arc::from),
            gate: Arc::clone(&self.gate),
            store: Some(Arc::clone(store)),
            follower: None,
        }))
    }

    fn next_position(&self, stream: u32) -> PyResult<u64> {
        self.check()?.next_llsn(stream).map_err(to_py)
    }

    fn create_log(
        &self,
        py: Python<'_>,
        name: String,
        log_id: u128,
        options: Vec<u8>,
    ) -> PyResult<u32> {
        let store = self.check()?;
        let log = NewLog {
            id: log_id,
            explicit_commit: false,
            created: now(),
            name,
            options,
        };
        detach(py, || store.create_log(log)).map_err(to_py)
    }

    fn delete_log(&self, py: Python<'_>, log_id: u128) -> PyResult<()> {
        let store = self.check()?;
        detach(py, || store.delete_log(log_id)).map_err(to_py)
    }

    fn alter_log(&self, py: Python<'_>, log_id: u128, options: Vec<u8>) -> PyResult<()> {
        let store = self.check()?;
        detach(py, || store.alter_log(log_id, options)).map_err(to_py)
    }

    fn set_compression(&self, stream: u32, compression: &str) -> PyResult<()> {
        self.inner
            .set_compression(stream, self::compression(compression)?);
        Ok(())
    }

    /// Let records go, minding the pins at `pinned_at` (microseconds) or, without it, none.
    #[pyo3(signature = (stream, first, pinned_at=None))]
    fn trim(
        &self,
        py: Python<'_>,
        stream: u32,
        first: &Bound<'_, PyAny>,
        pinned_at: Option<i64>,
    ) -> PyResult<u64> {
        let store = self.check()?;
        let first = Unsigned::named(first, "before")?;
        detach(py, || match pinned_at {
            Some(now) => store.trim_unpinned(stream, first.0, now),
            None => store.trim(stream, first.0),
        })
        .map_err(to_py)
    }

    /// Create a cursor at the first position unless there is one.
    fn create_cursor(
        &self,
        py: Python<'_>,
        stream: u32,
        name: &str,
        pin: bool,
        lease: u64,
    ) -> PyResult<()> {
        let store = self.check()?;
        let cursor = Cursor {
            position: 0,
            pin,
            touched: now(),
            lease,
        };
        let group = store.create_cursor(stream, name, &cursor).map_err(to_py)?;
        wait_group(py, store, group, None).map(|_| ())
    }

    /// Move a cursor that is there; it keeps its pin and lease.
    fn move_cursor(
        &self,
        py: Python<'_>,
        stream: u32,
        name: &str,
        position: Unsigned,
    ) -> PyResult<()> {
        let store = self.check()?;
        let group = store
            .move_cursor(stream, name, position.0, now())
            .map_err(to_py)?;
        wait_group(py, store, group, None).map(|_| ())
    }

    #[pyo3(signature = (stream, name, position, pin, lease=0))]
    fn set_cursor(
        &self,
        py: Python<'_>,
        stream: u32,
        name: &str,
        position: Unsigned,
        pin: bool,
        lease: u64,
    ) -> PyResult<()> {
        let store = self.check()?;
        let cursor = Cursor {
            position: position.0,
            pin,
            touched: now(),
            lease,
        };
        let group = store.set_cursor(stream, name, cursor).map_err(to_py)?;
        wait_group(py, store, group, None).map(|_| ())
    }

    fn delete_cursor(&self, py: Python<'_>, stream: u32, name: &str) -> PyResult<()> {
        let store = self.check()?;
        detach(py, || store.delete_cursor(stream, name)).map_err(to_py)
    }

    /// Identity of the node.
    fn node(&self, py: Python<'_>) -> PyResult<u128> {
        let store = self.check()?;
        let identity = detach(py, || store.identity()).map_err(to_py)?;
        Ok(identity.node)
    }

    /// Remove files of tables and trees that are not `known`: each table with all its trees. The catalog is made durable
    /// first, or a crash could bring back a table whose files are gone. Returns how many directories.
    fn collect_table_orphans(
        &self,
        py: Python<'_>,
        directory: PathBuf,
        known: Vec<(u128, Vec<u128>)>,
    ) -> PyResult<u64> {
        let store = self.check()?;
        let known = known
            .into_iter()
            .map(|(table, trees)| (table, trees.into_iter().collect()));
        let collect = || {
            self.make_durable(store)?;
            collect_orphans(store.view().vfs.as_ref(), &directory, &known.collect())
        };
        detach(py, collect).map_err(to_py)
    }

    /// Change tables: all of it or nothing; durable on return.
    fn change_tables(&self, py: Python<'_>, changes: Vec<Bound<'_, PyTuple>>) -> PyResult<()> {
        let store = self.check()?;
        let changes = crate::ddl::changes(changes, now())?;
        detach(py, || store.change_tables(changes)).map_err(to_py)
    }

    /// All tables of the catalog.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<TableRow>> {
        let store = self.check()?;
        Ok(detach(py, || store.with_state(TableRow::all)))
    }

    /// One table of the catalog, or `None`.
    fn table_row(&self, py: Python<'_>, name: &str) -> PyResult<Option<TableRow>> {
        let store = self.check()?;
        Ok(detach(py, || {
            store.with_state(|state| TableRow::of(state, name))
        }))
    }

    /// Say that a table needs nothing below `position` any more; durable on return.
    fn move_table_pin(&self, py: Python<'_>, table: u128, position: Unsigned) -> PyResult<()> {
        let store = self.check()?;
        let group = store
            .move_table_pin(table, position.0, now())
            .map_err(to_py)?;
        wait_group(py, store, group, None).map(|_| ())
    }

    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let store = self.check()?;
        let entries = detach(py, || store.with_state(Entry::all));
        entries_dict(py, entries)
    }

    /// One log of the state, or `None`.
    fn entry<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let store = self.check()?;
        let found = detach(py, || store.with_state(|state| Entry::of(state, name)));
        found.map(|entry| entry.into_row(py)).transpose()
    }

    /// Next sequence and current epoch of a producer; (1, None) if it is unknown.
    fn producer(&self, stream: u32, producer_id: u64) -> PyResult<(u64, Option<u32>)> {
        self.check()?.producer(stream, producer_id).map_err(to_py)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.check()?.stats();
        let dict = PyDict::new(py);
        dict.set_item("syncs", stats.syncs)?;
        dict.set_item("synced_bytes", stats.synced_bytes)?;
        dict.set_item("segments", stats.segments)?;
        dict.set_item("newest_segment", stats.newest_segment)?;
        dict.set_item("segments_max", stats.segments_max)?;
        dict.set_item("free_slots", stats.free_slots)?;
        dict.set_item("segment_bytes", stats.segment_bytes)?;
        dict.set_item("index_memory", stats.index_memory)?;
        dict.set_item("index_bytes", stats.index_bytes)?;
        dict.set_item("samples", stats.samples)?;
        dict.set_item("side_files_left", stats.side_files_left)?;
        dict.set_item("durable_offset", stats.durable_offset)?;
        Ok(dict)
    }

    /// Wait until a free slot should be made, at most `timeout` seconds; `None` once the store is closed.
    fn wait_housekeeping(&self, py: Python<'_>, timeout: f64) -> Option<bool> {
        detach(py, || {
            self.inner
                .wait_housekeeping(Duration::from_secs_f64(timeout))
        })
    }

    fn prepare_slot(&self, py: Python<'_>) -> PyResult<bool> {
        let store = self.check()?;
        detach(py, || store.prepare_slot()).map_err(to_py)
    }

    fn provision(&self, py: Python<'_>, size: Unsigned) -> PyResult<u64> {
        let store = self.check()?;
        detach(py, || store.provision(size.0)).map_err(to_py)
    }

    /// Free up to `target` segments by moving live records; (segments freed, bytes moved).
    fn clean(&self, py: Python<'_>, target: u64, live_max: f64) -> PyResult<(u64, u64)> {
        let store = self.check()?;
        let done = detach(py, || store.clean(target, live_max)).map_err(to_py)?;
        Ok((done.segments, done.moved_bytes))
    }

    /// Close, within `timeout` seconds or else go on in the background; in the child of a fork do nothing,
    /// the directory is its parent's.
    #[pyo3(signature = (timeout=None))]
    fn close(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<()> {
        let Ok(store) = self.check() else {
            return Ok(());
        };
        self.gate.close();
        if self.simulated {
            return detach(py, || store.close()).map_err(to_py);
        }
        self.closing.close(py, store, timeout)
    }
}
