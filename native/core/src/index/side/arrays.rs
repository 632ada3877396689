//! The arrays of a side file: samples, commit runs, cuts.

use super::entry::Entry;
use super::{Totals, samples, u32_at, u64_at};
use crate::index::runs::{CommitRun, CommitRuns};
use crate::index::stream::{Cut, StreamIndex};

/// Encoded sizes.
pub(super) const RUN: usize = 24;
pub(super) const CUT: usize = 16;

/// Append the runs and cuts, which stand behind the samples.
pub(super) fn put<'a>(streams: impl Iterator<Item = &'a StreamIndex> + Clone, out: &mut Vec<u8>) {
    for run in streams.clone().flat_map(StreamIndex::runs) {
        out.extend_from_slice(&run.glsn_begin.to_le_bytes());
        out.extend_from_slice(&run.llsn_begin.to_le_bytes());
        out.extend_from_slice(&run.length.to_le_bytes());
    }
    for cut in streams.flat_map(StreamIndex::cuts) {
        out.extend_from_slice(&cut.from.to_le_bytes());
        out.extend_from_slice(&cut.offset.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
    }
}

/// What is left of each array, stream by stream. The lengths add up: `decode` has checked the
/// body against the totals, and those of runs and cuts against the entries.
pub(super) struct Places<'a> {
    samples: &'a [u8],
    runs: &'a [u8],
    cuts: &'a [u8],
}

impl<'a> Places<'a> {
    pub(super) fn new(body: &'a [u8], totals: &Totals) -> Self {
        let (samples, body) = body.split_at(totals.samples_bytes as usize);
        let (runs, cuts) = body.split_at(totals.runs as usize * RUN);
        Self {
            samples,
            runs,
            cuts,
        }
    }

    /// Read and check the arrays of the next stream.
    pub(super) fn take(&mut self, entry: &Entry) -> Result<StreamIndex, &'static str> {
        let samples = samples::take(&mut self.samples, entry.samples, entry.first_offset)?;
        let cuts = take(&mut self.cuts, entry.cuts, CUT)
            .map(|raw| match u32_at(raw, 12) {
                0 => Ok(Cut {
                    from: u64_at(raw, 0),
                    offset: u32_at(raw, 8),
                }),
                _ => Err("padding of a cut is not zero"),
            })
            .collect::<Result<_, _>>()?;
        let mut runs = CommitRuns::with_capacity(entry.runs as usize);
        for raw in take(&mut self.runs, entry.runs, RUN) {
            let (glsn_begin, llsn_begin) = (u64_at(raw, 0), u64_at(raw, 8));
            let run = CommitRun {
                glsn_begin,
                llsn_begin,
                length: u64_at(raw, 16),
            };
            runs.push(run, entry.lane > 0)
                .map_err(|_| "commit runs out of order")?;
        }
        let index = StreamIndex {
            moved: entry.lane > 0,
            marks: entry.marks.clone(),
            samples,
            runs,
            cuts,
        };
        check_last_sample(&index)?;
        check_cuts(&index)?;
        check_runs(&index, entry)?;
        Ok(index)
    }

    /// Bytes of the samples that no stream has taken.
    pub(super) fn left(&self) -> usize {
        self.samples.len()
    }
}

/// Split the next `count` elements of `size` bytes off `rest`.
fn take<'a>(rest: &mut &'a [u8], count: u32, size: usize) -> std::slice::ChunksExact<'a, u8> {
    let (taken, left) = rest.split_at(count as usize * size);
    *rest = left;
    taken.chunks_exact(size)
}

fn check_last_sample(index: &StreamIndex) -> Result<(), &'static str> {
    let Some(last) = index.samples.last() else {
        return Ok(());
    };
    let marks = &index.marks;
    let delta = marks.last.llsn - marks.begin;
    let same = u64::from(last.delta) == delta && last.offset == marks.last.offset;
    let before = u64::from(last.delta) < delta && last.offset < marks.last.offset;
    if !(same || before && !marks.last_lost) {
        return Err("the last sample contradicts the last frame");
    }
    Ok(())
}

fn check_cuts(index: &StreamIndex) -> Result<(), &'static str> {
    let rises = |pair: &[Cut]| pair[0].from < pair[1].from && pair[0].offset < pair[1].offset;
    if !index.cuts.windows(2).all(rises) {
        return Err("cuts do not rise");
    }
    let marks = &index.marks;
    match index.cuts.last() {
        Some(cut) if cut.from > marks.end || cut.offset >= marks.next_offset => {
            Err("cut behind the end")
        }
        Some(cut)
            if marks.last_lost && (cut.from != marks.end || cut.offset < marks.last.offset) =>
        {
            Err("last frame lost, but not to the last cut")
        }
        _ => Ok(()),
    }
}

fn check_runs(index: &StreamIndex, entry: &Entry) -> Result<(), &'static str> {
    let runs = index.runs();
    // Two that could be one would decode to an index that encodes differently.
    if runs.len() != entry.runs as usize {
        return Err("commit runs not merged");
    }
    if let (Some(first), Some(last)) = (runs.first(), runs.last()) {
        if (first.glsn_begin, last.glsn_end()) != (entry.glsn_begin, entry.glsn_end) {
            return Err("GLSN range does not fit the runs");
        }
        if index.marks.placed && !index.moved && last.llsn_end() > index.marks.end {
            return Err("commit behind the end");
        }
    }
    Ok(())
}
