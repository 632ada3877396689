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
//!   what the failed write left behind is unknown (PostgreSQL's fsync lesson).

use std::collections::HashSet;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::batch::{ColumnsRef, Compression};
use crate::error::{Error, Result};
use crate::limits::{SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use crate::vfs::{BufPool, SyncMethod, Vfs, VfsFile, VfsLock};
use crate::wal::appender::{Appender, NewRecord, Sequenced, Sizes, Ticket};
use crate::wal::change::{Change, CommitContext, Cursor, NewLog};
use crate::wal::files::Files;
use crate::wal::parts::{Effect, Group, Part};
use crate::wal::state::State;
use crate::wal::view::View;
use crate::wal::watermark::{WATERMARK, Watermark};

/// How a store behaves. All bounds are bytes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Length of a segment file; only for a new directory, an existing one keeps its own.
    pub segment_bytes: u64,
    /// Bound on all segments together.
    pub wal_bytes_max: u64,
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
    /// Random number: node identity and checksum salts come from it.
    pub entropy: u64,
    /// What the lock file says about the holder.
    pub holder: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            wal_bytes_max: 64 << 30,
            sync_method: SyncMethod::Direct,
            sync_depth: 2,
            gather_bytes: 512 << 10,
            unsynced_bytes_max: 32 << 20,
            recent_bytes_max: 16 << 20,
            index_bytes_max: 64 << 20,
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
            || self.segment_bytes % 4096 != 0
        {
            return wrong(format!(
                "segment_bytes must be a multiple of 4096 from {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}"
            ));
        }
        if self.sync_depth == 0 || self.sync_depth > 16 {
            return wrong("sync_depth must be from 1 to 16".into());
        }
        Ok(())
    }
}

struct Flight {
    group: Arc<Group>,
    done: bool,
}

pub(super) struct Inner {
    pub(super) appender: Appender,
    flights: VecDeque<Flight>,
    durable_group: u64,
    syncs: u64,
    synced_bytes: u64,
    bulk: HashSet<u32>,
    pub(super) failed: Option<String>,
    closed: bool,
    /// Threads that write without the lock.
    writing: usize,
}

/// Counters and sizes, for people and metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Syncs done.
    pub syncs: u64,
    /// Bytes written by them.
    pub synced_bytes: u64,
    /// Segments in use.
    pub segments: u64,
    /// Most segments that may be in use.
    pub segments_max: u64,
    /// Slots that are free.
    pub free_slots: u64,
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Memory of loaded indexes.
    pub index_memory: u64,
    /// Offset behind the last durable frame in the newest segment.
    pub durable_offset: u64,
}

/// A node's write-ahead log, open for writing.
pub struct Store {
    pub(super) view: Arc<View>,
    pub(super) inner: Mutex<Inner>,
    flushed: Condvar,
    pub(super) files: Mutex<Files>,
    watermark: Arc<dyn VfsFile>,
    pub(super) options: Options,
    pub(super) cleaning: Mutex<()>,
    lock: Mutex<Option<Box<dyn VfsLock>>>,
}

impl Store {
    pub(super) fn assemble(
        view: Arc<View>,
        appender: Appender,
        files: Files,
        watermark: Arc<dyn VfsFile>,
        options: Options,
        lock: Box<dyn VfsLock>,
    ) -> Result<Self> {
        let inner = Inner {
            appender,
            flights: VecDeque::new(),
            durable_group: 0,
            syncs: 0,
            synced_bytes: 0,
            bulk: HashSet::new(),
            failed: None,
            closed: false,
            writing: 0,
        };
        let store = Self {
            view,
            inner: Mutex::new(inner),
            flushed: Condvar::new(),
            files: Mutex::new(files),
            watermark,
            options,
            cleaning: Mutex::new(()),
            lock: Mutex::new(Some(lock)),
        };
        store.sync()?;
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
        let mut inner = self.guard()?;
        while inner.bulk.contains(&stream)
            || inner.appender.unsynced(&inner) > self.options.unsynced_bytes_max
        {
            inner = self.make_room(inner)?;
        }
        inner.appender.push(stream, record, producer)
    }

    /// Whether [`Store::append`] would return without waiting for other appends.
    pub fn would_wait(&self, stream: u32) -> bool {
        let inner = self.inner.lock();
        inner.bulk.contains(&stream)
            || inner.appender.unsynced(&inner) > self.options.unsynced_bytes_max
    }

