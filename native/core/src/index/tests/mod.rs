//! Behaviour of the number index, and the dumb model it is held against.
//!
//! Numbers in comments behind test names are those of the scenario list this design was
//! reviewed with; what they ask of an index that samples by count is asked here of one that samples
//! by bytes.
#![allow(clippy::unwrap_used)]

mod commits;
mod lookups;
mod model;
mod rollbacks;
mod segments;
mod side_file;
mod side_forged;

use super::*;

/// A frame without interesting timestamps.
fn frame(llsn: u64, count: u32, offset: u32, bytes: u32) -> FrameEntry {
    FrameEntry {
        llsn,
        count,
        offset,
        bytes,
        timestamp_min: 0,
        timestamp_max: 0,
    }
}

/// What a lookup that finds the frame of `llsn` at `offset` returns.
#[allow(clippy::unnecessary_wraps)]
fn at(llsn: u64, offset: u32) -> Option<Position> {
    Some(Position { llsn, offset })
}

/// A native index of `(llsn, count, offset, bytes)`.
fn index_of(frames: impl IntoIterator<Item = (u64, u32, u32, u32)>) -> StreamIndex {
    let mut index = StreamIndex::new(false);
    for (llsn, count, offset, bytes) in frames {
        index.note(frame(llsn, count, offset, bytes)).unwrap();
    }
    index
}

/// First LLSNs of the samples.
fn sampled(index: &StreamIndex) -> Vec<u64> {
    let begin = index.range().unwrap().start;
    index
        .samples()
        .iter()
        .map(|sample| begin + u64::from(sample.delta))
        .collect()
}

/// The index as it comes back from a side file.
fn reloaded(index: &StreamIndex) -> StreamIndex {
    let mut segment = SegmentIndex::new();
    segment
        .streams
        .insert((7, u32::from(index.moved)), index.clone());
    let bytes = segment.encode(3, 0x5A17, 1 << 31);
    let (_, decoded) = decode(&bytes).unwrap();
    decoded.stream(7, u32::from(index.moved)).unwrap().clone()
}
