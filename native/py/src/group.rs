//! The Raft group of a node: appends of the leader from the frame to the disk and back, and answers to them.
//!
//! A follower whose group is *settled* does nothing but take what continues its log, write it, and answer when
//! that is durable. What is committed by that are cuts, which nobody on this node waits for: the state machine takes
//! them with the next thing that Python has to do for the group, at the latest with its next tick. Anything else
//! that is committed is Python's at once.
//!
//! A leader whose group is settled waits for answers. Python hears of the one that lets it commit, or send more.

use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;

use braidlog_core::batch::{BatchBuilder, Compression};
use braidlog_core::lane::leader::is_cut;
use braidlog_core::lane::tail::{Broken, Found, PLAIN};
use braidlog_core::wal::{self, Verified};
use braidlog_core::wire::Frame;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::replicas::Replicas;
use crate::tail::{Heard, Message, Tail};

/// Number of the message that carries those of a group.
pub const CONSENSUS: u8 = 32;

/// What is committed and not applied, in entries: then Python applies it at once.
const BEHIND_MAX: u64 = 64;
/// A larger write is Python's, which may let the interpreter go meanwhile.
const BYTES_MAX: u64 = 1 << 20;

/// The group; see the module.
pub struct Group {
    /// Head of the message that carries its messages.
    head: Vec<u8>,
    tail: Py<Tail>,
    /// Number of its log in the store; 0: Python writes.
    log: u32,
    /// Whether something came since the last turn.
    stirred: bool,
    /// Whether Python has to look at it.
    due: bool,
    /// Nodes that have answered, and were not asked for.
    kept: BTreeSet<u64>,
    /// Up to which entry of what is committed there are only cuts.
    seen: u64,
    /// Up to which entry of what is committed a leader has told it.
    told: u64,
    /// Tickets and numbers of writes that may not be durable.
    writes: VecDeque<(u64, u64)>,
    /// A write that became durable while Python had taken over; 0: none.
    stored: u64,
}

impl Group {
    /// Take part in a group.
    pub fn new(head: Vec<u8>, tail: Py<Tail>) -> Self {
        Self {
            head,
            tail,
            log: 0,
            stirred: false,
            due: false,
            kept: BTreeSet::new(),
            seen: 0,
            told: 0,
            writes: VecDeque::new(),
            stored: 0,
        }
    }

    /// Write into a log of the store from now on; 0: Python does.
    pub fn write_into(&mut self, log: u32) {
        self.log = log;
    }

    /// Whether something is to be done at the end of the turn.
    pub fn is_stirred(&self) -> bool {
        self.stirred || self.due
    }

    /// The head of its messages.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Take a message, if it is an append that continues the log, or an answer to one.
    pub fn take(&mut self, py: Python<'_>, frame: &Frame<'_>) -> bool {
        if frame.head != self.head {
            return false;
        }
        let Ok(mut tail) = self.tail.bind(py).try_borrow_mut() else {
            return false;
        };
        match tail.hear(py, frame.payload) {
            None => return false,
            Some(Heard::Append) => self.stirred = true,
            Some(Heard::Answer(node)) => {
                self.kept.insert(node);
                self.due |= leader_stirs(&tail, self.told);
            }
        }
        true
    }

