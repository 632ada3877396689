//! Streams of a store that are replicas: whole batches, commits that were decided elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braidlog_core::index::CommitRun;
use braidlog_core::wal::{self, CommitContext, NewLog, Producers, Restart, ScrubPlace, Verified};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::append::with_bytes;
use crate::error::to_py;
use crate::exit::detach;
use crate::gate::Gate;
use crate::held::Held;
use crate::number::{Micros, Unsigned};
use crate::pending::SIGNAL_INTERVAL;

/// A commit: (version, GLSN, LLSN, length, high watermark).
pub type Context = (u64, u64, u64, u64, u64);

/// A commit as the core has it.
pub fn context_of(context: Context) -> CommitContext {
    let (version, glsn_begin, llsn_begin, length, high_watermark) = context;
    CommitContext {
        version,
        glsn_begin,
        llsn_begin,
        length,
        high_watermark,
    }
}

/// Where a stream stands: (low, committed, next, durable end, epoch, [(epoch, first LLSN)], latest commit).
pub type Standing = (u64, u64, u64, u64, u64, Vec<(u64, u64)>, Context);

/// Where a stream stands that is durable up to `durable`.
pub fn standing_of(stream: &wal::Stream, durable: u64) -> Standing {
    let context = &stream.context;
    let context = (
        context.version,
        context.glsn_begin,
        context.llsn_begin,
        context.length,
        context.high_watermark,
    );
    let epochs = stream.epochs.clone();
    let (low, committed, next) = (stream.low, stream.committed, stream.next);
    (low, committed, next, durable, stream.epoch, epochs, context)
}

/// A batch: (LLSN, records, bytes).
pub type Batch<'py> = (u64, u32, Bound<'py, PyBytes>);

/// Batches as Python sees them.
pub fn batches<'py>(py: Python<'py>, found: &[wal::EncodedBatch]) -> Vec<Batch<'py>> {
    let row = |batch: &wal::EncodedBatch| {
        let bytes = PyBytes::new(py, &batch.bytes);
        (batch.llsn, batch.count, bytes)
    };
    found.iter().map(row).collect()
}

/// A commit run: (LLSN, GLSN, length).
pub type Run = (u64, u64, u64);

/// Commit runs as Python sees them.
pub fn runs(found: &[CommitRun]) -> Vec<Run> {
    let row = |run: &CommitRun| (run.llsn_begin, run.glsn_begin, run.length);
    found.iter().map(row).collect()
}

/// Path, offset, reason, [(stream, first LLSN that is lost)].
type DamageRow = (String, u64, String, Vec<(u32, u64)>);

/// Where to go on, bytes that were checked, what is wrong with them.
type ScrubbedRow = ((u64, u32, u32), u64, Option<DamageRow>);

/// What a node's cluster part does with a store. Nothing here waits for the disk, but for `create` and
/// `delete`, and for appends while too much is on its way there.
#[pyclass(frozen, module = "braidlog._native")]
pub struct Replicas {
    store: Arc<wal::Store>,
    gate: Arc<Gate>,
    hurried: AtomicU64,
}

impl Replicas {
    /// How far was written, and how much of it for whose sync somebody waits; `None` if the store failed.
    pub fn written(&self) -> Option<(u64, u64)> {
        let ticket = self.check().ok()?.latest().ok()?;
        Some((ticket, self.hurried()))
    }

    /// Number of the newest durable group; `None` if the store failed.
    pub fn synced_to(&self) -> Option<u64> {
        self.check().ok()?.durable().ok()
    }

    /// The store.
    pub fn store(&self) -> Arc<wal::Store> {
        Arc::clone(&self.store)
    }

    /// The replicas of a store.
    pub fn new(store: &Arc<wal::Store>, gate: &Arc<Gate>) -> Self {
        Self {
            store: Arc::clone(store),
            gate: Arc::clone(gate),
            hurried: AtomicU64::new(0),
        }
    }

    fn check(&self) -> PyResult<&Arc<wal::Store>> {
        self.gate.check_forked().map_err(to_py)?;
        Ok(&self.store)
    }

