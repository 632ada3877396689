//! What a reader of the file may rely on when it puts the streams of a log into one order.
//!
//! # Theory of operation
//!
//! A record's place in the order of its log comes with a commit frame, later than the record, and each commit
//! also says how far the whole log had got (`high_watermark`). So after a prefix of the file a reader knows
//! for each stream that nothing up to that number can still come; what is above the least of them, or not
//! committed, is *pending*. The writer keeps the same numbers for the streams that were said to share an
//! order, and holds their pending bytes within a budget. It refuses nothing for that: before a batch would
//! pass the budget, the stream that holds the others back *leaves* the order, by a frame. It joins again, by
//! a frame, once it is as far as all others. A reader takes what lies before the last join of a stream from
//! the index instead of in passing.
//!
//! # Invariants
//!
//! - The pending bytes of a log's streams in order are at most the budget, after each frame.
//! - A stream joins with a high watermark that no other one in order exceeds: nothing of it comes that is
//!   below what a reader has given out.
//! - Frames of this kind say all that recovery needs; each segment repeats them behind its preamble.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::wal::format::change::{Change, Order};
use crate::wal::format::frame::{FRAME_HEADER, FrameHeader};
use crate::wal::format::state::State;

/// Budget of a store that is not told another one.
pub const ORDER_BYTES_DEFAULT: u64 = 64 << 20;

/// Payload of an order frame.
const PAYLOAD: usize = 16 + 2 * 8;

/// More than a node can have on its way: sums of what a frame claims do not overflow.
const CARRIED_MAX: u64 = 1 << 40;

/// Bytes of an order frame.
pub const ORDER_FRAME: usize = FRAME_HEADER + PAYLOAD;

