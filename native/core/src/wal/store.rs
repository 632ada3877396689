//! The write-ahead log of a node: append, group commit, roll, trim.
//!
//! # Theory of operation
//!
//! Any number of threads append under one short lock (memory only, see [`super::appender`]). Durability
//! is a matter of *groups*: whoever waits first for a group becomes its leader, seals what was gathered,
//! writes it synchronously without the lock, and publishes it for everybody (leader and followers; no
//! thread of our own). While a sync is in flight appends gather for the next one; a second sync starts
//! meanwhile only when enough has gathered to be worth a write of its own. Syncs retire in issue order.
//!
//! # Invariants
//!
//! - A group is published only when it and all earlier ones are durable.
//! - A group that opens a segment is written alone; the segment before it is sealed first.
//! - After a failed write or sync nothing is acknowledged any more: the store is failed for good, because
//!   what the failed write left behind is unknown (the fsync lesson of `PostgreSQL`).
//! - A lack of descriptors is no failed write: the group stays where it is until somebody can write it, and
//!   nothing is placed behind it before.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::batch::{ColumnsRef, Compression, check_columns};
use crate::error::{Error, Result};
use crate::limits::{
    BATCH_RECORDS_MAX, LOOKUP_BYTES_DEFAULT, SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
};
use crate::vfs::{BufPool, SyncMethod, Vfs, VfsLock};
use crate::wal::appender::{Appender, NewRecord, Sequenced, Ticket};
use crate::wal::files::Files;
use crate::wal::marks::Marks;
use crate::wal::order::ORDER_BYTES_DEFAULT;
use crate::wal::parts::Group;
use crate::wal::room::{columns_bytes, record_bytes};
use crate::wal::state::State;
use crate::wal::turn::Turn;
use crate::wal::view::View;

/// Length of a first segment's file to begin with: what a log of a few thousand records takes.
const BEGIN_BYTES_DEFAULT: u64 = 1 << 20;

/// The header, the state of an empty log, and a block for the first frames.
const BEGIN_BYTES_MIN: u64 = 3 * 4096;

/// How a store behaves. All bounds are bytes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Length of a segment file; only for a new directory, an existing one keeps its own.
    pub segment_bytes: u64,
    /// Length of the file of a log's first segment to begin with, a multiple of 4096. It grows as the log does, so
    /// that a small log is a small directory.
    pub begin_bytes: u64,
    /// Bound on all segments together; `None` keeps the one that the directory has.
    pub wal_bytes_max: Option<u64>,
    /// How a sync is done.
    pub sync_method: SyncMethod,
    /// Most syncs in flight.
    pub sync_depth: usize,
    /// Gathered bytes from which a second sync starts while one is in flight.
    pub gather_bytes: usize,
    /// Bytes appended and not yet durable, beyond which appends wait.
    pub unsynced_bytes_max: usize,
    /// Recent groups kept in memory for readers that have caught up.
    pub recent_bytes_max: usize,
    /// Memory for number indexes of sealed segments.
    pub index_bytes_max: usize,
    /// Heads and pages of large batches that lookups come back to.
    pub lookup_bytes_max: usize,
    /// Bytes of a log's records of which a reader of the files may not know the place yet.
    pub order_bytes_max: u64,
    /// Random number: node identity and checksum salts come from it.
    pub entropy: u64,
    /// What the lock file says about the holder.
    pub holder: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            begin_bytes: BEGIN_BYTES_DEFAULT,
            wal_bytes_max: None,
            sync_method: SyncMethod::Direct,
            sync_depth: 2,
            gather_bytes: 512 << 10,
            unsynced_bytes_max: 32 << 20,
            recent_bytes_max: 16 << 20,
            index_bytes_max: 64 << 20,
            lookup_bytes_max: LOOKUP_BYTES_DEFAULT,
            order_bytes_max: ORDER_BYTES_DEFAULT,
            entropy: 0,
            holder: String::new(),
        }
    }
}

impl Options {
    /// Refuse sizes that cannot work.
    pub fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(Error::InvalidArgument(text));
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes)
            || !self.segment_bytes.is_multiple_of(4096)
        {
            return wrong(format!(
                "segment_bytes must be a multiple of 4096 from {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}"
            ));
        }
        if self.begin_bytes < BEGIN_BYTES_MIN || !self.begin_bytes.is_multiple_of(4096) {
            return wrong(format!(
                "begin_bytes must be a multiple of 4096 from {BEGIN_BYTES_MIN} on"
            ));
        }
        if self.sync_depth == 0 || self.sync_depth > 16 {
            return wrong("sync_depth must be from 1 to 16".into());
        }
        Ok(())
    }
}

