//! Fixed-size part of one stream in a side file.
//!
//! ```text
//!  0  u32  stream
//!  4  u8   flags: 1 moved, 2 placed (has a range), 4 last frame lost to a cut   5 u8 zero   6 u16 lane
//!  8  u64  begin                          16  u64  end (LLSN, half-open)
//! 24  u32  offset of the first frame      28  u32  offset of the last known frame
//! 32  u64  first LLSN of the last known frame
//! 40  u64  frames                         48  u64  bytes
//! 56  u64  bytes registered when the last sample was taken
//! 64  i64  smallest timestamp             72  i64  largest timestamp
//! 80  u64  first GLSN of the runs         88  u64  behind their last GLSN
//! 96  u32  smallest offset of a next frame
//! 100 u32  samples   104 u32 runs   108 u32 cuts
//! ```
//!
//! What does not apply (empty range, no frame, no run) is zero.

use super::{StreamSummary, u32_at, u64_at};
use crate::index::runs::CommitRun;
use crate::index::stream::{Landmarks, Position, StreamIndex};

pub(super) const ENTRY_BYTES: usize = 112;

const MOVED: u8 = 1;
const PLACED: u8 = 2;
const LAST_LOST: u8 = 4;

pub(super) struct Entry {
    pub(super) stream: u32,
    /// 0 for what was written here, above for what was moved here.
    pub(super) lane: u32,
    pub(super) marks: Landmarks,
    pub(super) first_offset: u32,
    pub(super) glsn_begin: u64,
    pub(super) glsn_end: u64,
    pub(super) samples: u32,
    pub(super) runs: u32,
    pub(super) cuts: u32,
}

impl Entry {
    pub(super) fn of(stream: u32, lane: u32, index: &StreamIndex) -> Self {
        let runs = index.runs();
        Self {
            stream,
            lane,
            marks: index.marks.clone(),
            first_offset: index.samples.first().map_or(0, |sample| sample.offset),
            glsn_begin: runs.first().map_or(0, |run| run.glsn_begin),
            glsn_end: runs.last().map_or(0, CommitRun::glsn_end),
            samples: index.samples.len() as u32,
            runs: runs.len() as u32,
            cuts: index.cuts.len() as u32,
        }
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let marks = &self.marks;
        let flags = u8::from(self.lane > 0) * MOVED
            + u8::from(marks.placed) * PLACED
            + u8::from(marks.last_lost) * LAST_LOST;
        out.extend_from_slice(&self.stream.to_le_bytes());
        out.extend_from_slice(&[flags, 0]);
        out.extend_from_slice(&(self.lane as u16).to_le_bytes());
        out.extend_from_slice(&marks.begin.to_le_bytes());
        out.extend_from_slice(&marks.end.to_le_bytes());
        out.extend_from_slice(&self.first_offset.to_le_bytes());
        out.extend_from_slice(&marks.last.offset.to_le_bytes());
        out.extend_from_slice(&marks.last.llsn.to_le_bytes());
        out.extend_from_slice(&marks.frames.to_le_bytes());
        out.extend_from_slice(&marks.bytes.to_le_bytes());
        out.extend_from_slice(&marks.bytes_at_sample.to_le_bytes());
        out.extend_from_slice(&marks.timestamp_min.to_le_bytes());
        out.extend_from_slice(&marks.timestamp_max.to_le_bytes());
        out.extend_from_slice(&self.glsn_begin.to_le_bytes());
        out.extend_from_slice(&self.glsn_end.to_le_bytes());
        for word in [marks.next_offset, self.samples, self.runs, self.cuts] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Read and check an entry of [`ENTRY_BYTES`].
    pub(super) fn take(raw: &[u8], sealed_bytes: u64) -> Result<Self, &'static str> {
        let flags = raw[4];
        if flags & !(MOVED | PLACED | LAST_LOST) != 0 || raw[5] != 0 {
            return Err("unknown stream flags");
        }
        if (flags & MOVED != 0) != (raw[6..8] != [0; 2]) {
            return Err("lane and flags disagree");
        }
        let entry = Self {
            stream: u32_at(raw, 0),
            lane: u32::from(u16::from_le_bytes([raw[6], raw[7]])),
            marks: Landmarks {
                placed: flags & PLACED != 0,
                begin: u64_at(raw, 8),
                end: u64_at(raw, 16),
                last: Position {
                    llsn: u64_at(raw, 32),
                    offset: u32_at(raw, 28),
                },
                last_lost: flags & LAST_LOST != 0,
                frames: u64_at(raw, 40),
                bytes: u64_at(raw, 48),
                bytes_at_sample: u64_at(raw, 56),
                timestamp_min: u64_at(raw, 64).cast_signed(),
                timestamp_max: u64_at(raw, 72).cast_signed(),
                next_offset: u32_at(raw, 96),
            },
            first_offset: u32_at(raw, 24),
            glsn_begin: u64_at(raw, 80),
            glsn_end: u64_at(raw, 88),
            samples: u32_at(raw, 100),
            runs: u32_at(raw, 104),
            cuts: u32_at(raw, 108),
        };
        entry.check(sealed_bytes)?;
        Ok(entry)
    }