    /// Verify batches, wait for room, and hand them to `place`; with the GIL released.
    fn arrive<R: Send>(
        &self,
        py: Python<'_>,
        stream: u32,
        batches: Vec<Held>,
        place: impl Fn(&wal::Store, &[Verified<'_>]) -> braidlog_core::Result<R> + Sync,
    ) -> PyResult<R> {
        let store = self.check()?;
        let batches: Vec<&[u8]> = batches.iter().map(Held::as_slice).collect();
        let bytes: usize = batches.iter().map(|batch| batch.len() + 1024).sum();
        while store.would_wait(stream, bytes) {
            detach(py, || store.wait_for_room(stream, bytes, SIGNAL_INTERVAL)).map_err(to_py)?;
            py.check_signals()?;
        }
        detach(py, || {
            let verified: Result<Vec<_>, _> =
                batches.iter().copied().map(Verified::check).collect();
            place(store, &verified?)
        })
        .map_err(to_py)
    }
}

fn held(batches: &Bound<'_, PyAny>) -> PyResult<Vec<Held>> {
    batches
        .try_iter()?
        .map(|batch| Held::of(&batch?, "batch"))
        .collect()
}

#[pymethods]
impl Replicas {
    /// Note bytes that were written and for whose sync somebody waits.
    pub fn hurry(&self, size: u64) {
        self.hurried.fetch_add(size + 1, Ordering::Relaxed);
    }

    /// About how many bytes were written so far for whose sync somebody waits.
    fn hurried(&self) -> u64 {
        self.hurried.load(Ordering::Relaxed)
    }

    /// Create a log with explicit commits; its stream. Durable on return.
    #[pyo3(signature = (name, log_id, options, created))]
    fn create(
        &self,
        py: Python<'_>,
        name: String,
        log_id: u128,
        options: Vec<u8>,
        created: Micros,
    ) -> PyResult<u32> {
        let store = self.check()?;
        let log = NewLog {
            id: log_id,
            explicit_commit: true,
            created: created.0,
            name,
            options,
        };
        detach(py, || store.create_log(log)).map_err(to_py)
    }

    /// Replace a log's options; the ticket.
    fn alter(&self, log_id: u128, options: Vec<u8>) -> PyResult<u64> {
        let store = self.check()?;
        let group = store.submit_alter(log_id, options).map_err(to_py)?;
        store.nudge();
        Ok(group)
    }

    /// Begin a log anew at `first` with other options, empty but for producer windows; its new stream.
    #[pyo3(signature = (log_id, epoch, first, options, producers=None))]
    fn restart(
        &self,
        log_id: u128,
        epoch: u64,
        first: Unsigned,
        options: Vec<u8>,
        producers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u32> {
        let store = self.check()?;
        let producers = match producers {
            Some(bytes) => with_bytes(bytes, "producers", Producers::parse)?.map_err(to_py)?,
            None => Producers::default(),
        };
        let restart = Restart {
            first: first.0,
            options,
            producers,
        };
        let stream = store.restart(log_id, epoch, restart);
        store.nudge();
        stream.map_err(to_py)
    }

    /// Producer windows of what is stored below `llsn`, for `restart`.
    fn producers<'py>(
        &self,
        py: Python<'py>,
        stream: u32,
        llsn: Unsigned,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let found = self.check()?.producers_below(stream, llsn.0);
        Ok(PyBytes::new(py, &found.map_err(to_py)?))
    }

    /// Append batches, all of them or none: (LLSN, records, whether it is new) of each. With `repeat`
    /// they may have been appended before.
    #[pyo3(signature = (stream, epoch, batches, *, repeat=false))]
    fn append(
        &self,
        py: Python<'_>,
        stream: u32,
        epoch: u64,
        batches: &Bound<'_, PyAny>,
        repeat: bool,
    ) -> PyResult<Vec<(u64, u32, bool)>> {
        let arrivals = self.arrive(py, stream, held(batches)?, |store, batches| {
            if repeat {
                store.repeat_batches(stream, epoch, batches)
            } else {
                store.append_batches(stream, epoch, batches)
            }
        })?;
        self.store.nudge();
        let rows = arrivals.iter().map(|at| (at.llsn, at.count, at.new));
        Ok(rows.collect())
    }

    /// Append batches exactly at `llsn`, all of them or none.
    fn place(
        &self,
        py: Python<'_>,
        stream: u32,
        epoch: u64,
        llsn: Unsigned,
        batches: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.arrive(py, stream, held(batches)?, |store, batches| {
            store.place_batches(stream, epoch, llsn.0, batches)
        })?;
        self.store.nudge();
        Ok(())
    }

    /// As `place`, if there is no room for records from the room that they leave alone.
    fn place_reserved(
        &self,
        py: Python<'_>,
        stream: u32,
        epoch: u64,
        llsn: Unsigned,
        batches: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.arrive(py, stream, held(batches)?, |store, batches| {
            store.place_reserved(stream, epoch, llsn.0, batches)
        })?;
        self.store.nudge();
        Ok(())
    }

    fn commit(&self, stream: u32, epoch: u64, context: Context) -> PyResult<u64> {
        // Goes with the next group: nobody waits for it.
        let store = self.check()?;
        store
            .commit(stream, epoch, context_of(context))
            .map_err(to_py)
    }

    fn rollback(&self, stream: u32, epoch: u64, llsn: Unsigned) -> PyResult<u64> {
        let store = self.check()?;
        let group = store.rollback(stream, epoch, llsn.0).map_err(to_py)?;
        store.nudge();
        Ok(group)
    }

    /// Say that a stream is one of a log's: those of one log share an order.
    fn share_order(&self, stream: u32, log: u128) -> PyResult<()> {
        self.check()?.share_order(stream, log).map_err(to_py)
    }

    fn enter(&self, stream: u32, epoch: u64) -> PyResult<u64> {
        let store = self.check()?;
        let group = store.raise_epoch(stream, epoch).map_err(to_py)?;
        store.nudge();
        Ok(group)
    }

    fn trim(&self, stream: u32, llsn: Unsigned) -> PyResult<u64> {
        let store = self.check()?;
        let group = store.submit_trim(stream, llsn.0).map_err(to_py)?;
        store.nudge();
        Ok(group)
    }

    /// Whole batches that hold any of `begin..end`, committed or not, durable or not.
    fn read<'py>(
        &self,
        py: Python<'py>,
        stream: u32,
        begin: Unsigned,
        end: Unsigned,
        bytes_max: usize,
    ) -> PyResult<Vec<Batch<'py>>> {
        let store = self.check()?;
        let found =
            detach(py, || store.read_encoded(stream, begin.0, end.0, bytes_max)).map_err(to_py)?;
        Ok(batches(py, &found))
    }

