//! What is not an append: the catalog, commits; figures, spare slots, closing.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::wal::change::{Change, CommitContext, NewLog, Restart};
use crate::wal::state::State;
use crate::wal::store::Store;
use crate::wal::view::Range;

/// Counters and sizes, for people and metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Syncs done.
    pub syncs: u64,
    /// Bytes written by them.
    pub synced_bytes: u64,
    /// Segments in use.
    pub segments: u64,
    /// Number of the newest of them.
    pub newest_segment: u64,
    /// Most segments that may be in use.
    pub segments_max: u64,
    /// Slots that are free.
    pub free_slots: u64,
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Memory of loaded indexes.
    pub index_memory: u64,
    /// Bytes of the side files of sealed segments.
    pub index_bytes: u64,
    /// Samples in the loaded indexes.
    pub samples: u64,
    /// Side files of dropped segments that could not be removed yet.
    pub side_files_left: u64,
    /// Offset behind the last durable frame in the newest segment.
    pub durable_offset: u64,
}
/// A rest of a segment that a close leaves to the next open is smaller than this part of it.
const CLOSE_STEPS: u32 = 512;

/// What to change of a state, and at which LLSN.
pub(super) type Decide<'a> = &'a dyn Fn(&State) -> Result<Option<(u64, Cow<'a, Change>)>>;

impl Store {
    /// Place a change at the stream's epoch, or at the one given; returns its group.
    pub(super) fn change(
        &self,
        stream: u32,
        epoch: Option<u64>,
        llsn: u64,
        change: &Change,
    ) -> Result<u64> {
        self.change_if(stream, epoch, &|_| Ok(Some((llsn, Cow::Borrowed(change)))))
    }

    /// Place the change that `decide` makes of the state, with no other change in between. Returns the group
    /// with which everything that it saw is durable, also if it wants none.
    pub(super) fn change_if(
        &self,
        stream: u32,
        epoch: Option<u64>,
        decide: Decide<'_>,
    ) -> Result<u64> {
        let full = loop {
            match self.try_change(stream, epoch, decide) {
                // A file that is short may have to grow more than once.
                Err(full @ Error::LogFull { .. }) => {
                    if !self.ensure_slot()? {
                        break full;
                    }
                }
                other => return other,
            }
        };
        // Segments that hold changes only die when they are sealed.
        self.sync()?;
        if self.reclaim()?.segments == 0 && !self.renew_reserve(decide)? {
            return Err(full);
        }
        self.try_change(stream, epoch, decide)
    }

    /// Give a full log a reserve again if the change is one that has to find room.
    fn renew_reserve(&self, decide: Decide<'_>) -> Result<bool> {
        {
            let mut inner = self.guard()?;
            let change = decide(&inner.appender.state)?;
            if !change.is_some_and(|(_, change)| change.takes_reserve()) {
                return Ok(false);
            }
            inner.appender.renew_reserve();
        }
        self.ensure_slot()
    }

    fn try_change(&self, stream: u32, epoch: Option<u64>, decide: Decide<'_>) -> Result<u64> {
        let mut inner = self.guard()?;
        let Some((llsn, change)) = decide(&inner.appender.state)? else {
            return Ok(inner.appender.latest());
        };
        let current = inner
            .appender
            .state
            .streams
            .get(&stream)
            .map_or(0, |stream| stream.epoch);
        let epoch = epoch.unwrap_or(current);
        let change = &*change;
        let group = inner.appender.change(stream, epoch, llsn, change)?;
        match change {
            Change::Rollback => inner.note_rollback(stream, llsn, group),
            Change::Commit(_) => self.show_committed(&inner, stream),
            // Its owner goes on with it at once.
            Change::Restart(_, Restart { first, .. }) => self.view.publish(
                stream,
                Range {
                    first: *first,
                    end: *first,
                    durable: *first,
                    epoch,
                },
            ),
            _ => {}
        }
        Ok(group)
    }

    /// Create a log with one stream; returns the stream. Durable on return.
    pub fn create_log(&self, log: NewLog) -> Result<u32> {
        let change = Change::CreateLog(log);
        // Another thread may take the number between the look and the change; then once more.
        let (stream, group) = loop {
            let stream = self.guard()?.appender.state.next_stream;
            match self.change(stream, None, 0, &change) {
                Err(Error::NotDense { .. }) => {}
                other => break (stream, other?),
            }
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

    /// Commit a run of records of a stream with explicit commits. Readers see what is durable of it at once.
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

    /// Counters and sizes.
    pub fn stats(&self) -> Stats {
        let index_memory = self
            .view
            .segments()
            .iter()
            .map(|s| s.index_memory() as u64)
            .sum();
        let segments = self.view.segments();
        let sealed = segments.iter().filter_map(|segment| segment.sealed());
        let index_bytes = sealed.map(|sealed| u64::from(sealed.side_bytes)).sum();
        let samples = segments.iter().map(|segment| segment.samples()).sum();
        let side_files_left = self.files.lock().sides_left();
        let inner = self.inner.lock();
        Stats {
            syncs: inner.syncs,
            synced_bytes: inner.synced_bytes,
            segments: inner.appender.segments_used,
            newest_segment: segments.last().map_or(0, |newest| newest.number),
            segments_max: inner.appender.sizes.segments_max,
            free_slots: inner.appender.slots_ready,
            segment_bytes: inner.appender.sizes.segment_bytes.into(),
            index_memory,
            index_bytes,
            samples,
            side_files_left,
            durable_offset: inner.appender.active.durable.into(),
        }
    }

    /// Give up this process's copy of the lock, in the child of a fork: the lock stays its parent's, and
    /// does not outlive it in the child.
    pub fn abandon_lock(&self) {
        // Held only by a close in the parent, which will not go on here.
        if let Some(mut lock) = self.lock.try_lock() {
            *lock = None;
        }
    }

    /// Close in good order: everything appended is durable, and a later open knows that nothing is missing.
    /// Idempotent. After a failure the directory is released as it is, but not before every write that
    /// is under way has returned: what lands later would hit the next writer's log.
    pub fn close(&self) -> Result<()> {
        let result = self.close_log();
        let mut inner = self.inner.lock();
        inner.closed = true;
        self.wake_all(&inner);
        self.slot_wanted.notify_all();
        self.view.shut();
        while inner.writing > 0 {
            self.flushed.wait(&mut inner);
        }
        // Whoever still holds a log of this node must not keep its file system busy.
        inner.appender.active.segment.close_files();
        drop(inner);
        self.view.close_files();
        self.marks.close();
        self.files.lock().release();
        *self.lock.lock() = None;
        result
    }

    /// Before a close: leave the next open next to nothing to fold.
    fn checkpoint_rest(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        let active = &inner.appender.active;
        let rest = active.offset - active.checkpoint;
        // Somebody may still be appending.
        let quiet = active.durable == active.offset
            && !inner.appender.has_unsealed()
            && inner.appender.orders.is_idle();
        if !quiet || rest < active.segment.bytes / CLOSE_STEPS {
            return Ok(());
        }
        let checkpoint = inner.appender.checkpoint()?;
        self.marks.checkpoint(&checkpoint)
    }

    pub(super) fn close_log(&self) -> Result<()> {
        {
            let inner = self.inner.lock();
            if inner.closed || inner.failed.is_some() {
                return Ok(());
            }
        }
        self.sync_last()?;
        if self.files.lock().is_untouched() {
            return Ok(());
        }
        self.checkpoint_rest()?;
        match self.change(0, None, 0, &Change::Close) {
            Ok(_) => self.sync_last()?,
            // No room for the mark: the next open looks for a torn tail, and finds none.
            Err(Error::LogFull { .. }) => {}
            Err(error) => return Err(error),
        }
        self.files.lock().close()
    }
}