pub(super) struct Flight {
    pub(super) group: Arc<Group>,
    /// Where those who wait for the group sleep.
    pub(super) turn: Turn,
    pub(super) done: bool,
    /// Why its write was given up for now.
    pub(super) stalled: Option<Stalled>,
}

/// An operation for which there was no descriptor.
pub(super) struct Stalled {
    pub(super) op: &'static str,
    pub(super) path: PathBuf,
    pub(super) errno: Option<i32>,
}

pub(super) struct Inner {
    pub(super) appender: Appender,
    pub(super) flights: VecDeque<Flight>,
    /// Where those who wait for what is gathered now sleep.
    pub(super) turn: Turn,
    pub(super) durable_group: u64,
    pub(super) syncs: u64,
    pub(super) synced_bytes: u64,
    pub(super) bulk: HashSet<u32>,
    /// For each stream the lowest rollback that is not durable yet, and the group that makes it so.
    pub(super) rolled_back: HashMap<u32, (u64, u64)>,
    pub(super) failed: Option<String>,
    pub(super) closed: bool,
    /// Threads that write without the lock.
    pub(super) writing: usize,
    /// Threads that wait for a group.
    pub(super) waiters: usize,
    /// Threads that waited when the last group became durable: they will be back.
    pub(super) crowd: usize,
    /// Appends since the last seal.
    pub(super) arrivals: usize,
    /// Whether a leader waits for the crowd.
    pub(super) gathering: bool,
    /// Whether a trim before the open may have left segments that nobody needs.
    pub(super) reclaim_due: bool,
    /// Bytes that the last durable group wrote.
    pub(super) last_bytes: usize,
}

/// Whether records may be appended now, or what has to be done first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Ready,
    WantsSlot,
    WantsReclaim,
}

impl Inner {
    pub(super) fn room(&self, bytes: usize) -> Result<Room> {
        match self.appender.has_room(bytes) {
            Ok(true) => Ok(Room::Ready),
            // It may free what is wanted.
            Ok(false) | Err(Error::LogFull { .. }) if self.reclaim_due => Ok(Room::WantsReclaim),
            Ok(false) => Ok(Room::WantsSlot),
            Err(full) => Err(full),
        }
    }
}

/// A node's write-ahead log, open for writing.
pub struct Store {
    pub(super) view: Arc<View>,
    pub(super) inner: Mutex<Inner>,
    pub(super) flushed: Condvar,
    pub(super) slot_wanted: Condvar,
    pub(super) gathered: Condvar,
    pub(super) files: Mutex<Files>,
    pub(super) marks: Marks,
    /// Whether it is durable that the log is no longer closed.
    pub(super) begun: AtomicBool,
    pub(super) options: Options,
    pub(super) cleaning: Mutex<()>,
    pub(super) lock: Mutex<Option<Box<dyn VfsLock>>>,
}

impl Store {
    pub(super) fn assemble(
        view: Arc<View>,
        appender: Appender,
        files: Files,
        marks: Marks,
        options: Options,
        lock: Box<dyn VfsLock>,
    ) -> Result<Self> {
        let inner = Inner {
            appender,
            flights: VecDeque::new(),
            turn: Turn::default(),
            durable_group: 0,
            syncs: 0,
            synced_bytes: 0,
            bulk: HashSet::new(),
            rolled_back: HashMap::new(),
            failed: None,
            reclaim_due: false,
            last_bytes: 0,
            closed: false,
            writing: 0,
            waiters: 0,
            crowd: 0,
            arrivals: 0,
            gathering: false,
        };
        let store = Self {
            view,
            inner: Mutex::new(inner),
            flushed: Condvar::new(),
            slot_wanted: Condvar::new(),
            gathered: Condvar::new(),
            files: Mutex::new(files),
            marks,
            begun: AtomicBool::new(false),
            options,
            cleaning: Mutex::new(()),
            lock: Mutex::new(Some(lock)),
        };
        store.write_first()?;
        store.publish_watermark(&store.inner.lock())?;
        Ok(store)
    }

    /// What readers use.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Node directory.
    pub fn dir(&self) -> &Path {
        &self.view.dir
    }

