//! One stream as readers see it: its range, how they wait for it to grow, and what they keep of it.
//!
//! # Invariants
//!
//! - `first` and `end` never fall while a stream lives.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex};

use crate::wal::format::stream::Stream;
use crate::wal::segments::part::{Part, Placed};
use crate::wal::segments::segment::Segment;

/// What can be read of a stream: LLSNs `first..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First LLSN (low watermark).
    pub first: u64,
    /// One past the last committed and durable LLSN (high watermark + 1).
    pub end: u64,
    /// One past the last durable LLSN.
    pub durable: u64,
    /// Epoch of the stream.
    pub epoch: u64,
}

/// Where a range of a stream's LLSNs is stored.
#[derive(Clone)]
pub struct Extent {
    /// First LLSN.
    pub begin: u64,
    /// One past the last.
    pub end: u64,
    /// The segment.
    pub segment: Arc<Segment>,
    /// [`NATIVE`], or a lane of copies made by the cleaner, or [`UNKNOWN`].
    pub lane: u32,
}

/// Lane of what a segment may hold whose index can neither be read nor made again.
pub const UNKNOWN: u32 = u32::MAX;

/// Result of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The position is there.
    Ready,
    /// The time was up first.
    TimedOut,
    /// The waiter was cancelled, the stream deleted or the store closed.
    Cancelled,
}

/// Lets another thread end a wait.
#[derive(Default)]
pub struct Cancel {
    flag: AtomicBool,
}

impl Cancel {
    /// End the waits that use this token; they notice when woken or at their deadline.
    pub fn cancel(&self, view: &StreamView) {
        self.flag.store(true, Ordering::Release);
        view.wake();
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }
}

/// One stream as readers see it.
pub struct StreamView {
    /// Stream number.
    pub number: u32,
    range: ArcSwap<Range>,
    gone: AtomicBool,
    gate: Mutex<()>,
    changed: Condvar,
    recent: Mutex<VecDeque<(Placed, Arc<Part>)>>,
    pub(crate) extents: Mutex<(TableVersion, Arc<Vec<Extent>>)>,
}

impl StreamView {
    /// A stream with this range.
    pub fn new(number: u32, range: Range) -> Self {
        Self {
            number,
            range: ArcSwap::from_pointee(range),
            gone: AtomicBool::new(false),
            gate: Mutex::new(()),
            changed: Condvar::new(),
            recent: Mutex::new(VecDeque::new()),
            extents: Mutex::new(((u64::MAX, false), Arc::default())),
        }
    }

    /// The current range; lock-free.
    pub fn range(&self) -> Range {
        **self.range.load()
    }

    /// Publish a range and wake who waits for it. A commit may have been seen before the group that was
    /// sealed without it is durable: the end does not fall.
    pub fn publish(&self, range: Range) {
        let end = range.end.max(self.range().end);
        let range = Range { end, ..range };
        if self.range() != range {
            self.range.store(Arc::new(range));
            self.wake();
        }
    }

    /// Mark the stream as deleted and wake everybody.
    pub fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether the stream was deleted or the store closed.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn wake(&self) {
        drop(self.gate.lock());
        self.changed.notify_all();
    }

    /// Wait until `end > llsn`: any number of waiters, each with its own target and deadline.
    pub fn wait(&self, llsn: u64, timeout: Duration, cancel: Option<&Cancel>) -> Waited {
        let cancelled = || self.is_gone() || cancel.is_some_and(Cancel::is_cancelled);
        let mut gate = self.gate.lock();
        let pending = || self.range().end <= llsn && !cancelled();
        let timed_out = self
            .changed
            .wait_while_for(&mut gate, |()| pending(), timeout)
            .timed_out();
        match (self.range().end > llsn, cancelled(), timed_out) {
            (true, ..) => Waited::Ready,
            (_, true, _) => Waited::Cancelled,
            _ => Waited::TimedOut,
        }
    }

    /// The recent batch holding `llsn`, if it is still in memory.
    pub fn recent(&self, llsn: u64) -> Option<(Placed, Arc<Part>)> {
        let recent = self.recent.lock();
        let at = recent
            .partition_point(|(placed, _)| placed.llsn <= llsn)
            .checked_sub(1)?;
        let (placed, part) = &recent[at];
        (llsn < placed.llsn + u64::from(placed.count)).then(|| (*placed, Arc::clone(part)))
    }

    pub(crate) fn remember(&self, placed: Placed, part: &Arc<Part>) {
        let mut recent = self.recent.lock();
        while recent
            .back()
            .is_some_and(|(last, _)| last.llsn >= placed.llsn)
        {
            recent.pop_back();
        }
        // A rollback may have cut the batch before this one in the middle.
        if let Some((last, _)) = recent.back_mut() {
            let left = placed.llsn - last.llsn;
            last.count = u64::from(last.count).min(left) as u32;
        }
        recent.push_back((placed, Arc::clone(part)));
    }

    pub(crate) fn forget(&self, part: &Arc<Part>) {
        let mut recent = self.recent.lock();
        while recent
            .front()
            .is_some_and(|(_, held)| Arc::ptr_eq(held, part))
        {
            recent.pop_front();
        }
    }
}

/// Number of the segment table, and whether its newest segment is sealed.
pub type TableVersion = (u64, bool);

/// What a reader may see of a stream whose frames are all durable.
pub fn range_of(stream: &Stream) -> Range {
    Range {
        first: stream.low,
        end: stream.committed,
        durable: stream.next,
        epoch: stream.epoch,
    }
}