    fn check(&self, sealed_bytes: u64) -> Result<(), &'static str> {
        let marks = &self.marks;
        let no_runs = self.runs == 0 && (self.glsn_begin, self.glsn_end) == (0, 0);
        if !no_runs && (self.runs == 0 || self.glsn_begin >= self.glsn_end) {
            return Err("GLSN range does not fit the runs");
        }
        if !marks.placed {
            let blank = *marks == Landmarks::default() && self.first_offset == 0;
            let bare = self.samples == 0 && self.cuts == 0;
            return if blank && bare && self.runs > 0 {
                Ok(())
            } else {
                Err("frames but no range")
            };
        }
        if marks.begin > marks.end || (marks.begin < marks.end) != (self.samples > 0) {
            return Err("range does not fit the samples");
        }
        if u64::from(marks.next_offset) > sealed_bytes {
            return Err("frames behind the end of the segment");
        }
        if marks.bytes_at_sample > marks.bytes
            || marks.frames < u64::from(self.samples)
            || marks.frames > marks.bytes
            || marks.bytes > u64::from(marks.next_offset)
            || marks.timestamp_min > marks.timestamp_max
            || (marks.frames == 0
                && (marks.bytes, marks.timestamp_min, marks.timestamp_max) != (0, 0, 0))
        {
            return Err("frames, bytes and timestamps contradict each other");
        }
        if self.samples == 0 {
            let blank = marks.last == Position::default() && self.first_offset == 0;
            let cut = self.cuts > 0 && !marks.last_lost;
            return if blank && cut {
                Ok(())
            } else {
                Err("empty range with a frame or no cut")
            };
        }
        if !(marks.begin..marks.end).contains(&marks.last.llsn)
            || self.first_offset > marks.last.offset
            || marks.last.offset >= marks.next_offset
            || (marks.last_lost && self.cuts == 0)
        {
            return Err("first and last frame contradict the range");
        }
        Ok(())
    }

    pub(super) fn summary(&self) -> StreamSummary {
        let marks = &self.marks;
        let first = Position {
            llsn: marks.begin,
            offset: self.first_offset,
        };
        StreamSummary {
            stream: self.stream,
            lane: self.lane,
            range: marks.placed.then_some(marks.begin..marks.end),
            first: (self.samples > 0).then_some(first),
            last: (self.samples > 0).then_some(marks.last),
            glsns: (self.runs > 0).then_some(self.glsn_begin..self.glsn_end),
            frames: marks.frames,
            bytes: marks.bytes,
            timestamps: (marks.frames > 0).then_some((marks.timestamp_min, marks.timestamp_max)),
        }
    }
}
