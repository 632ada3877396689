//! Index of one stream's frames in one segment: what can be asked. Binary searches only.

use std::ops::Range;

use super::runs::{CommitPoint, CommitRun};
use super::stream::{Cut, Position, Sample, StreamIndex};

impl StreamIndex {
    /// The LLSNs of this segment, or `None` if it says nothing about where the stream stands
    /// (it holds commit runs at most). A moved range may have gaps.
    pub fn range(&self) -> Option<Range<u64>> {
        self.marks
            .placed
            .then_some(self.marks.begin..self.marks.end)
    }

    /// The greatest frame known to start at or before `llsn`: a forward scan from there meets
    /// `llsn` within `SAMPLE_BYTES` of the stream's bytes. `None` outside the range.
    pub fn floor(&self, llsn: u64) -> Option<Position> {
        let marks = &self.marks;
        if llsn < marks.begin || llsn >= marks.end {
            return None;
        }
        if llsn >= marks.last.llsn {
            return Some(marks.last);
        }
        let delta = llsn - marks.begin;
        let at = self
            .samples
            .partition_point(|sample| u64::from(sample.delta) <= delta);
        self.samples
            .get(at.checked_sub(1)?)
            .map(|sample| position(marks.begin, *sample))
    }

    /// The smallest frame known to start at or behind `llsn`, or the last frame if it holds
    /// `llsn`: a scan that gets behind this offset has missed it. `None` outside the range.
    ///
    /// If a cut has taken the last frame away and none followed, the bound of the numbers
    /// behind the last known frame is the rollback frame.
    pub fn ceil(&self, llsn: u64) -> Option<Position> {
        let marks = &self.marks;
        if llsn < marks.begin || llsn >= marks.end {
            return None;
        }
        if llsn > marks.last.llsn && marks.last_lost {
            return self.cuts.last().map(|cut| Position {
                llsn: cut.from,
                offset: cut.offset,
            });
        }
        let delta = llsn - marks.begin;
        let at = self
            .samples
            .partition_point(|sample| u64::from(sample.delta) < delta);
        Some(
            self.samples
                .get(at)
                .map_or(marks.last, |sample| position(marks.begin, *sample)),
        )
    }

    /// The first frame; exact. `None` if the range is empty.
    pub fn first(&self) -> Option<Position> {
        self.samples
            .first()
            .map(|sample| position(self.marks.begin, *sample))
    }

    /// The last frame; after a cut, until the next frame, the greatest one that is still known.
    /// `None` if the range is empty.
    pub fn last(&self) -> Option<Position> {
        (!self.samples.is_empty()).then_some(self.marks.last)
    }

    /// GLSN of the record with this LLSN, if this segment holds its commit.
    pub fn glsn_of(&self, llsn: u64) -> Option<u64> {
        self.runs.glsn_of(llsn)
    }

    /// LLSN of the record with this GLSN, if it is this stream's and this segment holds its commit.
    pub fn llsn_of(&self, glsn: u64) -> Option<u64> {
        self.runs.llsn_of(glsn)
    }

    /// The committed record with the greatest GLSN not above `glsn`. A stream's GLSNs have gaps.
    pub fn glsn_floor(&self, glsn: u64) -> Option<CommitPoint> {
        self.runs.floor(glsn)
    }

    /// The committed record with the smallest GLSN not below `glsn`.
    pub fn glsn_ceil(&self, glsn: u64) -> Option<CommitPoint> {
        self.runs.ceil(glsn)
    }

    /// LLSN behind the last commit run, if there is one.
    pub fn committed_end(&self) -> Option<u64> {
        self.runs.llsn_end()
    }

    /// Whether these are frames that the cleaner copied forward.
    pub fn is_moved(&self) -> bool {
        self.moved
    }

    /// Frames registered, those rolled back included.
    pub fn frames(&self) -> u64 {
        self.marks.frames
    }

    /// Bytes of the frames registered, those rolled back included.
    pub fn bytes(&self) -> u64 {
        self.marks.bytes
    }

    /// Smallest and largest timestamp registered, rolled back or not.
    pub fn timestamps(&self) -> Option<(i64, i64)> {
        (self.marks.frames > 0).then_some((self.marks.timestamp_min, self.marks.timestamp_max))
    }

    /// All samples, ascending.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// All commit runs, ascending.
    pub fn runs(&self) -> &[CommitRun] {
        self.runs.as_slice()
    }

    /// The cuts that still bind, ascending.
    pub fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    /// Heap and inline bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.samples.capacity() * size_of::<Sample>()
            + self.runs.capacity() * size_of::<CommitRun>()
            + self.cuts.capacity() * size_of::<Cut>()
    }
}

pub(super) fn position(begin: u64, sample: Sample) -> Position {
    Position {
        llsn: begin + u64::from(sample.delta),
        offset: sample.offset,
    }
}