    pub(super) fn guard(&self) -> Result<MutexGuard<'_, Inner>> {
        let inner = self.inner.lock();
        inner.check()?;
        Ok(inner)
    }

    /// Append one record; it is durable once [`Store::wait`] returns for the ticket.
    pub fn append(
        &self,
        stream: u32,
        record: NewRecord<'_>,
        producer: Option<Sequenced>,
    ) -> Result<Ticket> {
        let bytes = record_bytes(&record);
        let mut inner = match self.admit(Some(stream), bytes) {
            // No trim makes room for a record that no batch takes.
            Err(full @ Error::LogFull { .. }) => {
                let max = self.guard()?.appender.batch_bytes_max();
                return Appender::check_batch_len(bytes, max).and(Err(full));
            }
            admitted => admitted?,
        };
        self.arrived(&mut inner);
        inner.appender.push(stream, record, producer)
    }

    /// Count an append, and tell a leader when the crowd is complete.
    pub(super) fn arrived(&self, inner: &mut Inner) {
        inner.arrivals += 1;
        if inner.gathering && inner.arrivals >= inner.crowd {
            self.gathered.notify_one();
        }
    }

    /// Whether an append of about `bytes` would return without waiting for anything.
    pub fn would_wait(&self, stream: u32, bytes: usize) -> bool {
        let inner = self.inner.lock();
        let crowded = inner.bulk.contains(&stream)
            || inner.unsynced() > self.options.unsynced_bytes_max
            || inner.stalled().is_some();
        crowded || !matches!(inner.room(bytes), Ok(Room::Ready) | Err(_))
    }

    /// Wait at most `timeout` for what [`Store::would_wait`] speaks of, helping where possible.
    pub fn wait_for_room(
        &self,
        stream: u32,
        bytes: usize,
        timeout: std::time::Duration,
    ) -> Result<()> {
        let mut inner = self.guard()?;
        let stalled = inner.stalled().is_some();
        let full = stalled || inner.unsynced() > self.options.unsynced_bytes_max;
        if full && self.may_lead(&inner) {
            self.lead(&mut inner)
        } else if full || inner.bulk.contains(&stream) {
            self.flushed.wait_for(&mut inner, timeout);
            inner.check()
        } else {
            let room = inner.room(bytes)?;
            drop(inner);
            self.make(room, bytes)
        }
    }

    /// Wait until `bytes` of records may be appended: no bulk append of somebody else to `stream`,
    /// not too much unsynced, and a segment for them.
    pub(super) fn admit(&self, stream: Option<u32>, bytes: usize) -> Result<MutexGuard<'_, Inner>> {
        let mut inner = self.guard()?;
        loop {
            if inner.stalled().is_some() && self.may_lead(&inner) {
                // Nothing is placed behind what cannot be written now, so the caller may try again.
                self.lead(&mut inner)?;
                inner.check()?;
                continue;
            }
            let bulk = stream.is_some_and(|stream| inner.bulk.contains(&stream));
            if bulk || inner.unsynced() > self.options.unsynced_bytes_max {
                inner = self.make_room(inner)?;
                continue;
            }
            let room = inner.room(bytes)?;
            if room == Room::Ready {
                return Ok(inner);
            }
            drop(inner);
            self.make(room, bytes)?;
            inner = self.guard()?;
        }
    }

    /// Largest piece of a bulk append that is placed at once.
    pub fn bulk_bytes_max(&self) -> usize {
        let segment = self.inner.lock().appender.sizes.segment_bytes as usize;
        self.options.unsynced_bytes_max.min(segment)
    }

    /// Append rows of columns in batches of about `target` bytes. They get consecutive LLSNs; after a
    /// crash a prefix of them may be there.
    pub fn append_columns(
        &self,
        stream: u32,
        columns: &ColumnsRef<'_>,
        rows: Range<usize>,
        target: usize,
        producer: Option<Sequenced>,
    ) -> Result<Ticket> {
        self.place_columns(Some(stream), stream, columns, rows, target, producer)
    }

    /// Append a piece of a bulk append, see [`Store::begin_bulk`].
    pub fn append_piece(
        &self,
        stream: u32,
        columns: &ColumnsRef<'_>,
        rows: Range<usize>,
        target: usize,
        producer: Option<Sequenced>,
    ) -> Result<Ticket> {
        self.place_columns(None, stream, columns, rows, target, producer)
    }

    fn place_columns(
        &self,
        waits_for: Option<u32>,
        stream: u32,
        columns: &ColumnsRef<'_>,
        rows: Range<usize>,
        target: usize,
        producer: Option<Sequenced>,
    ) -> Result<Ticket> {
        let mut inner = self.admit(waits_for, columns_bytes(columns, &rows, target))?;
        self.arrived(&mut inner);
        inner
            .appender
            .append_columns(stream, columns, rows, target, producer)
    }

    /// Refuse columns that could not be appended to their end, before any of them is.
    pub fn check_columns(&self, columns: &ColumnsRef<'_>) -> Result<()> {
        let max = self.inner.lock().appender.batch_bytes_max();
        for rows in columns.split(0..columns.len, max, BATCH_RECORDS_MAX) {
            Appender::check_batch_len(columns.encoded_len_max(&rows), max)?;
            check_columns(columns, &rows)?;
        }
        Ok(())
    }

    /// Begin a bulk append: until [`Store::end_bulk`] other appends to the stream wait, so that the
    /// pieces get consecutive positions.
    pub fn begin_bulk(&self, stream: u32) -> Result<()> {
        let mut inner = self.guard()?;
        while !inner.bulk.insert(stream) {
            self.flushed.wait(&mut inner);
            inner.check()?;
        }
        Ok(())
    }

    /// End a bulk append.
    pub fn end_bulk(&self, stream: u32) {
        self.inner.lock().bulk.remove(&stream);
        self.flushed.notify_all();
    }

    /// Append an encoded batch at exactly this LLSN (replication, salvage).
    pub fn append_encoded(
        &self,
        stream: u32,
        epoch: u64,
        llsn: u64,
        batch: &[u8],
    ) -> Result<Ticket> {
        let mut inner = self.admit(None, batch.len() + 1024)?;
        inner.appender.append_encoded(stream, epoch, llsn, batch)
    }

    /// Compression of the stream's batches from now on.
    pub fn set_compression(&self, stream: u32, compression: Compression) {
        self.inner
            .lock()
            .appender
            .set_compression(stream, compression);
    }

    /// A copy of the state: catalog, ranges, producers, cursors as of the last placed frame. Records whose
    /// batch is open are not in it.
    pub fn state(&self) -> State {
        self.inner.lock().appender.state.clone()
    }

    /// Run `f` on the state without copying it.
    pub fn with_state<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        f(&self.inner.lock().appender.state)
    }

    /// Next sequence and current epoch of a producer as of everything appended; (1, `None`) if it is
    /// unknown.
    pub fn producer(&self, stream: u32, id: u64) -> Result<(u64, Option<u32>)> {
        self.inner.lock().appender.producer(stream, id)
    }

    /// Next LLSN a push would get.
    pub fn next_llsn(&self, stream: u32) -> Result<u64> {
        self.inner.lock().appender.next_llsn(stream)
    }
}

