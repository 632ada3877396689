//! Commit runs of a stream: from its numbers to those of its log, and back; of what is durable.

use std::ops::Range;

use crate::error::Result;
use crate::index::{CommitPoint, CommitRun, SegmentIndex};
use crate::wal::read::view::View;
use crate::wal::segments::segment::Segment;

impl View {
    /// The runs of the stream's LLSNs `begin..end` that segments have, rising.
    pub fn commit_runs(&self, stream: u32, begin: u64, end: u64) -> Result<Vec<CommitRun>> {
        let mut found = Vec::new();
        for segment in self.segments().iter() {
            self.look(stream, segment, |index| {
                add_runs(index, stream, begin..end, &mut found);
            })?;
        }
        found.sort_by_key(|run: &CommitRun| run.llsn_begin);
        Ok(merged(&found, begin, end))
    }

    /// The committed record with the smallest GLSN not below `glsn`.
    pub fn glsn_ceil(&self, stream: u32, glsn: u64) -> Result<Option<CommitPoint>> {
        let low = self.stream(stream)?.range().first;
        let mut best: Option<CommitPoint> = None;
        for segment in self.segments().iter() {
            self.look(stream, segment, |index| {
                for (_, lane) in index.lanes(stream) {
                    best = earlier(best, ceil(lane.runs(), glsn, low));
                }
            })?;
        }
        Ok(best)
    }

    /// Run `f` on a segment's index if it may hold runs of the stream.
    pub(crate) fn look(
        &self,
        stream: u32,
        segment: &Segment,
        f: impl FnOnce(&SegmentIndex),
    ) -> Result<()> {
        let (vfs, dir) = (&*self.vfs, self.dir.as_path());
        if segment.sealed().is_some() {
            let summary = segment.summary(vfs, dir)?;
            let holds = |entry: &crate::index::StreamSummary| {
                entry.stream == stream && entry.glsns.is_some()
            };
            if !summary.iter().any(holds) {
                return Ok(());
            }
        }
        segment.with_index(vfs, dir, f)
    }
}

/// The one with the smaller GLSN.
pub(crate) fn earlier(one: Option<CommitPoint>, other: Option<CommitPoint>) -> Option<CommitPoint> {
    let both = one.into_iter().chain(other);
    both.min_by_key(|point| point.glsn)
}

/// The first record of the runs from `glsn` and from `low` on.
pub(crate) fn ceil(runs: &[CommitRun], glsn: u64, low: u64) -> Option<CommitPoint> {
    let at = runs.partition_point(|run| run.glsn_end() <= glsn || run.llsn_end() <= low);
    let run = runs.get(at)?;
    let into = glsn.saturating_sub(run.glsn_begin);
    let into = into.max(low.saturating_sub(run.llsn_begin));
    Some(CommitPoint {
        glsn: run.glsn_begin + into,
        llsn: run.llsn_begin + into,
    })
}

/// Add the runs of an index that hold any of a range of LLSNs.
pub(crate) fn add_runs(
    index: &SegmentIndex,
    stream: u32,
    range: Range<u64>,
    found: &mut Vec<CommitRun>,
) {
    for (_, lane) in index.lanes(stream) {
        let runs = lane.runs();
        let from = runs.partition_point(|run| run.llsn_end() <= range.start);
        let wanted = runs[from..].iter();
        found.extend(wanted.take_while(|run| run.llsn_begin < range.end).copied());
    }
}

/// Runs within `begin..end`, each once: the cleaner's copies say the same again.
pub(crate) fn merged(sorted: &[CommitRun], begin: u64, end: u64) -> Vec<CommitRun> {
    let mut found: Vec<CommitRun> = Vec::new();
    let mut next = begin;
    for run in sorted {
        let (from, to) = (run.llsn_begin.max(next), run.llsn_end().min(end));
        if from >= to {
            continue;
        }
        let piece = CommitRun {
            glsn_begin: run.glsn_begin + (from - run.llsn_begin),
            llsn_begin: from,
            length: to - from,
        };
        next = to;
        match found.last_mut() {
            Some(last) if (last.llsn_end(), last.glsn_end()) == (from, piece.glsn_begin) => {
                last.length += piece.length;
            }
            _ => found.push(piece),
        }
    }
    found
}