/// Batches of which a reader of the prefix does not know the place.
#[derive(Clone, Copy, Debug)]
struct Piece {
    begin: u64,
    end: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Member {
    log: u128,
    /// First LLSN in order; 0: the stream is not.
    from: u64,
    /// Nothing up to this GLSN can still come.
    known: u64,
    /// By LLSN.
    uncommitted: VecDeque<Piece>,
    /// By GLSN.
    committed: VecDeque<Piece>,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Shared {
    /// Streams in order.
    streams: BTreeSet<u32>,
    /// How many of them know that much.
    known: BTreeMap<u64, u32>,
    pending: u64,
}

impl Shared {
    fn note(&mut self, known: u64) {
        *self.known.entry(known).or_default() += 1;
    }

    fn forget(&mut self, known: u64) {
        if let Some(count) = self.known.get_mut(&known) {
            *count -= 1;
            if *count == 0 {
                self.known.remove(&known);
            }
        }
    }

    fn least(&self) -> u64 {
        self.known
            .first_key_value()
            .map_or(u64::MAX, |(key, _)| *key)
    }
}

/// The orders of a directory, as a reader of all that was placed would know them.
#[derive(Debug, Default)]
pub struct Orders {
    budget: u64,
    /// The newest segment is of a format without order frames.
    silent: bool,
    members: BTreeMap<u32, Member>,
    logs: BTreeMap<u128, Shared>,
}

impl Orders {
    /// No stream is in any order yet.
    pub fn new(budget: u64) -> Self {
        Self {
            budget,
            ..Self::default()
        }
    }

    /// Write no frames before the next segment begins.
    pub fn silence(&mut self) {
        self.silent = true;
    }

    /// A segment of the current format began.
    pub fn speak(&mut self) {
        self.silent = false;
    }

    /// Whether no stream is in order: recovery needs no frame before this place.
    pub fn is_idle(&self) -> bool {
        self.members.values().all(|member| member.from == 0)
    }

    /// Bytes of the frames that the head of a segment repeats, at most.
    pub fn encoded_len(&self) -> usize {
        ORDER_FRAME * self.members.len()
    }

    /// Say that a stream belongs to a log.
    pub fn register(&mut self, state: &State, stream: u32, log: u128) {
        // Each segment repeats it.
        if self.log_of(stream) == Some(log) {
            return;
        }
        self.leave(stream);
        let member = Member {
            log,
            known: known(state, stream),
            ..Member::default()
        };
        self.members.insert(stream, member);
    }

    /// The first LLSN that is in order, and what a frame says of it; for each stream in order.
    pub fn frames(&self) -> Vec<(u32, u64, Order)> {
        let ordered = self.members.iter().filter(|(_, member)| member.from > 0);
        ordered
            .map(|(stream, member)| (*stream, member.from, self.order(member)))
            .collect()
    }

    fn order(&self, member: &Member) -> Order {
        Order {
            log: member.log,
            budget: self.budget,
            pending: member.bytes,
        }
    }

    /// Pending bytes of a log's streams in order.
    pub fn pending(&self, log: u128) -> u64 {
        self.logs.get(&log).map_or(0, |shared| shared.pending)
    }

    /// First LLSN in order of a stream; 0 if none is.
    pub fn from(&self, stream: u32) -> u64 {
        self.members.get(&stream).map_or(0, |member| member.from)
    }

    /// The log that a stream was said to belong to.
    pub fn log_of(&self, stream: u32) -> Option<u128> {
        self.members.get(&stream).map(|member| member.log)
    }

    /// Bytes of frames that may have to come before `bytes` of a stream.
    pub fn room(&self, stream: u32, bytes: u64) -> usize {
        match self.overfull(stream, bytes) {
            Some(_) => self.encoded_len(),
            None => 0,
        }
    }

    /// The stream that has to leave before `bytes` of `stream` are placed, and its last frame. The one that
    /// knows least; of several the one with most bytes.
    pub fn next_to_leave(&self, stream: u32, bytes: u64) -> Option<(u32, Order)> {
        let shared = self.overfull(stream, bytes)?;
        // The stream that knows least keeps the records of all others pending.
        let weight = |number: &u32| {
            let member = &self.members[number];
            let more = if *number == stream { bytes } else { 0 };
            (std::cmp::Reverse(member.known), member.bytes + more)
        };
        let victim = shared.streams.iter().max_by_key(|number| weight(number))?;
        let member = self.members.get(victim)?;
        Some((
            *victim,
            Order {
                pending: 0,
                ..self.order(member)
            },
        ))
    }

    fn overfull(&self, stream: u32, bytes: u64) -> Option<&Shared> {
        let member = self.members.get(&stream).filter(|member| member.from > 0)?;
        let shared = self.logs.get(&member.log)?;
        (shared.pending + bytes > self.budget).then_some(shared)
    }

    /// What a stream joins with, if it is as far as all that are in order.
    pub fn joins(&self, stream: u32) -> Option<Order> {
        let member = self
            .members
            .get(&stream)
            .filter(|member| member.from == 0)?;
        let furthest = self.logs.get(&member.log);
        let furthest = furthest.and_then(|shared| shared.known.last_key_value());
        // Otherwise it could still get a record that comes before one that a reader has given out.
        let first = furthest.is_none_or(|(known, _)| member.known >= *known);
        (first && !self.silent).then(|| self.order(member))
    }

    /// Fold a placed frame of `length` bytes; `state` has it already.
    pub fn fold(&mut self, state: &State, header: &FrameHeader, length: u32, change: &Change) {
        match change {
            Change::Batch { count, .. } => self.placed(header, *count, length.into()),
            Change::Commit(context) => {
                let end = context.llsn_begin + context.length;
                let last = (context.glsn_begin + context.length).saturating_sub(1);
                self.committed(header.stream, end, last, context.high_watermark);
            }
            Change::Rollback => self.rolled_back(header.stream, header.llsn),
            Change::Order(order) => self.said(state, header, order),
            Change::DeleteLog(_) | Change::Restart(..) => self.forget_gone(state),
            _ => {}
        }
    }

    fn placed(&mut self, header: &FrameHeader, count: u32, bytes: u64) {
        let Some(member) = self.members.get_mut(&header.stream) else {
            return;
        };
        let (begin, end) = (header.llsn, header.llsn + u64::from(count));
        // A rollback may go below the first one in order: what comes next is not in order either.
        if member.from == 0 || end <= member.from {
            return;
        }
        member.uncommitted.push_back(Piece { begin, end, bytes });
        member.bytes += bytes;
        if let Some(shared) = self.logs.get_mut(&member.log) {
            shared.pending += bytes;
        }
    }

    fn committed(&mut self, stream: u32, end: u64, last_glsn: u64, high_watermark: u64) {
        let Some(member) = self.members.get_mut(&stream) else {
            return;
        };
        while let Some(piece) = member.uncommitted.front().filter(|piece| piece.end <= end) {
            // A batch is settled once its last record is, so the others count as if they were that one.
            let (begin, end) = (last_glsn, last_glsn);
            let bytes = piece.bytes;
            member.committed.push_back(Piece { begin, end, bytes });
            member.uncommitted.pop_front();
        }
        let (before, log) = (member.known, member.log);
        member.known = before.max(high_watermark);
        let (known, ordered) = (member.known, member.from > 0);
        let Some(shared) = self.logs.get_mut(&log).filter(|_| ordered) else {
            return;
        };
        let least = shared.least();
        shared.forget(before);
        shared.note(known);
        // What was committed late may be settled already.
        if shared.least() > least || last_glsn <= least {
            self.settle(log);
        }
    }

    /// Take what is settled out of what is pending.
    fn settle(&mut self, log: u128) {
        let Some(shared) = self.logs.get_mut(&log) else {
            return;
        };
        let least = shared.least();
        for stream in &shared.streams {
            let Some(member) = self.members.get_mut(stream) else {
                continue;
            };
            while let Some(piece) = member.committed.front().filter(|piece| piece.end <= least) {
                member.bytes -= piece.bytes;
                shared.pending -= piece.bytes;
                member.committed.pop_front();
            }
        }
    }

    fn rolled_back(&mut self, stream: u32, from: u64) {
        let Some(member) = self.members.get_mut(&stream) else {
            return;
        };
        let mut dropped = 0;
        while let Some(piece) = member
            .uncommitted
            .back_mut()
            .filter(|piece| piece.end > from)
        {
            if piece.begin < from {
                // Its bytes stay where they are, and the records in front of the cut with them.
                piece.end = from;
                break;
            }
            dropped += piece.bytes;
            member.uncommitted.pop_back();
        }
        member.bytes -= dropped;
        if let Some(shared) = self.logs.get_mut(&member.log) {
            shared.pending -= dropped;
        }
    }

    fn said(&mut self, state: &State, header: &FrameHeader, order: &Order) {
        let (stream, from) = (header.stream, header.llsn);
        self.register(state, stream, order.log);
        // The stream leaves, or joins at another place. A repeated join changes nothing.
        if from == 0 || self.from(stream) != from {
            self.leave(stream);
        }
        let Some(member) = self.members.get_mut(&stream) else {
            return;
        };
        if from == 0 || member.from == from {
            return;
        }
        member.from = from;
        member.known = member.known.max(known(state, stream));
        if order.pending > 0 {
            // Recovery: the batches lie in older segments, all below the next LLSN.
            let (end, bytes) = (
                state.streams.get(&stream).map_or(from, |s| s.next),
                order.pending.min(CARRIED_MAX),
            );
            member.uncommitted.push_back(Piece {
                begin: from,
                end,
                bytes,
            });
            member.bytes = bytes;
        }
        let shared = self.logs.entry(order.log).or_default();
        shared.streams.insert(stream);
        shared.note(member.known);
        shared.pending += member.bytes;
    }

    fn leave(&mut self, stream: u32) {
        let Some(member) = self
            .members
            .get_mut(&stream)
            .filter(|member| member.from > 0)
        else {
            return;
        };
        let (log, known, bytes) = (member.log, member.known, member.bytes);
        *member = Member {
            log,
            known,
            ..Member::default()
        };
        if let Some(shared) = self.logs.get_mut(&log) {
            shared.streams.remove(&stream);
            shared.forget(known);
            shared.pending -= bytes;
        }
        self.settle(log);
    }

    fn forget_gone(&mut self, state: &State) {
        let gone = |stream: &&u32| !state.streams.contains_key(stream);
        let gone: Vec<u32> = self.members.keys().filter(gone).copied().collect();
        for stream in gone {
            self.leave(stream);
            self.members.remove(&stream);
        }
        self.logs.retain(|_, shared| !shared.streams.is_empty());
    }
}

fn known(state: &State, stream: u32) -> u64 {
    let stream = state.streams.get(&stream);
    stream.map_or(0, |stream| stream.context.high_watermark)
}

#[cfg(test)]
#[path = "../tests/order.rs"]
mod tests;
