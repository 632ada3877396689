//! One pass over the segments of a directory, front to back: the records that are in order.
//!
//! # Invariants
//!
//! - What is pending here is at most what the writer counted as pending (`wal::order`): the streams in order
//!   here are among those that were in order there.
//! - Positions that come out rise.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::directory::Directory;
use super::forward::Forward;
use super::piece::{Piece, Place};
use crate::error::{Error, Result};
use crate::vfs::{Access, VfsFile};
use crate::wal::{
    Change, CommitContext, FIRST_FRAME, Frame, Kind, Segment, State, Walk, frame_change,
    read_preamble,
};

/// A stream that is wanted.
struct Lane {
    /// The caller's number.
    key: u64,
    explicit: bool,
    /// First LLSN that is kept.
    low: u64,
    /// First LLSN that is taken in passing.
    from: u64,
    /// What its last join says.
    join: u64,
    joined: bool,
    known: u64,
    uncommitted: VecDeque<Piece>,
}

/// The pass.
pub(super) struct Pass {
    directory: Arc<Directory>,
    segments: VecDeque<Arc<Segment>>,
    current: Option<(Arc<Segment>, Walk)>,
    lanes: HashMap<u32, Lane>,
    /// Committed records by position.
    ready: BTreeMap<u64, Piece>,
    budget: u64,
    /// Nothing up to this position can still come.
    least: u64,
    pub(super) pending: u64,
    pub(super) peak: u64,
}

impl Pass {
    /// Pass over a directory for the streams given, each with the caller's number.
    pub(super) fn new(directory: &Arc<Directory>, streams: &BTreeMap<u32, u64>) -> Result<Self> {
        let segments: VecDeque<_> = directory.view.segments().iter().cloned().collect();
        let mut lanes = HashMap::new();
        for (number, key) in streams {
            let stream = directory.state.stream(*number)?;
            let join = directory.orders.from(*number);
            let lane = Lane {
                key: *key,
                explicit: stream.explicit_commit,
                low: stream.low,
                from: match (stream.explicit_commit, join) {
                    (false, _) => 1,
                    (true, 0) => u64::MAX,
                    (true, join) => join,
                },
                join,
                joined: !stream.explicit_commit,
                known: 0,
                uncommitted: VecDeque::new(),
            };
            lanes.insert(*number, lane);
        }
        let mut pass = Self {
            directory: Arc::clone(directory),
            segments,
            current: None,
            lanes,
            ready: BTreeMap::new(),
            budget: directory.options.order_bytes_max.unwrap_or(0),
            least: 0,
            pending: 0,
            peak: 0,
        };
        pass.begin_oldest()?;
        Ok(pass)
    }

    /// The first LLSN of each stream that comes in passing.
    pub(super) fn froms(&self) -> BTreeMap<u32, u64> {
        let lanes = self.lanes.iter();
        lanes.map(|(number, lane)| (*number, lane.from)).collect()
    }

    /// What lies below the head of the oldest segment was copied forward, if it is there at all.
    fn begin_oldest(&mut self) -> Result<()> {
        let Some(state) = self.begin_segment()? else {
            return Ok(());
        };
        for (number, lane) in &mut self.lanes {
            let next = state.streams.get(number).map_or(1, |stream| stream.next);
            lane.from = lane.from.max(next);
        }
        Ok(())
    }

    fn begin_segment(&mut self) -> Result<Option<State>> {
        let Some(segment) = self.segments.pop_front() else {
            self.current = None;
            self.commit_known()?;
            return Ok(None);
        };
        let (vfs, held) = (&self.directory.vfs, &self.directory.newest);
        let (file, limit): (Arc<dyn VfsFile>, u32) = match (segment.sealed(), held) {
            (None, Some(held)) => (Arc::clone(held) as _, segment.bytes),
            (sealed, _) => {
                segment.check_header(&**vfs, self.directory.node)?;
                segment.close_files();
                let file = vfs.open(segment.path(), Access::Read)?;
                let counted = Forward::new(file, Arc::clone(&self.directory.bytes));
                (
                    Arc::new(counted),
                    sealed.map_or(segment.bytes, |sealed| sealed.end),
                )
            }
        };
        let (state, walk) = read_preamble(file, &segment, limit)?;
        debug_assert!(walk.offset >= FIRST_FRAME);
        for (number, lane) in &mut self.lanes {
            // Segments that nothing alive was in may be missing in between.
            if let Some(stream) = state.streams.get(number) {
                lane.known = lane.known.max(stream.context.high_watermark);
            }
        }
        self.current = Some((segment, walk));
        Ok(Some(state))
    }