impl Inner {
    pub(super) fn check(&self) -> Result<()> {
        match self.failed.as_ref().or(self.appender.broken.as_ref()) {
            Some(reason) => Err(Error::Failed {
                reason: reason.clone(),
            }),
            None if self.closed => Err(Error::Closed),
            None => Ok(()),
        }
    }

    /// Where those who wait for a group that is not yet durable sleep.
    pub(super) fn turn(&self, group: u64) -> Option<&Turn> {
        if group == self.appender.group {
            return Some(&self.turn);
        }
        let mut flights = self.flights.iter();
        let flight = flights.find(|flight| flight.group.number == group)?;
        Some(&flight.turn)
    }

    /// Why a group waits for a descriptor, if one does.
    pub(super) fn stalled(&self) -> Option<Error> {
        let stalled = self.flights.iter().find_map(|each| each.stalled.as_ref())?;
        let errno = stalled.errno.unwrap_or_default();
        let source = std::io::Error::from_raw_os_error(errno);
        Some(Error::io(stalled.op, stalled.path.clone(), source))
    }

    /// Bytes appended and not yet durable.
    pub(super) fn unsynced(&self) -> usize {
        self.appender.unsealed_bytes() + self.flight_bytes()
    }

    pub(super) fn flight_bytes(&self) -> usize {
        self.flights.iter().map(|flight| flight.group.bytes).sum()
    }
}

/// Buffers for parts and reads.
pub fn new_pool() -> BufPool {
    BufPool::new(64, 64 << 20)
}

/// Whether the file system is there at all, before anything is created.
pub(super) fn make_dirs(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    vfs.create_dir_all(&dir.join("wal"))?;
    vfs.sync_dir(dir)
}
