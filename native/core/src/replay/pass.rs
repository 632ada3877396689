//! One pass over the segments of a directory, front to back: the records that are in order.
//!
//! # Invariants
//!
//! - What is pending here is at most what the writer counted as pending (`wal::order`): the streams in order
//!   here are among those that were in order there.
//! - Positions that come out rise.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::damage::{Damage, is_damage, note};
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
    pub(super) damages: Vec<Damage>,
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
            damages: Vec::new(),
        };
        pass.begin_oldest()?;
        Ok(pass)
    }

    /// The first LLSN of each stream that comes in passing.
    pub(super) fn froms(&self) -> BTreeMap<u32, u64> {
        let lanes = self.lanes.iter();
        lanes.map(|(number, lane)| (*number, lane.from)).collect()
    }

    /// What lies below the head of the oldest segment was copied forward, if it is there at all. Of segments
    /// before the first head that can be read, the index says what they have.
    fn begin_oldest(&mut self) -> Result<()> {
        while let Some(segment) = self.segments.front().cloned() {
            match self.open(&segment) {
                Ok((state, walk)) => {
                    self.segments.pop_front();
                    for (number, lane) in &mut self.lanes {
                        let next = state.streams.get(number).map_or(1, |stream| stream.next);
                        lane.from = lane.from.max(next);
                    }
                    self.enter(segment, &state, walk);
                    return Ok(());
                }
                Err(error) if is_damage(&error) => {
                    self.segments.pop_front();
                    note(&mut self.damages, Damage::of(&error, segment.path()));
                }
                Err(error) => return Err(error),
            }
        }
        for lane in self.lanes.values_mut() {
            lane.from = u64::MAX;
        }
        Ok(())
    }

    fn begin_segment(&mut self) -> Result<()> {
        let Some(segment) = self.segments.pop_front() else {
            self.current = None;
            return self.commit_known();
        };
        match self.open(&segment) {
            Ok((state, walk)) => {
                self.enter(segment, &state, walk);
                Ok(())
            }
            Err(error) if is_damage(&error) => {
                let mut damage = Damage::of(&error, segment.path());
                damage
                    .end
                    .get_or_insert(damage.begin.max(FIRST_FRAME.into()));
                self.pass_by(damage);
                // What stands behind the head needs none of it.
                match self.file(&segment) {
                    Ok((file, limit)) => {
                        let walk = Walk::new(file, segment.seed, FIRST_FRAME, 0, limit);
                        self.current = Some((segment, walk));
                        Ok(())
                    }
                    Err(error) if is_damage(&error) => self.begin_segment(),
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// The state at the head of a segment, and a walk behind it.
    fn open(&self, segment: &Arc<Segment>) -> Result<(State, Walk)> {
        let (file, limit) = self.file(segment)?;
        if !self.is_held(segment) {
            segment.check_header(&*self.directory.vfs, self.directory.node)?;
            segment.close_files();
        }
        let (state, walk) = read_preamble(file, segment, limit)?;
        debug_assert!(walk.offset >= FIRST_FRAME);
        Ok((state, walk))
    }

    fn is_held(&self, segment: &Segment) -> bool {
        segment.sealed().is_none() && self.directory.newest.is_some()
    }

    fn file(&self, segment: &Segment) -> Result<(Arc<dyn VfsFile>, u32)> {
        match (segment.sealed(), &self.directory.newest) {
            (None, Some(held)) => Ok((Arc::clone(held) as _, segment.bytes)),
            (sealed, _) => {
                let vfs = &self.directory.vfs;
                let file = vfs.open(segment.path(), Access::Read)?;
                let end = sealed.map_or(segment.bytes, |sealed| sealed.end);
                let there = u32::try_from(file.len()?).unwrap_or(u32::MAX);
                let counted = Forward::new(file, Arc::clone(&self.directory.bytes));
                Ok((Arc::new(counted), end.min(there)))
            }
        }
    }

    fn enter(&mut self, segment: Arc<Segment>, state: &State, walk: Walk) {
        let mut ends = Vec::new();
        for (number, lane) in &mut self.lanes {
            // Segments that nothing alive was in may be missing in between.
            if let Some(stream) = state.streams.get(number) {
                lane.known = lane.known.max(stream.context.high_watermark);
                ends.push((*number, stream.next));
            }
        }
        // And with them the rollbacks of what older ones still hold.
        for (stream, end) in ends {
            self.roll_back(stream, end);
        }
        self.current = Some((segment, walk));
        if !self.damages.is_empty() {
            self.settle();
        }
    }

    /// Leave a stretch out. What was read before it may have been taken back there, or committed: it counts no more.
    fn pass_by(&mut self, damage: Damage) {
        note(&mut self.damages, damage);
        let streams: Vec<u32> = self.lanes.keys().copied().collect();
        for stream in streams {
            self.roll_back(stream, 0);
        }
    }

    /// How far the current segment was durable, as far as that is known.
    fn durable(&self, segment: &Segment) -> u32 {
        let sealed = segment.sealed().map(|sealed| sealed.end);
        sealed.unwrap_or(self.directory.durable)
    }

    /// Where the walk ended before the segment does: go on at the next whole frame.
    fn pass_over(&mut self, reason: Option<String>) -> Result<()> {
        let Some((segment, mut walk)) = self.current.take() else {
            return Ok(());
        };
        let (begin, end) = (walk.offset, self.durable(&segment).max(walk.offset));
        let reason = reason.or_else(|| walk.ended.clone()).unwrap_or_default();
        let found = match walk.resync(end) {
            Err(error) if is_damage(&error) => false,
            found => found?,
        };
        let to = if found { walk.offset } else { end };
        self.pass_by(Damage {
            path: segment.path().into(),
            begin: begin.into(),
            end: Some(to.into()),
            reason,
        });
        if found {
            self.current = Some((segment, walk));
            return Ok(());
        }
        self.begin_segment()
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
        let frame = match walk.next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => {
                let (segment, offset) = (Arc::clone(segment), walk.offset);
                return if offset < self.durable(&segment) {
                    self.pass_over(None)
                } else {
                    self.begin_segment()
                };
            }
            Err(error) if is_damage(&error) => return self.pass_over(Some(error.to_string())),
            Err(error) => return Err(error),
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
            if !self.damages.is_empty() {
                // Commits that went with the damage would have told places by now.
                return self.pass_rest(frame.offset);
            }
            return Err(Error::OverBudget {
                path: segment.path().into(),
                offset: frame.offset.into(),
                pending: self.pending,
                budget: self.budget,
            });
        }
        Ok(())
    }

    /// Leave out the rest of the segment from `begin` on: more of it is pending than was promised.
    fn pass_rest(&mut self, begin: u32) -> Result<()> {
        let Some((segment, _)) = self.current.take() else {
            return Ok(());
        };
        let reason = "too many records behind the damage wait for their place in the order".into();
        self.pass_by(Damage {
            path: segment.path().into(),
            begin: begin.into(),
            end: Some(self.durable(&segment).max(begin).into()),
            reason,
        });
        self.begin_segment()
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
