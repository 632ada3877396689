//! A replica of a log stream: where it stands, what of that is durable, and who waits.
//!
//! *Theory of operation.* Whoever drives it writes to the disk and says where the stream stands then
//! ([`Stream::wrote`]), with the ticket by which that is durable. Python decides what a replica is: epochs, roles,
//! what it lacks. While nothing but appends happens to it, it is *settled* in a [`Part`] ([`Stream::settle`]),
//! and then it is said here whether a frame is exactly what is next: batches for a backup
//! ([`Stream::takes`]), or a cut ([`Stream::cut`]). Every other input ends that, and what is not
//! taken is Python's to judge.
//!
//! Cuts, reports and the commit context are Varlog's.
//!
//! *Invariants.* low <= committed <= next. Nothing is durable before its ticket is synced, and what was
//! rolled back is not durable, whatever is synced later. Commits are dense, versions and GLSNs rise. Those who
//! wait do so in the order of their LLSNs, and each is given back once.

mod frames;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

pub use super::leader::Run;
pub use frames::{
    Batches, COMMIT, Cut, REPLICATE, commits, encode_commit, encode_replicate, replicate,
};

use crate::wal::CommitContext;

/// A rule of a replica that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

/// Where a stream stands on the disk, all writes so far included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// First LLSN that is kept.
    pub low: u64,
    /// First LLSN that is not committed.
    pub committed: u64,
    /// LLSN of the next record.
    pub next: u64,
    /// The last epoch that was entered.
    pub epoch: u64,
    /// The latest commit.
    pub context: CommitContext,
}

impl Standing {
    fn mark(&self) -> Mark {
        Mark {
            end: self.next,
            version: self.context.version,
            epoch: self.epoch,
        }
    }
}

/// Where a stream stood when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// LLSN behind the last record.
    pub end: u64,
    /// The latest cut.
    pub version: u64,
    /// The epoch.
    pub epoch: u64,
}

impl Mark {
    fn cut(self, llsn: u64) -> Self {
        let end = self.end.min(llsn);
        Self { end, ..self }
    }
}

/// What a settled replica does in its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It gives positions.
    Primary,
    /// It writes what the primary sends.
    Backup,
}

/// Somebody who waits until a batch is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter<R> {
    /// Who it is.
    pub request: R,
    /// First record of the batch.
    pub llsn: u64,
    /// Its records.
    pub count: u64,
    /// Its bytes.
    pub size: u64,
}

/// Where a batch is that is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed<R> {
    /// Who waited for it.
    pub request: R,
    /// Position of its first record in the stream.
    pub llsn: u64,
    /// Position of that record in the log.
    pub glsn: u64,
    /// Its records.
    pub count: u64,
}

/// What a cut means to a settled replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It was told before.
    Known,
    /// This is to be written.
    Commit(CommitContext),
}

/// State of a replica; see the module.
pub struct Stream<R> {
    number: u64,
    standing: Standing,
    durable: Mark,
    pending: VecDeque<(u64, Mark)>,
    waiters: VecDeque<Waiter<R>>,
    waiting_bytes: u64,
    part: Option<Part>,
    said: Option<(u64, u64, u8)>,
}

impl<R> Stream<R> {
    /// Begin with what the disk holds; all of it is durable.
    pub fn new(number: u64, standing: Standing) -> Self {
        Self {
            number,
            standing,
            durable: standing.mark(),
            pending: VecDeque::new(),
            waiters: VecDeque::new(),
            waiting_bytes: 0,
            part: None,
            said: None,
        }
    }

    /// Number of the stream.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Where it stands.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// What is durable.
    pub fn durable(&self) -> Mark {
        self.durable
    }

    /// Whether something was written that is not known to be durable.
    pub fn is_unsynced(&self) -> bool {
        !self.pending.is_empty()
    }

    // --- the disk

    /// Take over where the stream stands now, which is durable with `ticket`.
    pub fn wrote(&mut self, standing: Standing, ticket: u64) -> Result<(), Broken> {
        if standing.low > standing.committed || standing.committed > standing.next {
            return Err(Broken("positions are out of order"));
        }
        self.standing = standing;
        if self.pending.back().is_some_and(|last| last.0 == ticket) {
            self.pending.pop_back();
        }
        self.pending.push_back((ticket, standing.mark()));
        Ok(())
    }

    /// Take back what was said of `llsn` and everything behind it.
    pub fn take_back(&mut self, llsn: u64) {
        self.durable = self.durable.cut(llsn);
        for (_, mark) in &mut self.pending {
            *mark = mark.cut(llsn);
        }
    }

    /// Note that every write up to `ticket` is durable.
    pub fn synced(&mut self, ticket: u64) {
        while self.pending.front().is_some_and(|(of, _)| *of <= ticket) {
            if let Some((_, mark)) = self.pending.pop_front() {
                self.durable = mark;
            }
        }
    }

    // --- reports

    /// Whether what is durable, or the state, is another one than was said last.
    pub fn is_unsaid(&self, state: u8) -> bool {
        self.said != Some((self.durable.end, self.durable.epoch, state))
    }

