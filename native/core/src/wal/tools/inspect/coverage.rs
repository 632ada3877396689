//! Which frames hold which LLSNs of a stream, over all segments.
//!
//! Fed in log order: a native frame at `n` says that the stream ended at `n` then, so it takes everything
//! from `n` on away from older frames; a moved one replaces just what it covers.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::codec::Take;
use crate::error::Result;
use crate::index::CommitRun;
use crate::wal::format::change::Change;
use crate::wal::format::frame::{Frame, Kind};

/// Consecutive LLSNs whose frames stand in one segment, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// First LLSN.
    pub begin: u64,
    /// One past the last.
    pub end: u64,
    /// Index of the segment.
    pub lap: usize,
    /// Whether these are copies made by the cleaner.
    pub moved: bool,
    /// Offset of the first frame.
    pub first: u32,
    /// Offset behind the last frame.
    pub last: u32,
    /// Whether the next frame may join: nothing was cut off behind.
    open: bool,
}

/// The runs of every stream, rising and disjoint.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    streams: BTreeMap<u32, Vec<Run>>,
}

impl Coverage {
    /// Note a frame with records.
    pub fn note(&mut self, lap: usize, frame: &Frame) {
        let header = &frame.header;
        let moved = header.kind == Kind::Moved;
        let run = Run {
            begin: header.llsn,
            end: header.llsn.saturating_add(header.count.into()),
            lap,
            moved,
            first: frame.offset,
            last: frame.end(),
            open: true,
        };
        let runs = self.streams.entry(header.stream).or_default();
        if let Some(last) = runs.last_mut()
            && joins(last, &run)
        {
            (last.end, last.last) = (run.end, run.last);
            return;
        }
        let taken = if moved { run.end } else { u64::MAX };
        clear(runs, run.begin..taken);
        let at = runs.partition_point(|other| other.begin < run.begin);
        match at.checked_sub(1).and_then(|before| runs.get_mut(before)) {
            Some(before) if joins(before, &run) => {
                (before.end, before.last) = (run.end, run.last);
            }
            _ => runs.insert(at, run),
        }
    }

    /// Records of the stream from `from` on never happened.
    pub fn cut(&mut self, stream: u32, from: u64) {
        if let Some(runs) = self.streams.get_mut(&stream) {
            clear(runs, from..u64::MAX);
            // What is written next does not continue the frames before the cut.
            if let Some(last) = runs.last_mut() {
                last.open = false;
            }
        }
    }

    /// Runs of a stream.
    pub fn runs(&self, stream: u32) -> &[Run] {
        self.streams.get(&stream).map_or(&[], Vec::as_slice)
    }

    /// Streams that have records.
    pub fn streams(&self) -> impl Iterator<Item = u32> {
        self.streams.keys().copied()
    }

    /// Stretches of a stream within `range` without a hole, rising.
    pub fn islands(&self, stream: u32, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut islands: Vec<Range<u64>> = Vec::new();
        for run in self.runs(stream) {
            let (begin, end) = (run.begin.max(range.start), run.end.min(range.end));
            if begin >= end {
                continue;
            }
            match islands.last_mut() {
                Some(last) if last.end == begin => last.end = end,
                _ => islands.push(begin..end),
            }
        }
        islands
    }

    /// What no frame holds within `range`.
    pub fn holes(&self, stream: u32, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut holes = Vec::new();
        let mut next = range.start;
        for island in self.islands(stream, range) {
            if next < island.start {
                holes.push(next..island.start);
            }
            next = island.end;
        }
        if next < range.end {
            holes.push(next..range.end);
        }
        holes
    }
}

fn joins(before: &Run, run: &Run) -> bool {
    before.open
        && (before.lap, before.moved, before.end) == (run.lap, run.moved, run.begin)
        && before.last <= run.first
}

/// Take `range` away from the runs.
fn clear(runs: &mut Vec<Run>, range: Range<u64>) {
    let from = runs.partition_point(|run| run.end <= range.start);
    let to = runs.partition_point(|run| run.begin < range.end);
    if from >= to {
        return;
    }
    let mut kept = Vec::new();
    for run in runs.drain(from..to) {
        if run.begin < range.start {
            kept.push(Run {
                end: range.start,
                open: false,
                ..run.clone()
            });
        }
        if run.end > range.end {
            kept.push(Run {
                begin: range.end,
                ..run
            });
        }
    }
    runs.splice(from..from, kept);
}

/// The places in the order of its log that a frame gives to records of its stream.
pub fn commit_runs(frame: &Frame, payload: &[u8]) -> Vec<CommitRun> {
    match frame.header.kind {
        Kind::Commit => match Change::decode(&frame.header, payload) {
            Ok(Change::Commit(context)) => vec![CommitRun {
                glsn_begin: context.glsn_begin,
                llsn_begin: context.llsn_begin,
                length: context.length,
            }],
            _ => Vec::new(),
        },
        Kind::MovedRuns => moved_runs(payload).unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn moved_runs(payload: &[u8]) -> Result<Vec<CommitRun>> {
    let mut take = Take::new("moved runs", payload);
    (0..take.count(24)?)
        .map(|_| {
            Ok(CommitRun {
                glsn_begin: take.u64()?,
                llsn_begin: take.u64()?,
                length: take.u64()?,
            })
        })
        .collect()
}
