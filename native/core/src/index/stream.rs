//! Index of one stream's frames in one segment: what is registered.

use super::lookup::position;
use super::runs::{CommitRun, CommitRuns};
use crate::error::{Error, Result};
use crate::limits::SAMPLE_BYTES;

/// A frame remembered by the index: where it starts and which LLSN it starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// First LLSN of the frame, less the index's `begin`.
    pub delta: u32,
    /// Offset of the frame in the segment.
    pub offset: u32,
}

/// A rollback: frames of the stream before `offset` end at LLSN `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// First LLSN that was taken back.
    pub from: u64,
    /// Offset of the rollback frame.
    pub offset: u32,
}

/// Start of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// First LLSN of the frame.
    pub llsn: u64,
    /// Offset of the frame in the segment.
    pub offset: u32,
}

/// What the index is told of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameEntry {
    /// First LLSN.
    pub llsn: u64,
    /// Records; not 0.
    pub count: u32,
    /// Offset in the segment.
    pub offset: u32,
    /// Length of the frame, header and padding included; not 0.
    pub bytes: u32,
    /// Smallest timestamp of its records.
    pub timestamp_min: i64,
    /// Largest timestamp of its records.
    pub timestamp_max: i64,
}

/// Everything of a stream's index that has a fixed size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Landmarks {
    /// A frame or a cut has said where the stream stands; until then `begin` means nothing.
    pub(super) placed: bool,
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Last frame known; only meaningful when the range is not empty.
    pub(super) last: Position,
    /// A cut took the last frame away and `last` is the greatest sample below it. Until the next
    /// frame, others may lie between `last` and the cut.
    pub(super) last_lost: bool,
    pub(super) frames: u64,
    pub(super) bytes: u64,
    /// What `bytes` was when the last sample was taken.
    pub(super) bytes_at_sample: u64,
    pub(super) timestamp_min: i64,
    pub(super) timestamp_max: i64,
    /// Smallest offset at which another frame of this stream can start.
    pub(super) next_offset: u32,
}

/// Number index of one stream (native or moved) in one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamIndex {
    pub(super) moved: bool,
    pub(super) marks: Landmarks,
    pub(super) samples: Vec<Sample>,
    pub(super) runs: CommitRuns,
    pub(super) cuts: Vec<Cut>,
}

impl StreamIndex {
    /// An index that knows no frame. `moved`: for frames that the cleaner copied forward.
    pub fn new(moved: bool) -> Self {
        Self {
            moved,
            marks: Landmarks::default(),
            samples: Vec::new(),
            runs: CommitRuns::default(),
            cuts: Vec::new(),
        }
    }

    /// Register the stream's next frame. On error nothing has changed.
    ///
    /// `NotDense`: the LLSN is not `end` (moved: below it). `TooLarge`: it is 2^32 or more above
    /// `begin`, the frame belongs in another segment. `InvalidArgument`: the frame is empty, its
    /// timestamps are reversed, or it starts inside or before the one registered last.
    pub fn note(&mut self, frame: FrameEntry) -> Result<()> {
        let marks = &self.marks;
        let frame_end = check_frame(&frame)?;
        let behind_gap = marks.placed && self.moved && frame.llsn > marks.end;
        if marks.placed && frame.llsn != marks.end && !behind_gap {
            let (given, expected) = (frame.llsn, marks.end);
            return Err(Error::NotDense {
                what: "LLSN",
                given,
                expected,
            });
        }
        if let Some(expected) = self
            .runs
            .llsn_end()
            .filter(|end| frame.llsn < *end && !self.moved)
        {
            // Only before the first frame: the committed records lie in an older segment.
            return Err(Error::NotDense {
                what: "LLSN",
                given: frame.llsn,
                expected,
            });
        }
        let next_offset = self.check_offset(frame.offset, frame.bytes)?;
        let first = self.samples.is_empty();
        let begin = if first { frame.llsn } else { marks.begin };
        let delta = u32::try_from(frame.llsn - begin).map_err(|_| Error::TooLarge {
            what: "LLSN distance from the first of the segment",
            size: frame.llsn - begin,
            max: u64::from(u32::MAX),
        })?;
        // Behind a cut a reader would otherwise walk through all that was taken back.
        let behind_cut = self
            .cuts
            .last()
            .is_some_and(|cut| cut.offset > marks.last.offset);
        let due = marks.bytes - marks.bytes_at_sample >= SAMPLE_BYTES;

        let marks = &mut self.marks;
        if first || behind_gap || behind_cut || due {
            self.samples.push(Sample {
                delta,
                offset: frame.offset,
            });
            marks.bytes_at_sample = marks.bytes;
        }
        if marks.frames == 0 {
            marks.timestamp_min = frame.timestamp_min;
            marks.timestamp_max = frame.timestamp_max;
        }
        marks.timestamp_min = marks.timestamp_min.min(frame.timestamp_min);
        marks.timestamp_max = marks.timestamp_max.max(frame.timestamp_max);
        marks.placed = true;
        marks.begin = begin;
        marks.end = frame_end;
        marks.last = Position {
            llsn: frame.llsn,
            offset: frame.offset,
        };
        marks.last_lost = false;
        marks.frames += 1;
        marks.bytes += u64::from(frame.bytes);
        marks.next_offset = next_offset;
        Ok(())
    }

