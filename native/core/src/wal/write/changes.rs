//! What is not an append: the catalog, commits, rollbacks, epochs, trims.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::wal::format::change::{Change, CommitContext, NewLog, Restart};
use crate::wal::format::state::State;
use crate::wal::read::stream::Range;
use crate::wal::write::store::Store;

/// What to change of a state, and at which LLSN.
pub(crate) type Decide<'a> = &'a dyn Fn(&State) -> Result<Option<(u64, Cow<'a, Change>)>>;

impl Store {
    /// Place a change at the stream's epoch, or at the one given; returns its group.
    pub(crate) fn change(
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
        // The log is full. What was placed may have made segments dead, and that counts once it is durable. If
        // nothing can be dropped, a change that frees space or settles what is there gets a reserve beyond the
        // bound; others are refused.
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
            // Readers must not see again, from older frames, what is cut, though the cut is not durable yet.
            Change::Rollback => inner.note_rollback(stream, llsn, group),
            // Decided by a majority elsewhere, so readers need not wait for this frame.
            Change::Commit(_) => self.show_committed(&inner, stream),
            // The replica goes on with the new stream at once, before the change is durable.
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

    /// Replace a log's options. Durable once [`Store::wait`] returns for the group.
    pub fn submit_alter(&self, id: u128, options: Vec<u8>) -> Result<u64> {
        self.change(0, None, 0, &Change::AlterLog(id, options))
    }

    /// Let everything below `first` go, as soon as that is durable and [`Store::reclaim`] is called.
    pub fn submit_trim(&self, stream: u32, first: u64) -> Result<u64> {
        let latest = {
            let inner = self.guard()?;
            let low = inner.appender.state.stream(stream)?.low;
            (first <= low).then(|| inner.appender.latest())
        };
        latest.map_or_else(|| self.change(stream, None, first, &Change::Trim), Ok)
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
}
