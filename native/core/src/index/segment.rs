//! Index of a whole segment: one [`StreamIndex`] per stream and origin.

use std::collections::BTreeMap;

use super::runs::CommitRun;
use super::stream::{FrameEntry, Position, StreamIndex};
use crate::error::Result;

/// Number index of one segment, keyed by stream and by whether the frames were moved here.
///
/// A stream that is not in the index has no frame, commit or cut in the segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentIndex {
    /// Ordered, so that a side file is a function of the index.
    pub(super) streams: BTreeMap<(u32, bool), StreamIndex>,
}

impl SegmentIndex {
    /// An index of an empty segment.
    pub fn new() -> Self {
        Self::default()
    }

    /// See [`StreamIndex::note`].
    pub fn note(&mut self, stream: u32, moved: bool, frame: FrameEntry) -> Result<()> {
        self.change(stream, moved, |index| index.note(frame))
    }

    /// See [`StreamIndex::commit`].
    pub fn commit(&mut self, stream: u32, moved: bool, run: CommitRun) -> Result<()> {
        self.change(stream, moved, |index| index.commit(run))
    }

    /// See [`StreamIndex::cut`]. One rollback frame cuts what was written here and what was moved
    /// here.
    pub fn cut(&mut self, stream: u32, from: u64, offset: u32) -> Result<()> {
        // Moved frames end where they end: a rollback behind them does not concern them.
        let concerns_moved =
            |index: &&mut StreamIndex| index.range().is_some_and(|range| from < range.end);
        let moved = self.streams.get_mut(&(stream, true));
        if let Some(index) = moved.filter(concerns_moved) {
            index.check_cut(from, offset)?;
        }
        self.change(stream, false, |index| index.cut(from, offset))?;
        let moved = self.streams.get_mut(&(stream, true));
        moved
            .filter(concerns_moved)
            .map_or(Ok(()), |index| index.cut(from, offset))
    }

    /// See [`StreamIndex::clip`].
    pub fn clip(&self, stream: u32, moved: bool, llsn: u64, count: u32, offset: u32) -> u32 {
        self.stream(stream, moved)
            .map_or(count, |index| index.clip(llsn, count, offset))
    }

    /// See [`StreamIndex::floor`].
    pub fn floor(&self, stream: u32, moved: bool, llsn: u64) -> Option<Position> {
        self.stream(stream, moved)?.floor(llsn)
    }

    /// See [`StreamIndex::ceil`].
    pub fn ceil(&self, stream: u32, moved: bool, llsn: u64) -> Option<Position> {
        self.stream(stream, moved)?.ceil(llsn)
    }

    /// See [`StreamIndex::glsn_of`].
    pub fn glsn_of(&self, stream: u32, moved: bool, llsn: u64) -> Option<u64> {
        self.stream(stream, moved)?.glsn_of(llsn)
    }

    /// See [`StreamIndex::llsn_of`].
    pub fn llsn_of(&self, stream: u32, moved: bool, glsn: u64) -> Option<u64> {
        self.stream(stream, moved)?.llsn_of(glsn)
    }

    /// The index of one stream.
    pub fn stream(&self, stream: u32, moved: bool) -> Option<&StreamIndex> {
        self.streams.get(&(stream, moved))
    }

    /// All streams, ascending; the native index of a stream before the moved one.
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
        moved: bool,
        change: impl FnOnce(&mut StreamIndex) -> Result<()>,
    ) -> Result<()> {
        if let Some(index) = self.streams.get_mut(&(stream, moved)) {
            return change(index);
        }
        let mut index = StreamIndex::new(moved);
        change(&mut index)?;
        self.streams.insert((stream, moved), index);
        Ok(())
    }
}