    /// Append many records given as columns, in batches of about `target` bytes. They get consecutive
    /// LLSNs; after a crash a prefix of them may be there.
    pub fn append_columns(
        &self,
        stream: u32,
        columns: &ColumnsRef<'_>,
        target: usize,
        producer: Option<Sequenced>,
    ) -> Result<Ticket> {
        let mut inner = self.guard()?;
        while inner.bulk.contains(&stream)
            || inner.appender.unsynced(&inner) > self.options.unsynced_bytes_max
        {
            inner = self.make_room(inner)?;
        }
        inner
            .appender
            .append_columns(stream, columns, target, producer)
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

    /// Append a piece of a bulk append.
    pub fn append_piece(
        &self,
        stream: u32,
        columns: &ColumnsRef<'_>,
        target: usize,
        producer: Option<Sequenced>,
    ) -> Result<Ticket> {
        let mut inner = self.guard()?;
        while inner.appender.unsynced(&inner) > self.options.unsynced_bytes_max {
            inner = self.make_room(inner)?;
        }
        inner
            .appender
            .append_columns(stream, columns, target, producer)
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
        let mut inner = self.guard()?;
        while inner.appender.unsynced(&inner) > self.options.unsynced_bytes_max {
            inner = self.make_room(inner)?;
        }
        inner.appender.append_encoded(stream, epoch, llsn, batch)
    }

    /// Compression of the stream's batches from now on.
    pub fn set_compression(&self, stream: u32, compression: Compression) {
        self.inner
            .lock()
            .appender
            .set_compression(stream, compression);
    }

    /// Place a change at the stream's epoch, or at the one given; returns its group.
    fn change(&self, stream: u32, epoch: Option<u64>, llsn: u64, change: &Change) -> Result<u64> {
        match self.try_change(stream, epoch, llsn, change) {
            // Segments that hold changes only die when they are sealed.
            Err(full @ Error::LogFull { .. }) => {
                self.sync()?;
                if self.reclaim()?.segments == 0 {
                    return Err(full);
                }
                self.try_change(stream, epoch, llsn, change)
            }
            other => other,
        }
    }

    fn try_change(
        &self,
        stream: u32,
        epoch: Option<u64>,
        llsn: u64,
        change: &Change,
    ) -> Result<u64> {
        let mut inner = self.guard()?;
        let current = inner
            .appender
            .state
            .streams
            .get(&stream)
            .map_or(0, |stream| stream.epoch);
        inner
            .appender
            .change(stream, epoch.unwrap_or(current), llsn, change)
    }

    /// Create a log with one stream; returns the stream. Durable on return.
    pub fn create_log(&self, log: NewLog) -> Result<u32> {
        let (stream, group) = {
            let mut inner = self.guard()?;
            let stream = inner.appender.state.next_stream;
            (
                stream,
                inner
                    .appender
                    .change(stream, 0, 0, &Change::CreateLog(log))?,
            )
        };
        self.wait(group)?;
        Ok(stream)
    }

    /// Delete a log and everything in it. Durable on return; its segments are reclaimed.
    pub fn delete_log(&self, id: u128) -> Result<()> {
        let Some(stream) = self.with_state(|state| state.logs.get(&id).map(|log| log.stream))
        else {
            return Err(Error::NotFound { what: "log".into() });
        };
        self.wait(self.change(stream, None, 0, &Change::DeleteLog(id))?)?;
        self.reclaim().map(|_| ())
    }

    /// Replace a log's options. Durable on return.
    pub fn alter_log(&self, id: u128, options: Vec<u8>) -> Result<()> {
        self.wait(self.change(0, None, 0, &Change::AlterLog(id, options))?)
    }

    /// Write a cursor. Durable once [`Store::wait`] returns for the group.
    pub fn set_cursor(&self, stream: u32, name: &str, cursor: Cursor) -> Result<u64> {
        self.change(stream, None, 0, &Change::SetCursor(name.into(), cursor))
    }

    /// Delete a cursor. Durable on return.
    pub fn delete_cursor(&self, stream: u32, name: &str) -> Result<()> {
        self.wait(self.change(stream, None, 0, &Change::DeleteCursor(name.into()))?)
    }

    /// Let everything below `first` go. The new low watermark is durable before any file goes; returns it.
    pub fn trim(&self, stream: u32, first: u64) -> Result<u64> {
        let low = {
            let inner = self.guard()?;
            inner.appender.state.stream(stream)?.low
        };
        if first <= low {
            return Ok(low);
        }
        // The records may still be on their way; what is trimmed must be committed first.
        self.sync()?;
        self.wait(self.change(stream, None, first, &Change::Trim)?)?;
        self.reclaim()?;
        Ok(first)
    }

    /// Commit a run of records of a stream with explicit commits.
    pub fn commit(&self, stream: u32, epoch: u64, context: CommitContext) -> Result<u64> {
        self.change(
            stream,
            Some(epoch),
            context.llsn_begin,
            &Change::Commit(context),
        )
    }

    /// Cut an uncommitted tail: records from `from` on never happened.
    pub fn rollback(&self, stream: u32, epoch: u64, from: u64) -> Result<u64> {
        self.change(stream, Some(epoch), from, &Change::Rollback)
    }

    /// Enter a new epoch.
    pub fn raise_epoch(&self, stream: u32, epoch: u64) -> Result<u64> {
        self.change(stream, Some(epoch), 0, &Change::Epoch)
    }

    /// Make everything appended so far durable.
    pub fn sync(&self) -> Result<()> {
        let latest = self.guard()?.appender.latest();
        self.wait(latest)
    }

    /// Whether the group is durable.
    pub fn is_durable(&self, group: u64) -> Result<bool> {
        let inner = self.inner.lock();
        if inner.durable_group >= group {
            return Ok(true);
        }
        inner.check().map(|()| false)
    }

    /// Wait until the group is durable, leading its sync if nobody does.
    ///
    /// Fails with [`Error::Failed`] if a write failed: whether the records survive is then unknown.
    pub fn wait(&self, group: u64) -> Result<()> {
        let mut inner = self.inner.lock();
        while inner.durable_group < group {
            inner.check()?;
            if self.may_lead(&inner) {
                self.lead(&mut inner)?;
            } else {
                self.flushed.wait(&mut inner);
            }
        }
        Ok(())
    }

    /// Wait at most `timeout` for the group; false if it is not durable then. Leads if it may.
    pub fn wait_for(&self, group: u64, timeout: std::time::Duration) -> Result<bool> {
        let mut inner = self.inner.lock();
        while inner.durable_group < group {
            inner.check()?;
            if self.may_lead(&inner) {
                self.lead(&mut inner)?;
            } else if self.flushed.wait_for(&mut inner, timeout).timed_out() {
                return Ok(inner.durable_group >= group);
            }
        }
        Ok(true)
    }

    /// Serve as a dedicated sync thread: wait for something to sync, sync it, and return the durable
    /// group. `None` once the store is closed or failed.
    pub fn sync_next(&self) -> Option<u64> {
        let mut inner = self.inner.lock();
        loop {
            if inner.check().is_err() {
                return None;
            }
            if inner.appender.has_unsealed() && self.may_lead(&inner) {
                let _ = self.lead(&mut inner);
                return Some(inner.durable_group);
            }
            self.flushed.wait(&mut inner);
        }
    }

    /// Tell a dedicated sync thread that something waits.
    pub fn nudge(&self) {
        self.flushed.notify_all();
    }

    fn may_lead(&self, inner: &Inner) -> bool {
        inner.appender.has_unsealed()
            && (inner.flights.is_empty()
                || (inner.flights.len() < self.options.sync_depth
                    && inner.appender.unsealed_bytes() >= self.options.gather_bytes
                    && !inner.flights.iter().any(|flight| flight.group.rolls())))
    }

    /// Wait for unsynced bytes to become durable, or make them so.
    fn make_room<'a>(&'a self, mut inner: MutexGuard<'a, Inner>) -> Result<MutexGuard<'a, Inner>> {
        if self.may_lead(&inner) {
            self.lead(&mut inner)?;
        } else {
            self.flushed.wait(&mut inner);
        }
        inner.check()?;
        Ok(inner)
    }

    /// Seal the gathered group, write it without the lock, retire what is done.
    fn lead(&self, inner: &mut MutexGuard<'_, Inner>) -> Result<()> {
        let group = match inner.appender.seal() {
            Ok(group) => Arc::new(group),
            Err(error) => return Err(self.fail(inner, &error)),
        };
        inner.flights.push_back(Flight {
            group: Arc::clone(&group),
            done: false,
        });
        inner.appender.in_flight = inner.flights.len();
        while group.rolls() && inner.flights.len() > 1 {
            self.flushed.wait(inner);
            inner.check()?;
        }
        inner.writing += 1;
        let written = MutexGuard::unlocked(inner, || self.write(&group));
        inner.writing -= 1;
        if let Err(error) = written {
            return Err(self.fail(inner, &error));
        }
        if let Err(error) = inner.check() {
            self.flushed.notify_all();
            return Err(error);
        }
        if let Some(flight) = inner
            .flights
            .iter_mut()
            .find(|flight| flight.group.number == group.number)
        {
            flight.done = true;
        }
        while inner.flights.front().is_some_and(|flight| flight.done) {
            let Some(flight) = inner.flights.pop_front() else {
                break;
            };
            inner.appender.in_flight = inner.flights.len();
            if let Err(error) = self.retire(inner, &flight.group) {
                return Err(self.fail(inner, &error));
            }
        }
        self.flushed.notify_all();
        Ok(())
    }

    fn fail(&self, inner: &mut MutexGuard<'_, Inner>, error: &Error) -> Error {
        let reason = inner
            .failed
            .get_or_insert_with(|| error.to_string())
            .clone();
        self.view.shut();
        self.flushed.notify_all();
        Error::Failed { reason }
    }

    fn write(&self, group: &Group) -> Result<()> {
        for part in &group.parts {
            if part.opens {
                self.open_segment(part)?;
            } else {
                self.write_part(part)?;
            }
        }
        Ok(())
    }

    fn write_part(&self, part: &Part) -> Result<()> {
        let writer = part
            .segment
            .take_writer(&*self.view.vfs, self.options.sync_method)?;
        writer.write_durable_at(&part.buf, part.start.into())?;
        part.segment.return_writer(writer);
        Ok(())
    }

    /// Write the first part of a segment, then list it, and seal the one before: only then does it exist.
    fn open_segment(&self, part: &Part) -> Result<()> {
        let mut files = self.files.lock();
        let slot = files.take_slot(u64::from(part.segment.bytes))?;
        part.segment.set_slot(&self.view.dir, slot);
        self.write_part(part)?;
        files.open_segment(&self.view, &part.segment, part.seals.as_ref())?;
        let mut segments = self.view.segments().to_vec();
        segments.push(Arc::clone(&part.segment));
        self.view.set_segments(segments);
        self.view.bound_index_memory();
        Ok(())
    }

    /// Publish a durable group.
    fn retire(&self, inner: &mut MutexGuard<'_, Inner>, group: &Group) -> Result<()> {
        for part in &group.parts {
            if part.segment.number == inner.appender.active.segment.number {
                inner.appender.active.durable = part.end;
            }
        }
        inner.durable_group = group.number;
        inner.syncs += 1;
        inner.synced_bytes += group.bytes as u64;
        // First the bytes, then the range that lets readers see them: they may replace some that a
        // rollback cut.
        for part in &group.parts {
            self.view.remember(part);
        }
        for effect in &group.effects {
            match effect {
                Effect::Range(stream, range) => self.view.publish(*stream, *range),
                Effect::Gone(stream) => self.view.remove(*stream),
            }
        }
        self.publish_watermark(inner)
    }

    fn publish_watermark(&self, inner: &MutexGuard<'_, Inner>) -> Result<()> {
        let active = &inner.appender.active;
        // A segment that is placed but not yet durable has no watermark of its own.
        if active.durable == 0 {
            return Ok(());
        }
        let segment = &active.segment;
        let (salt, durable) = (segment.seed.salt, active.durable);
        self.watermark.write_all_at(
            &Watermark {
                segment: segment.number,
                salt,
                durable,
            }
            .encode(),
            0,
        )
    }

    /// A copy of the state: catalog, ranges, producers, cursors as of everything appended.
    pub fn state(&self) -> State {
        self.inner.lock().appender.state.clone()
    }

    /// Run `f` on the state without copying it.
    pub fn with_state<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        f(&self.inner.lock().appender.state)
    }

