//! Number index of one segment of the write-ahead log: from a stream's numbers to file offsets.
//!
//! # Theory of operation
//!
//! A segment interleaves the frames of many streams. For each stream the index keeps where its
//! LLSNs begin and end here, its exact first and last frame, and *samples*: `(LLSN - begin,
//! offset)` of a frame, 8 bytes each in memory. A sample is taken by bytes, not by count: the
//! first frame of the stream, then each first frame that starts at least
//! [`SAMPLE_BYTES`](crate::limits::SAMPLE_BYTES) of *this stream's* bytes behind the sampled one.
//! So a lookup lands less than that distance before the frame it wants, and samples stay under
//! 0.2 % of the data, whatever the size of a frame. On disk a sample mostly takes 3 to 5 bytes
//! (its difference to the one before), a stream 112 more, and a commit run that continues no
//! other 24.
//!
//! The appender registers a frame in the critical section that gives it its number and offset.
//! Nothing can arrive late, hence there are no holes, and a refused call changes nothing.
//!
//! Beside the samples an index holds *commit runs* (which GLSNs the LLSNs got) and *cuts*. A
//! rollback is a frame of its own, the bytes it cuts off stay where they are, and a
//! [`Cut`] says: frames of this stream before `offset` end at LLSN `from`. A reader that walks
//! from a looked-up position asks [`StreamIndex::clip`] how much of each frame still counts.
//!
//! A sealed segment's index goes into a side file ([`SegmentIndex::encode`]). It is derived data:
//! missing or refused, it is rebuilt from the segment and never stops an open.
//!
//! # A worked example
//!
//! Stream 7 owns five frames of a segment; other streams' frames lie between them.
//!
//! ```text
//! LLSNs       offset   bytes   stream bytes before it   sampled
//! 101..111     12288    1000                        0   yes: first of the segment
//! 111..131     14000    2000                     1000   no
//! 131..132     16000    2000                     3000   no
//! 132..140     20000     500                     5000   yes: 5000 >= 4096 after the sample at 0
//! 140..150     21000     700                     5500   no, but it is the last: a landmark
//! ```
//!
//! It stores begin 101, end 150, samples (0, 12288) and (31, 20000), last (140, 21000). LLSN 115
//! lies between the frame at 12288 (floor) and the one at 20000 (ceil): a reader starts at the
//! former, skips one frame, and must have met 115 before the latter. A rollback to 135, written
//! at 22000, then ends the range inside the fourth frame and forgets the fifth.
//!
//! ```
//! use braidlog_core::index::{FrameEntry, Position, StreamIndex};
//!
//! let mut index = StreamIndex::new(false);
//! for (llsn, count, offset, bytes) in [
//!     (101, 10, 12288, 1000),
//!     (111, 20, 14000, 2000),
//!     (131, 1, 16000, 2000),
//!     (132, 8, 20000, 500),
//!     (140, 10, 21000, 700),
//! ] {
//!     index.note(FrameEntry {
//!         llsn,
//!         count,
//!         offset,
//!         bytes,
//!         timestamp_min: 0,
//!         timestamp_max: 0,
//!     })?;
//! }
//! let at = |llsn, offset| Some(Position { llsn, offset });
//! assert_eq!((index.floor(115), index.ceil(115)), (at(101, 12288), at(132, 20000)));
//! assert_eq!((index.floor(145), index.ceil(145)), (at(140, 21000), at(140, 21000)));
//! assert_eq!((index.floor(100), index.floor(150)), (None, None));
//!
//! index.cut(135, 22000)?;
//! assert_eq!(index.range(), Some(101..135));
//! assert_eq!(index.clip(132, 8, 20000), 3);
//! assert_eq!(index.clip(140, 10, 21000), 0);
//! # Ok::<(), braidlog_core::Error>(())
//! ```
//!
//! # Which segment owns a number
//!
//! Over the segments of a log, LLSN `n` of a stream belongs to the *newest* segment whose native
//! range begins at or below `n`; if `n` is not below that range's end it does not exist. A rollback
//! below the beginning of a segment leaves it the empty range `from..from`, which by the same rule
//! takes everything from `from` on away from the older segments: an older segment's range, and
//! its frames, are clipped to the smallest beginning of the segments after it.
//!
//! # Invariants
//!
//! * A native index is dense: a frame begins at `end`. A moved one (frames that the cleaner
//!   copied forward) ascends and may have gaps; behind a gap there is always a sample.
//! * Samples rise strictly in LLSN and in offset; the first has delta 0; there are none exactly
//!   when the range is empty. The first frame behind a cut is sampled.
//! * Cuts rise strictly in `from` and in offset: one that a later, lower cut makes pointless is
//!   dropped. So the first cut behind an offset is the one that binds there.
//! * Runs ascend in both numbers, are dense in LLSN (native), are merged where they can be, and are
//!   never cut.
//! * Frames, bytes and timestamps count every frame registered, rolled back or not: they
//!   bound what lives from above.

mod lookup;
mod runs;
mod segment;
mod side;
mod stream;
#[cfg(test)]
mod tests;

pub use runs::{CommitPoint, CommitRun};
pub use segment::{NATIVE, SegmentIndex};
pub use side::{HEADER_BYTES, SideHeader, StreamSummary, decode, decode_summary, summary_bytes};
pub use stream::{Cut, FrameEntry, Position, Sample, StreamIndex};
