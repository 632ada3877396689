//! The write-ahead log of a node: append, group commit, roll, trim.
//!
//! # Theory of operation
//!
//! Any number of threads append under one short lock (memory only, see [`crate::wal::placing`]). Durability
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
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::batch::Compression;
use crate::error::{Error, Result};
use crate::vfs::VfsLock;
use crate::wal::format::state::State;
use crate::wal::placing::appender::Appender;
use crate::wal::placing::group::Group;
use crate::wal::read::view::View;
use crate::wal::write::baton::Turn;
use crate::wal::write::files::Files;
use crate::wal::write::options::Options;
use crate::wal::write::progress::ProgressFiles;

pub(crate) struct Flight {
    pub(crate) group: Arc<Group>,
    /// Where those who wait for the group sleep.
    pub(crate) turn: Turn,
    pub(crate) done: bool,
    /// Why its write was given up for now.
    pub(super) stalled: Option<Stalled>,
}

/// An operation for which there was no descriptor.
pub(super) struct Stalled {
    pub(crate) op: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) errno: Option<i32>,
}

pub(crate) struct Inner {
    pub(crate) appender: Appender,
    pub(crate) flights: VecDeque<Flight>,
    /// Where those who wait for what is gathered now sleep.
    pub(crate) turn: Turn,
    pub(super) durable_group: u64,
    pub(crate) syncs: u64,
    pub(super) synced_bytes: u64,
    pub(crate) bulk: HashSet<u32>,
    /// For each stream the lowest rollback that is not durable yet, and the group that makes it so.
    pub(crate) rolled_back: HashMap<u32, (u64, u64)>,
    pub(crate) failed: Option<String>,
    pub(crate) closed: bool,
    /// Threads that write without the lock.
    pub(crate) writing: usize,
    /// Threads that wait for a group.
    pub(crate) waiters: usize,
    /// Threads that waited when the last group became durable: they will be back.
    pub(super) crowd: usize,
    /// Appends since the last seal.
    pub(super) arrivals: usize,
    /// Whether a leader waits for the crowd.
    pub(crate) gathering: bool,
    /// Whether a trim before the open may have left segments that nobody needs.
    pub(crate) reclaim_due: bool,
    /// Bytes that the last durable group wrote.
    pub(super) last_bytes: usize,
}

/// A node's write-ahead log, open for writing.
pub struct Store {
    pub(crate) view: Arc<View>,
    pub(crate) inner: Mutex<Inner>,
    pub(super) flushed: Condvar,
    pub(super) slot_wanted: Condvar,
    pub(crate) gathered: Condvar,
    pub(crate) files: Mutex<Files>,
    pub(crate) progress: ProgressFiles,
    /// Whether it is durable that the log is no longer closed.
    pub(crate) begun: AtomicBool,
    /// Whether the manifest says that there may be null values.
    pub(super) nulls: AtomicBool,
    pub(crate) options: Options,
    pub(crate) cleaning: Mutex<()>,
    pub(crate) lock: Mutex<Option<Box<dyn VfsLock>>>,
}

impl Store {
    pub(crate) fn assemble(
        view: Arc<View>,
        appender: Appender,
        files: Files,
        progress: ProgressFiles,
        options: Options,
        lock: Box<dyn VfsLock>,
    ) -> Self {
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
        Self {
            view,
            inner: Mutex::new(inner),
            flushed: Condvar::new(),
            slot_wanted: Condvar::new(),
            gathered: Condvar::new(),
            nulls: AtomicBool::new(files.nulls()),
            files: Mutex::new(files),
            progress,
            begun: AtomicBool::new(false),
            options,
            cleaning: Mutex::new(()),
            lock: Mutex::new(Some(lock)),
        }
    }

    /// What readers use.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Node directory.
    pub fn dir(&self) -> &Path {
        &self.view.dir
    }

    pub(crate) fn guard(&self) -> Result<MutexGuard<'_, Inner>> {
        let inner = self.inner.lock();
        inner.check()?;
        Ok(inner)
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
    pub(crate) fn check(&self) -> Result<()> {
        match self.failed.as_ref().or(self.appender.broken.as_ref()) {
            Some(reason) => Err(Error::Failed {
                reason: reason.clone(),
            }),
            None if self.closed => Err(Error::Closed),
            None => Ok(()),
        }
    }

    /// Where those who wait for a group that is not yet durable sleep.
    pub(crate) fn turn(&self, group: u64) -> Option<&Turn> {
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
    pub(crate) fn unsynced(&self) -> usize {
        self.appender.unsealed_bytes() + self.flight_bytes()
    }

    fn flight_bytes(&self) -> usize {
        self.flights.iter().map(|flight| flight.group.bytes).sum()
    }
}