    /// Next LLSN a push would get.
    pub fn next_llsn(&self, stream: u32) -> Result<u64> {
        self.inner.lock().appender.next_llsn(stream)
    }

    /// Counters and sizes.
    pub fn stats(&self) -> Stats {
        let free_slots = self.files.lock().free_slots() as u64;
        let index_memory = self
            .view
            .segments()
            .iter()
            .map(|s| s.index_memory() as u64)
            .sum();
        let inner = self.inner.lock();
        Stats {
            syncs: inner.syncs,
            synced_bytes: inner.synced_bytes,
            segments: inner.appender.segments_used,
            segments_max: inner.appender.sizes.segments_max,
            free_slots,
            segment_bytes: inner.appender.sizes.segment_bytes.into(),
            index_memory,
            durable_offset: inner.appender.active.durable.into(),
        }
    }

    /// Have a free slot ready before the active segment is full, so that no append waits for
    /// zero-filling. Returns whether one was made.
    pub fn prepare_slot(&self) -> Result<bool> {
        let wanted = {
            let inner = self.guard()?;
            let appender = &inner.appender;
            let half = appender.active.offset > appender.active.segment.bytes / 2;
            half && appender.segments_used < appender.sizes.segments_max
        };
        if !wanted || self.files.lock().free_slots() > 0 {
            return Ok(false);
        }
        let bytes = u64::from(self.inner.lock().appender.sizes.segment_bytes);
        Files::prepare(&self.files, bytes).map(|()| true)
    }