    /// Register that `run` was committed. On error nothing has changed.
    ///
    /// The records may lie in an older segment, the numbers may not: `NotDense` if the run does
    /// not continue the last one (moved: begins below its end), `InvalidArgument` if its GLSN
    /// was given out before, `BeyondEnd` if this segment knows that the records do not exist.
    pub fn commit(&mut self, run: CommitRun) -> Result<()> {
        if self.marks.placed && !self.moved && run.llsn_end() > self.marks.end {
            let (position, next) = (run.llsn_end() - 1, self.marks.end);
            return Err(Error::BeyondEnd { position, next });
        }
        self.runs.push(run, self.moved)
    }

    /// Register a rollback frame: LLSNs from `from` on are taken back, and the next frame begins
    /// there. On error nothing has changed.
    ///
    /// `BeyondEnd` above `end`; `Committed` below the end of the last commit run. A `from` at or
    /// below `begin` leaves the empty range `from..from`.
    pub fn cut(&mut self, from: u64, offset: u32) -> Result<()> {
        self.check_cut(from, offset)?;
        let marks = &mut self.marks;
        if !marks.placed || from <= marks.begin {
            marks.placed = true;
            marks.begin = from;
            marks.last = Position::default();
            marks.last_lost = false;
            self.samples.clear();
        } else if marks.last.llsn >= from {
            let begin = marks.begin;
            let kept = self
                .samples
                .partition_point(|s| begin + u64::from(s.delta) < from);
            self.samples.truncate(kept);
            // `from` is above `begin`, so the first sample is always left.
            if let Some(sample) = self.samples.last() {
                marks.last = position(begin, *sample);
                marks.last_lost = true;
            }
        }
        marks.end = from;
        marks.next_offset = offset + 1;
        while self.cuts.last().is_some_and(|cut| cut.from >= from) {
            self.cuts.pop();
        }
        self.cuts.push(Cut { from, offset });
        Ok(())
    }

    /// Whether [`cut`](Self::cut) would succeed.
    pub(super) fn check_cut(&self, from: u64, offset: u32) -> Result<()> {
        if self.marks.placed && from > self.marks.end {
            return Err(Error::BeyondEnd {
                position: from,
                next: self.marks.end,
            });
        }
        match self.runs.llsn_end() {
            Some(committed) if from < committed => Err(Error::Committed {
                given: from,
                committed,
            }),
            _ => self.check_offset(offset, 1).map(|_| ()),
        }
    }

    /// How many of the `count` records of the frame at `offset` were not rolled back by a cut
    /// of this segment.
    pub fn clip(&self, llsn: u64, count: u32, offset: u32) -> u32 {
        let at = self.cuts.partition_point(|cut| cut.offset <= offset);
        self.cuts.get(at).map_or(count, |cut| {
            u32::try_from(cut.from.saturating_sub(llsn)).map_or(count, |left| left.min(count))
        })
    }

    /// Check that something of `bytes` may start at `offset`; return where it ends.
    fn check_offset(&self, offset: u32, bytes: u32) -> Result<u32> {
        let next = self.marks.next_offset;
        if offset < next {
            return Err(Error::InvalidArgument(format!(
                "frame at offset {offset} starts before {next}, the end of the stream's last one"
            )));
        }
        offset.checked_add(bytes).ok_or_else(|| {
            Error::InvalidArgument(format!(
                "frame of {bytes} at {offset} passes 32-bit offsets"
            ))
        })
    }
}

/// Check a frame by itself; return its end.
fn check_frame(frame: &FrameEntry) -> Result<u64> {
    let end = frame.llsn.checked_add(u64::from(frame.count));
    match end {
        Some(end)
            if frame.count > 0 && frame.bytes > 0 && frame.timestamp_min <= frame.timestamp_max =>
        {
            Ok(end)
        }
        _ => Err(Error::InvalidArgument(format!(
            "not a frame to index: {frame:?}"
        ))),
    }
}