    /// Commit runs of the LLSNs `begin..end`: (LLSN, GLSN, length).
    fn runs(
        &self,
        py: Python<'_>,
        stream: u32,
        begin: Unsigned,
        end: Unsigned,
    ) -> PyResult<Vec<Run>> {
        let store = self.check()?;
        let found = detach(py, || store.commit_runs(stream, begin.0, end.0)).map_err(to_py)?;
        Ok(runs(&found))
    }

    /// The committed record with the greatest GLSN not above `glsn`: (GLSN, LLSN).
    fn glsn_floor(
        &self,
        py: Python<'_>,
        stream: u32,
        glsn: Unsigned,
    ) -> PyResult<Option<(u64, u64)>> {
        let store = self.check()?;
        let found = detach(py, || store.glsn_floor(stream, glsn.0));
        Ok(found.map_err(to_py)?.map(|point| (point.glsn, point.llsn)))
    }

    /// The committed record with the smallest GLSN not below `glsn`: (GLSN, LLSN).
    fn glsn_ceil(
        &self,
        py: Python<'_>,
        stream: u32,
        glsn: Unsigned,
    ) -> PyResult<Option<(u64, u64)>> {
        let store = self.check()?;
        let found = detach(py, || store.glsn_ceil(stream, glsn.0));
        Ok(found.map_err(to_py)?.map(|point| (point.glsn, point.llsn)))
    }

    /// (low, committed, next, durable end, epoch, [(epoch, first LLSN)], latest commit).
    fn state(&self, stream: u32) -> PyResult<Standing> {
        let store = self.check()?;
        store.with_stream(stream, standing_of).map_err(to_py)
    }

    /// Number of the group that makes everything so far durable.
    fn ticket(&self) -> PyResult<u64> {
        self.check()?.latest().map_err(to_py)
    }

    /// Number of the newest durable group: what has a ticket up to it survives a crash.
    fn durable(&self) -> PyResult<u64> {
        self.check()?.durable().map_err(to_py)
    }

    /// Make everything so far durable, in this thread.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.check()?;
        detach(py, || store.flush()).map_err(to_py)
    }

    /// Check frames of sealed segments from (segment, offset, ordinal) on: (where to go on, bytes, damage), or
    /// `None` if none is left below segment `before`. Damage is (path, offset, reason, [(stream, first LLSN that is lost)]).
    fn scrub(
        &self,
        py: Python<'_>,
        place: (u64, u32, u32),
        before: u64,
        bytes_max: u32,
    ) -> PyResult<Option<ScrubbedRow>> {
        let store = self.check()?;
        let (segment, offset, ordinal) = place;
        let place = ScrubPlace {
            segment,
            offset,
            ordinal,
        };
        let seen = detach(py, || store.scrub(place, before, bytes_max)).map_err(to_py)?;
        Ok(seen.map(|seen| {
            let next = (seen.next.segment, seen.next.offset, seen.next.ordinal);
            let damage = seen.damage.map(|damage| {
                let path = damage.path.display().to_string();
                let lost = damage.lost.into_iter().collect();
                (path, damage.offset, damage.reason, lost)
            });
            (next, seen.bytes, damage)
        }))
    }

    /// Drop segments that hold nothing alive; how many.
    fn reclaim(&self, py: Python<'_>) -> PyResult<u64> {
        let store = self.check()?;
        let done = detach(py, || store.reclaim()).map_err(to_py)?;
        Ok(done.segments)
    }
}