    /// Note that it is said now.
    pub fn say(&mut self, state: u8) -> Result<Mark, Broken> {
        if self.durable.end > self.standing.next {
            return Err(Broken("something is durable that is not there"));
        }
        self.said = Some((self.durable.end, self.durable.epoch, state));
        Ok(self.durable)
    }

    // --- commits

    /// The commit context of a run that continues what is committed.
    pub fn context_of(
        &self,
        run: &Run,
        version: u64,
        high_watermark: u64,
    ) -> Result<CommitContext, Broken> {
        let Standing {
            committed,
            next,
            context,
            ..
        } = &self.standing;
        if version < context.version {
            return Err(Broken("the version falls"));
        }
        if run.llsn != *committed {
            return Err(Broken("a commit leaves something out"));
        }
        if run.length > next - committed {
            return Err(Broken("a commit of nothing"));
        }
        if run.glsn < context.glsn_begin + context.length {
            return Err(Broken("the GLSN falls"));
        }
        Ok(CommitContext {
            version,
            glsn_begin: run.glsn,
            llsn_begin: run.llsn,
            length: run.length,
            high_watermark: high_watermark.max(context.high_watermark),
        })
    }

    /// The run of a cut that gave nothing to this stream.
    pub fn idle(&self) -> Run {
        let Standing {
            committed, context, ..
        } = &self.standing;
        Run {
            stream: self.number,
            llsn: *committed,
            glsn: context.glsn_begin + context.length,
            length: 0,
            epoch: self.standing.epoch,
        }
    }

    // --- who waits

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Bytes of the batches that they wait for.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// Those who wait.
    pub fn waiters(&self) -> impl Iterator<Item = &Waiter<R>> {
        self.waiters.iter()
    }

    /// Let somebody wait for a batch behind those of all others.
    pub fn wait(&mut self, waiter: Waiter<R>) {
        self.waiting_bytes += waiter.size;
        self.waiters.push_back(waiter);
    }

    /// Take those whose batches are committed by a run.
    pub fn release(&mut self, run: &Run) -> Result<Vec<Placed<R>>, Broken> {
        let end = run.llsn + run.length;
        let mut released = Vec::new();
        while let Some(first) = self.waiters.front() {
            if first.llsn >= self.standing.committed {
                break;
            }
            if first.llsn < run.llsn || first.llsn + first.count > end {
                return Err(Broken("a batch is not wholly in one cut"));
            }
            let Some(waiter) = self.waiters.pop_front() else {
                break;
            };
            self.waiting_bytes -= waiter.size;
            released.push(Placed {
                request: waiter.request,
                llsn: waiter.llsn,
                glsn: run.glsn + (waiter.llsn - run.llsn),
                count: waiter.count,
            });
        }
        Ok(released)
    }

    /// Take those who wait for batches from `llsn` on.
    pub fn give_up(&mut self, llsn: u64) -> Vec<R> {
        let first = self.waiters.partition_point(|waiter| waiter.llsn < llsn);
        let gone = self.waiters.split_off(first);
        self.waiting_bytes -= gone.iter().map(|waiter| waiter.size).sum::<u64>();
        gone.into_iter().map(|waiter| waiter.request).collect()
    }

    /// Let go of all, as if nobody had ever waited.
    pub fn clear(&mut self) {
        self.waiters.clear();
        self.waiting_bytes = 0;
    }

    // --- what is hot

    /// Say what it does while nothing but appends happens; `None`: Python looks at everything.
    pub fn settle(&mut self, part: Option<Part>) {
        self.part = part;
    }

    /// What it does, if it is settled.
    pub fn part(&self) -> Option<Part> {
        self.part
    }

    /// Whether these batches are for a backup as this one, and the next.
    pub fn takes(&self, batches: &Batches) -> bool {
        self.part == Some(Part::Backup)
            && batches.stream == self.number
            && batches.epoch == self.standing.epoch
            && batches.llsn == self.standing.next
            && !batches.sizes.is_empty()
    }

    /// What a cut of the log of this stream means, if it is the next one; `None` is no verdict.
    pub fn cut(&self, cut: &Cut<'_>) -> Option<Taken> {
        self.part?;
        let Standing {
            committed,
            epoch,
            context,
            ..
        } = &self.standing;
        if cut.version <= context.version {
            return Some(Taken::Known);
        }
        let given = cut.runs.iter().find(|run| run.stream == self.number);
        let run = if let Some(run) = given {
            let end = run.llsn.checked_add(run.length)?;
            let next = run.epoch == *epoch
                && run.llsn == *committed
                && run.length > 0
                && run.glsn > 0
                && end <= self.durable.end;
            next.then_some(*run)?
        } else {
            // The log ended before this cut where it ends here: no cut is missing in between.
            let last = cut.high_watermark.checked_sub(cut.given()?)?;
            (last == context.high_watermark).then(|| self.idle())?
        };
        let context = self.context_of(&run, cut.version, cut.high_watermark);
        context.ok().map(Taken::Commit)
    }
}