    /// Make `bytes` of free slots ready now (benchmarks, latency-sensitive starts). Returns the slots made.
    pub fn provision(&self, bytes: u64) -> Result<u64> {
        let (segment, max, used) = {
            let inner = self.guard()?;
            let sizes = inner.appender.sizes;
            (
                u64::from(sizes.segment_bytes),
                sizes.segments_max,
                inner.appender.segments_used,
            )
        };
        let want = bytes.div_ceil(segment).min(max.saturating_sub(used));
        let mut made = 0;
        while (self.files.lock().free_slots() as u64) < want {
            Files::prepare(&self.files, segment)?;
            made += 1;
        }
        Ok(made)
    }

    /// Close in good order: everything appended is durable, and a later open knows that nothing is missing.
    /// Idempotent. After a failure the directory is released as it is, but not before every write that
    /// is under way has returned: what lands later would hit the next writer's log.
    pub fn close(&self) -> Result<()> {
        let result = self.close_log();
        let mut inner = self.inner.lock();
        inner.closed = true;
        self.flushed.notify_all();
        self.view.shut();
        while inner.writing > 0 {
            self.flushed.wait(&mut inner);
        }
        drop(inner);
        self.files.lock().release();
        *self.lock.lock() = None;
        result
    }

    fn close_log(&self) -> Result<()> {
        {
            let inner = self.inner.lock();
            if inner.closed || inner.failed.is_some() {
                return Ok(());
            }
        }
        self.sync()?;
        self.wait(self.change(0, None, 0, &Change::Close)?)?;
        self.files.lock().close()
    }
}

