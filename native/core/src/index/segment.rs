//! Index of a whole segment: one [`StreamIndex`] per stream and origin.

use std::collections::BTreeMap;

use super::runs::CommitRun;
use super::stream::{FrameEntry, Position, StreamIndex};
use crate::error::Result;

/// Lane of the frames that were written to the segment first.
pub const NATIVE: u32 = 0;

/// Number index of one segment, keyed by stream and lane: [`NATIVE`] for what was written
/// here, one more for each dense run of frames that the cleaner copied here.
///
/// A stream that is not in the index has no frame, commit or cut in the segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentIndex {
    /// Ordered, so that a side file is a function of the index.
    pub(super) streams: BTreeMap<(u32, u32), StreamIndex>,
}

impl SegmentIndex {
    /// An index of an empty segment.
    pub fn new() -> Self {
        Self::default()
    }

    /// See [`StreamIndex::note`].
    pub fn note(&mut self, stream: u32, lane: u32, frame: FrameEntry) -> Result<()> {
        self.change(stream, lane, |index| index.note(frame))
    }

    /// See [`StreamIndex::commit`].
    pub fn commit(&mut self, stream: u32, lane: u32, run: CommitRun) -> Result<()> {
        self.change(stream, lane, |index| index.commit(run))
    }

    /// Register a frame that the cleaner copied forward: it goes on where the newest moved lane ends,
    /// or begins a lane of its own, so that each lane is dense.
    pub fn note_moved(&mut self, stream: u32, frame: FrameEntry) -> Result<()> {
        let newest = self.lanes(stream).last().filter(|(lane, _)| *lane > NATIVE);
        let lane = match newest {
            None => NATIVE + 1,
            Some((lane, index)) if index.range().is_some_and(|range| range.end == frame.llsn) => {
                lane
            }
            Some((lane, _)) => lane + 1,
        };
        self.note(stream, lane, frame)
    }

    /// Register a commit run that the cleaner copied forward: it goes into the newest moved lane, or
    /// begins one of its own, so that the runs of each lane ascend. Its records may lie elsewhere.
    pub fn commit_moved(&mut self, stream: u32, run: CommitRun) -> Result<()> {
        let newest = self.lanes(stream).last().filter(|(lane, _)| *lane > NATIVE);
        let lane = match newest {
            None => NATIVE + 1,
            Some((lane, index)) if index.committed_end() <= Some(run.llsn_begin) => lane,
            Some((lane, _)) => lane + 1,
        };
        self.commit(stream, lane, run)
    }

    /// See [`StreamIndex::cut`]. One rollback frame cuts what was written here and what was moved
    /// here.
    pub fn cut(&mut self, stream: u32, from: u64, offset: u32) -> Result<()> {
        // Moved frames end where they end: a rollback behind them does not concern them.
        let moved: Vec<u32> = self
            .lanes(stream)
            .filter(|(lane, index)| {
                *lane > NATIVE && index.range().is_some_and(|range| from < range.end)
            })
            .map(|(lane, _)| lane)
            .collect();
        for lane in &moved {
            if let Some(index) = self.streams.get(&(stream, *lane)) {
                index.check_cut(from, offset)?;
            }
        }
        self.change(stream, NATIVE, |index| index.cut(from, offset))?;
        moved
            .into_iter()
            .try_for_each(|lane| self.change(stream, lane, |index| index.cut(from, offset)))
    }

    /// The lanes of a stream, native first.
    pub fn lanes(&self, stream: u32) -> impl DoubleEndedIterator<Item = (u32, &StreamIndex)> {
        let lanes = self.streams.range((stream, NATIVE)..=(stream, u32::MAX));
        lanes.map(|((_, lane), index)| (*lane, index))
    }

    /// See [`StreamIndex::clip`].
    pub fn clip(&self, stream: u32, lane: u32, llsn: u64, count: u32, offset: u32) -> u32 {
        self.stream(stream, lane)
            .map_or(count, |index| index.clip(llsn, count, offset))
    }

    /// See [`StreamIndex::floor`].
    pub fn floor(&self, stream: u32, lane: u32, llsn: u64) -> Option<Position> {
        self.stream(stream, lane)?.floor(llsn)
    }

    /// See [`StreamIndex::ceil`].
    pub fn ceil(&self, stream: u32, lane: u32, llsn: u64) -> Option<Position> {
        self.stream(stream, lane)?.ceil(llsn)
    }

    /// See [`StreamIndex::glsn_of`].
    pub fn glsn_of(&self, stream: u32, lane: u32, llsn: u64) -> Option<u64> {
        self.stream(stream, lane)?.glsn_of(llsn)
    }

    /// See [`StreamIndex::llsn_of`].
    pub fn llsn_of(&self, stream: u32, lane: u32, glsn: u64) -> Option<u64> {
        self.stream(stream, lane)?.llsn_of(glsn)
    }

    /// The index of one stream.
    pub fn stream(&self, stream: u32, lane: u32) -> Option<&StreamIndex> {
        self.streams.get(&(stream, lane))
    }

    /// All streams, ascending; the native lane of a stream before the moved ones.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &StreamIndex)> {
        self.streams
            .iter()
            .map(|((stream, _), index)| (*stream, index))
    }

    /// Number of stream indexes.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether the segment holds nothing of any stream.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Bytes held in memory, without the map's own nodes.
    pub fn memory_bytes(&self) -> usize {
        let streams = self.streams.values();
        size_of::<Self>() + streams.map(StreamIndex::memory_bytes).sum::<usize>()
    }

    /// Apply `change` to a stream's index, which comes into being only if that succeeds.
    fn change(
        &mut self,
        stream: u32,
        lane: u32,
        change: impl FnOnce(&mut StreamIndex) -> Result<()>,
    ) -> Result<()> {
        if let Some(index) = self.streams.get_mut(&(stream, lane)) {
            return change(index);
        }
        let mut index = StreamIndex::new(lane > NATIVE);
        change(&mut index)?;
        self.streams.insert((stream, lane), index);
        Ok(())
    }
}