    /// Take the nodes that have answered.
    pub fn take_kept(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.kept)
    }

    /// Write what came, and return the messages that may go; whether Python has to do the turn says `due`.
    pub fn turn(&mut self, py: Python<'_>, replicas: &Replicas) -> Result<Vec<Message>, Broken> {
        if !std::mem::take(&mut self.stirred) {
            return Ok(Vec::new());
        }
        let mut tail = self.tail.bind(py).borrow_mut();
        if !tail.is_settled() || self.log == 0 {
            self.due = true;
            return Ok(Vec::new());
        }
        if !write(py, replicas, self.log, &mut tail, &mut self.writes) {
            // Nothing was written: Python does it, and says what is wrong.
            self.due = true;
            return Ok(Vec::new());
        }
        tail.core().check()?;
        self.due |= has_news(py, &mut tail, &mut self.seen);
        Ok(tail.released(py))
    }

    /// Whether this node leads, and may do by itself what the next data of so many bytes ask for.
    pub fn may_propose(&self, py: Python<'_>, size: usize) -> bool {
        let tail = self.tail.bind(py).borrow();
        let may = |leading| tail.may_propose(leading, size);
        self.log != 0 && tail.leading().is_some_and(may)
    }

    /// Whether all that is in the log and not applied are cuts.
    pub fn is_pure(&self, py: Python<'_>, is_cut: impl Fn(u64) -> bool) -> bool {
        let tail = self.tail.bind(py).borrow();
        let core = tail.looked_at();
        (core.handed() + 1..=core.last()).all(is_cut)
    }

    /// Log data as the leader, write them, and return their index and what the others are sent.
    pub fn propose(
        &mut self,
        py: Python<'_>,
        replicas: &Replicas,
        data: &[u8],
    ) -> PyResult<Option<(u64, Vec<Message>)>> {
        let mut tail = self.tail.bind(py).borrow_mut();
        let Some(leading) = tail.leading().cloned() else {
            return Ok(None);
        };
        let proposed = tail.propose(py, &leading, data)?;
        // What could not be written Python writes, or says why not.
        self.due |= !write(py, replicas, self.log, &mut tail, &mut self.writes);
        Ok(Some(proposed))
    }

    /// Commit as the leader what a quorum has, if `is_cut` holds of every entry that is not applied. Returns the entries
    /// that may be told now and were not; `None`: Python commits, and does what follows.
    pub fn commit(
        &mut self,
        py: Python<'_>,
        is_cut: impl Fn(u64) -> bool,
    ) -> Result<Option<RangeInclusive<u64>>, Broken> {
        let mut tail = self.tail.bind(py).borrow_mut();
        let Some(leading) = tail.leading() else {
            return Ok(None);
        };
        let (handed, commit) = (tail.looked_at().handed(), tail.committable(leading));
        let cuts = (handed + 1..=commit).all(is_cut);
        if !cuts || commit - handed >= BEHIND_MAX || !tail.looked_at().rests() {
            return Ok(None);
        }
        let core = tail.core();
        core.commit_to(commit)?;
        core.check()?;
        // Only what is durable here: a leader may commit before its own write (Ongaro, 10.2.1).
        let (begin, end) = (handed.max(self.told) + 1, commit.min(core.durable()));
        self.told = self.told.max(end);
        Ok(Some(begin..=end))
    }

    /// Say that Python has to look at it.
    pub fn set_due(&mut self) {
        self.due = true;
    }

    /// Whether something is committed that is not applied.
    pub fn is_behind(&self, py: Python<'_>) -> bool {
        self.tail.bind(py).borrow().looked_at().has_committed()
    }

    /// Take whether Python has to look at it.
    pub fn take_due(&mut self) -> bool {
        std::mem::take(&mut self.due)
    }

    /// Note that every write up to `ticket` is durable; return the messages that may go.
    pub fn synced(&mut self, py: Python<'_>, ticket: u64) -> Result<Vec<Message>, Broken> {
        let mut number = 0;
        while let Some((_, stored)) = self.writes.front().filter(|each| each.0 <= ticket) {
            number = *stored;
            self.writes.pop_front();
        }
        if number == 0 {
            return Ok(Vec::new());
        }
        let mut tail = self.tail.bind(py).borrow_mut();
        if tail.leads() {
            tail.core().stored(number)?;
            self.due |= leader_stirs(&tail, self.told);
            return Ok(Vec::new());
        }
        if !tail.is_settled() {
            self.stored = number;
            return Ok(Vec::new());
        }
        tail.core().stored(number)?;
        self.due |= has_news(py, &mut tail, &mut self.seen);
        Ok(tail.released(py))
    }

    /// Take the number of a write that became durable and that Python has to be told of; 0: none.
    pub fn take_stored(&mut self) -> u64 {
        std::mem::take(&mut self.stored)
    }

    /// Tell the collector of Python what is held.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.tail)
    }
}

/// Write the entries that are not; false if nothing was written, for any reason.
fn write(
    py: Python<'_>,
    replicas: &Replicas,
    log: u32,
    tail: &mut Tail,
    writes: &mut VecDeque<(u64, u64)>,
) -> bool {
    let store = replicas.store();
    let Some((bytes, ticket)) = place(py, &store, log, tail) else {
        return false;
    };
    if let Some(taken) = tail.core().take_write(false) {
        replicas.hurry(bytes);
        store.nudge();
        writes.push_back((ticket, taken.number));
    }
    true
}

/// Whether something follows for a leader, which has told what is committed up to `told`.
fn leader_stirs(tail: &Tail, told: u64) -> bool {
    let core = tail.looked_at();
    let Some(leading) = tail.leading() else {
        return true;
    };
    let known = told.max(core.handed());
    let commit = tail.committable(leading);
    commit > core.commit() || commit.min(core.durable()) > known || !core.rests()
}

/// Put the entries that are not written into the log: their bytes and the ticket.
fn place(py: Python<'_>, store: &wal::Store, log: u32, tail: &Tail) -> Option<(u64, u64)> {
    let (begin, end) = (tail.looked_at().unwritten(), tail.looked_at().last() + 1);
    if begin >= end {
        return Some((0, 0));
    }
    let Ok(Found::Memory(range)) = tail.looked_at().find(begin, end, BYTES_MAX) else {
        return None;
    };
    if range.len() as u64 != end - begin {
        return None;
    }
    let mut batch = BatchBuilder::new();
    for at in range {
        let entry = tail.looked_at().entry(at);
        let mut key = [entry.kind; 9];
        key[1..].copy_from_slice(&entry.term.to_le_bytes());
        let value = entry.data.bytes(py);
        batch.push(Some(value), Some(&key), 0, &[]).ok()?;
    }
    let mut bytes = Vec::new();
    batch.encode_into(Compression::None, &mut bytes).ok()?;
    let follows = store.with_stream(log, |stream, _| stream.next == begin);
    if !follows.ok()? || store.would_wait(log, bytes.len() + 1024) {
        return None;
    }
    let verified = Verified::check(&bytes).ok()?;
    store.place_reserved(log, 0, begin, &[verified]).ok()?;
    // What was written and has no ticket is lost with the store, which has failed.
    Some((bytes.len() as u64, store.latest().ok()?))
}

/// Whether something is to be applied now.
fn has_news(py: Python<'_>, tail: &mut Tail, seen: &mut u64) -> bool {
    let core = tail.core();
    let (handed, end) = (core.handed(), core.commit().min(core.durable()));
    if end <= handed {
        return false;
    }
    if end - handed >= BEHIND_MAX {
        return true;
    }
    let begin = handed.max(*seen) + 1;
    if begin > end {
        return false;
    }
    let Ok(Found::Memory(range)) = core.find(begin, end + 1, u64::MAX) else {
        return true;
    };
    for at in range {
        let entry = core.entry(at);
        if entry.kind != PLAIN || !is_cut(entry.data.bytes(py)) {
            return true;
        }
    }
    *seen = end;
    false
}