impl Inner {
    fn check(&self) -> Result<()> {
        match self.failed.as_ref().or(self.appender.broken.as_ref()) {
            Some(reason) => Err(Error::Failed {
                reason: reason.clone(),
            }),
            None if self.closed => Err(Error::Closed),
            None => Ok(()),
        }
    }

    fn flight_bytes(&self) -> usize {
        self.flights.iter().map(|flight| flight.group.bytes).sum()
    }
}

impl Appender {
    fn unsynced(&self, inner: &Inner) -> usize {
        self.unsealed_bytes() + inner.flight_bytes()
    }
}

/// Path of the watermark file.
pub(super) fn watermark_path(dir: &Path) -> PathBuf {
    dir.join(WATERMARK)
}

/// Buffers for parts and reads.
pub(super) fn new_pool() -> BufPool {
    BufPool::new(64, 64 << 20)
}

/// Segment counts from byte bounds.
pub(super) fn sizes(segment_bytes: u32, wal_bytes_max: u64) -> Result<Sizes> {
    let segments_max = wal_bytes_max / u64::from(segment_bytes);
    if segments_max < 4 {
        let least = 4 * u64::from(segment_bytes);
        return Err(Error::InvalidArgument(format!(
            "wal_bytes_max must be at least four segments ({least} bytes)"
        )));
    }
    Ok(Sizes {
        segment_bytes,
        segments_max,
    })
}

/// Whether the file system is there at all, before anything is created.
pub(super) fn make_dirs(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    vfs.create_dir_all(&dir.join("wal"))?;
    vfs.sync_dir(dir)
}