    /// The next records in order, `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Piece>> {
        loop {
            let settled = |glsn: &u64| *glsn <= self.least || self.current.is_none();
            let first = self.ready.first_key_value().map(|(glsn, _)| *glsn);
            if first.as_ref().is_some_and(settled) {
                return Ok(self.ready.pop_first().map(|(_, piece)| self.give(piece)));
            }
            if self.current.is_none() {
                return Ok(None);
            }
            self.step()?;
        }
    }

    fn give(&mut self, piece: Piece) -> Piece {
        // Of a batch in several pieces the last one settles it.
        if self.ends_batch(&piece) {
            self.pending -= piece.bytes().len() as u64;
        }
        piece
    }

    fn ends_batch(&self, piece: &Piece) -> bool {
        let same = |other: &Piece| std::ptr::eq(other.bytes(), piece.bytes());
        let waits = self
            .lanes
            .values()
            .any(|lane| lane.key == piece.stream && lane.uncommitted.front().is_some_and(same));
        !waits
            && !self
                .ready
                .first_key_value()
                .is_some_and(|(_, next)| same(next))
    }

    fn step(&mut self) -> Result<()> {
        let Some((segment, walk)) = self.current.as_mut() else {
            return Ok(());
        };
        let Some(frame) = walk.next_frame()? else {
            if let Some(sealed) = segment.sealed()
                && walk.offset < sealed.end
            {
                let reason = walk.ended.clone().unwrap_or_default();
                return Err(Error::corrupt(segment.path(), walk.offset.into(), reason));
            }
            self.begin_segment()?;
            return Ok(());
        };
        let header = frame.header;
        let Some(lane) = self.lanes.get_mut(&header.stream) else {
            return Ok(());
        };
        if header.kind == Kind::Batch {
            // The others are read through the index, or were taken back before the stream joined.
            if !lane.joined || header.llsn + u64::from(header.count) <= lane.from {
                return Ok(());
            }
            let place = Place {
                path: segment.path().into(),
                offset: frame.offset.into(),
            };
            let bytes: Arc<[u8]> = walk.payload(&frame)?.into();
            let mut piece =
                Piece::whole(lane.key, header.llsn, header.count, bytes, Arc::new(place));
            piece.skip(lane.from.saturating_sub(piece.llsn) as u32);
            return self.batch(header.stream, &frame, piece);
        }
        let change = frame_change(&frame, walk.payload(&frame)?);
        let (change, _) = change.map_err(|error| {
            Error::corrupt(segment.path(), frame.offset.into(), error.to_string())
        })?;
        self.change(header.stream, &frame, &change)
    }

    fn batch(&mut self, stream: u32, frame: &Frame, piece: Piece) -> Result<()> {
        let Some(lane) = self.lanes.get_mut(&stream) else {
            return Ok(());
        };
        self.pending += piece.bytes().len() as u64;
        self.peak = self.peak.max(self.pending);
        if !lane.explicit {
            lane.known = piece.llsn_end() - 1;
            let glsn = piece.llsn;
            self.commit_piece(stream, piece, glsn);
            self.settle();
            return Ok(());
        }
        lane.uncommitted.push_back(piece);
        let Some((segment, _)) = &self.current else {
            return Ok(());
        };
        if self.pending > self.budget {
            return Err(Error::OverBudget {
                path: segment.path().into(),
                offset: frame.offset.into(),
                pending: self.pending,
                budget: self.budget,
            });
        }
        Ok(())
    }

    fn change(&mut self, stream: u32, frame: &Frame, change: &Change) -> Result<()> {
        match change {
            Change::Commit(context) => self.commit(stream, frame.offset.into(), context),
            Change::Rollback => {
                self.roll_back(stream, frame.header.llsn);
                Ok(())
            }
            Change::Order(order) => {
                let given = self.directory.options.order_bytes_max;
                self.budget = given.unwrap_or(self.budget.max(order.budget));
                self.join(stream, frame.header.llsn);
                self.settle();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Its last join is where a stream is in order from. Of what it stored in the order before, nothing is left.
    fn join(&mut self, stream: u32, from: u64) {
        if let Some(lane) = self.lanes.get_mut(&stream) {
            lane.joined = from > 0 && from == lane.join;
        }
        if self.lanes.get(&stream).is_some_and(|lane| !lane.joined) {
            self.roll_back(stream, 0);
        }
    }

    /// Behind the last frame: the commits that have none.
    fn commit_known(&mut self) -> Result<()> {
        let directory = Arc::clone(&self.directory);
        for (stream, contexts) in &directory.known {
            for context in contexts {
                self.commit(*stream, 0, context)?;
            }
        }
        Ok(())
    }

    /// Apply a commit; `offset` is where damage is said to be.
    fn commit(&mut self, stream: u32, offset: u64, context: &CommitContext) -> Result<()> {
        let (begin, end) = (context.llsn_begin, context.llsn_begin + context.length);
        while let Some(lane) = self.lanes.get_mut(&stream) {
            let Some(mut piece) = lane.uncommitted.pop_front() else {
                break;
            };
            if piece.llsn >= end {
                lane.uncommitted.push_front(piece);
                break;
            }
            if piece.llsn < begin {
                // Its commit went with a segment that held nothing alive.
                let dead = piece.llsn_end().min(begin) - piece.llsn;
                if piece.llsn + dead > lane.low {
                    return Err(self.uncommitted_gap(offset, piece.llsn));
                }
                if piece.llsn_end() <= begin {
                    self.pending -= piece.bytes().len() as u64;
                    continue;
                }
                piece.skip(dead as u32);
            }
            let part = (end - piece.llsn).min(piece.count.into()) as u32;
            let glsn = context.glsn_begin + (piece.llsn - begin);
            let head = piece.split(part);
            if piece.count > 0 {
                lane.uncommitted.push_front(piece);
            }
            self.commit_piece(stream, head, glsn);
        }
        if let Some(lane) = self.lanes.get_mut(&stream) {
            lane.known = lane.known.max(context.high_watermark);
        }
        self.settle();
        Ok(())
    }

    fn uncommitted_gap(&self, offset: u64, llsn: u64) -> Error {
        let path = self.current.as_ref().map(|(segment, _)| segment.path());
        let reason = format!("the commit of record {llsn} of its stream is missing before it");
        Error::corrupt(path.unwrap_or(&self.directory.path), offset, reason)
    }

    fn commit_piece(&mut self, stream: u32, mut piece: Piece, glsn: u64) {
        piece.glsn = glsn;
        let low = self.lanes.get(&stream).map_or(0, |lane| lane.low);
        let dead = low.saturating_sub(piece.llsn).min(piece.count.into());
        if dead < u64::from(piece.count) {
            piece.skip(dead as u32);
            self.ready.insert(piece.glsn, piece);
        } else if self.ends_batch(&piece) {
            self.pending -= piece.bytes().len() as u64;
        }
    }

    fn roll_back(&mut self, stream: u32, from: u64) {
        let Some(lane) = self.lanes.get_mut(&stream) else {
            return;
        };
        while let Some(last) = lane
            .uncommitted
            .back_mut()
            .filter(|last| last.llsn_end() > from)
        {
            if last.llsn < from {
                last.count = (from - last.llsn) as u32;
                break;
            }
            let Some(piece) = lane.uncommitted.pop_back() else {
                break;
            };
            // If a part of it was committed and is still here, that part settles the batch.
            let same = |other: &Piece| std::ptr::eq(other.bytes(), piece.bytes());
            if !self.ready.values().any(same) {
                self.pending -= piece.bytes().len() as u64;
            }
        }
    }

    /// Streams that have not joined hold nothing back: what they store is behind their join.
    fn settle(&mut self) {
        let joined = self.lanes.values().filter(|lane| lane.joined);
        self.least = joined.map(|lane| lane.known).min().unwrap_or(u64::MAX);
    }
}
