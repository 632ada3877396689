//! Writes what is kept into the new directory.

use std::ops::Range;
use std::sync::Arc;

use super::collect::Collected;
use super::plan::{LogPlan, Plan};
use crate::batch::{BatchView, encode_hole};
use crate::error::Result;
use crate::index::CommitRun;
use crate::vfs::Vfs;
use crate::wal::format::change::CommitContext;
use crate::wal::format::frame::{Frame, Kind};
use crate::wal::format::state::State;
use crate::wal::format::stream::Stream;
use crate::wal::tools::inspect::{Found, Run, Scan, Survey};
use crate::wal::tools::subset::subset;
use crate::wal::tools::verify::cancelled;
use crate::wal::write::store::Store;

/// Bytes between two calls of the progress callback.
const PROGRESS_BYTES: u64 = 8 << 20;

/// Records that one batch of a hole stands for: few enough for the smallest segments.
const HOLE_RECORDS: u64 = 1 << 16;

/// Commits gathered in memory.
const COMMITS_PER_SYNC: usize = 4096;

/// Every log as it was, but empty at the first position that is kept.
pub fn first_state(collected: &Collected, plan: &Plan) -> State {
    let mut state = collected.fold.state.clone();
    // Their files are not copied, and records that they were made of may be lost.
    state.forget_tables();
    for log in &plan.logs {
        if let Some(stream) = state.streams.get_mut(&log.stream) {
            let commits = commits(collected, log, stream);
            empty(stream, &log.kept, &commits);
        }
    }
    state
}

fn empty(stream: &mut Stream, kept: &Range<u64>, commits: &[CommitContext]) {
    let first = kept.start;
    (stream.low, stream.committed, stream.next) = (first, first, first);
    // Later epochs are entered again, each in front of its first record.
    stream.epochs.retain(|(_, at)| *at <= first);
    stream.epoch = stream.epochs.last().map_or(0, |(epoch, _)| *epoch);
    // What producers stored below stays known, so that a repeat of it is still one.
    stream.producers.cut(first);
    for cursor in stream.cursors.values_mut() {
        cursor.position = cursor.position.min(kept.end);
    }
    // As if the commit before the first one that is written again had just been made.
    if let Some(commit) = commits.first() {
        stream.context = CommitContext {
            version: commit.version - 1,
            glsn_begin: commit.glsn_begin,
            llsn_begin: first,
            length: 0,
            high_watermark: 0,
        };
    }
}

/// Append the kept records, epochs and commits of every log.
pub fn records(
    vfs: &Arc<dyn Vfs>,
    survey: &Survey,
    collected: &Collected,
    plan: &Plan,
    store: &Store,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<()> {
    let mut writer = Writer {
        latest: 0,
        vfs,
        survey,
        store,
        done: 0,
        told: 0,
        progress,
    };
    for log in &plan.logs {
        let Some(stream) = collected.fold.state.streams.get(&log.stream) else {
            continue;
        };
        for run in collected.coverage.runs(log.stream) {
            writer.run(log, stream, run)?;
        }
        writer.fill(log.stream, log.kept.end)?;
        writer.epochs(log.stream, stream, u64::MAX, u64::MAX)?;
        for (i, commit) in commits(collected, log, stream).into_iter().enumerate() {
            // So that the group in memory does not grow with the log.
            if i % COMMITS_PER_SYNC == 0 {
                store.sync()?;
            }
            let epoch = store.with_state(|state| state.stream(log.stream).map(|s| s.epoch))?;
            store.commit(log.stream, epoch, commit)?;
        }
    }
    store.sync()
}

struct Writer<'a> {
    /// Largest timestamp so far of the log at hand: that of its next hole, which nobody looks for.
    latest: i64,
    vfs: &'a Arc<dyn Vfs>,
    survey: &'a Survey,
    store: &'a Store,
    done: u64,
    told: u64,
    progress: &'a mut dyn FnMut(u64) -> bool,
}

impl Writer<'_> {
    fn run(&mut self, log: &LogPlan, stream: &Stream, run: &Run) -> Result<()> {
        let wanted = run.begin.max(log.kept.start)..run.end.min(log.kept.end);
        if wanted.is_empty() {
            return Ok(());
        }
        let lap = &self.survey.laps[run.lap];
        let file = lap.open(&**self.vfs)?;
        let mut scan = Scan::resume(file, lap.seed, run.first, run.last);
        while let Some(found) = scan.next_found() {
            let Found::Frame(frame) = found else { continue };
            let header = &frame.header;
            let mine = header.kind.is_data()
                && header.stream == log.stream
                && (header.kind == Kind::Moved) == run.moved;
            let begin = header.llsn.max(wanted.start);
            let end = (header.llsn + u64::from(header.count)).min(wanted.end);
            if mine && begin < end {
                self.batch(stream, &frame, scan.payload(&frame), begin..end)?;
            }
        }
        Ok(())
    }

    fn batch(
        &mut self,
        stream: &Stream,
        frame: &Frame,
        payload: &[u8],
        range: Range<u64>,
    ) -> Result<()> {
        let header = &frame.header;
        self.fill(header.stream, range.start)?;
        self.epochs(header.stream, stream, header.epoch, range.start)?;
        let epoch = self
            .store
            .with_state(|state| state.stream(header.stream).map(|stream| stream.epoch))?
            // The frame that raised the epoch may be lost; the batch says it too.
            .max(header.epoch);
        let view = BatchView::parse(payload)?;
        // A search by time passes over a hole that has the time of the records before it.
        if !view.head().is_hole() {
            self.latest = view.head().max_timestamp();
        }
        // A stretch may begin or end in the middle of a batch. Whole ones are taken over byte for byte.
        let part = (range.start - header.llsn) as u32..(range.end - header.llsn) as u32;
        let smaller;
        let batch = if part == (0..view.count()) {
            payload
        } else {
            smaller = subset(&view, part)?;
            &smaller
        };
        self.store
            .append_encoded(header.stream, epoch, range.start, batch)?;
        self.done += u64::from(frame.length);
        if self.done - self.told >= PROGRESS_BYTES {
            self.told = self.done;
            if !(self.progress)(self.done) {
                return Err(cancelled());
            }
        }
        Ok(())
    }

    /// Declare what is missing in front of `end` lost.
    fn fill(&self, number: u32, end: u64) -> Result<()> {
        loop {
            let (next, epoch) = self
                .store
                .with_state(|state| state.stream(number).map(|s| (s.next, s.epoch)))?;
            if next >= end {
                return Ok(());
            }
            let count = (end - next).min(HOLE_RECORDS) as usize;
            let batch = encode_hole(count, self.latest)?;
            self.store.append_encoded(number, epoch, next, &batch)?;
        }
    }

    /// Enter the epochs up to `epoch` that began at or below `llsn`.
    fn epochs(&self, number: u32, stream: &Stream, epoch: u64, llsn: u64) -> Result<()> {
        let current = self
            .store
            .with_state(|state| state.stream(number).map(|stream| stream.epoch))?;
        let due = stream
            .epochs
            .iter()
            .filter(|(at, first)| *at > current && *at <= epoch && *first <= llsn);
        for (epoch, _) in due {
            self.store.raise_epoch(number, *epoch)?;
        }
        Ok(())
    }
}

/// The commits that give the kept records their numbers again, and leave the stream's last context.
fn commits(collected: &Collected, log: &LogPlan, stream: &Stream) -> Vec<CommitContext> {
    if !stream.explicit_commit {
        return Vec::new();
    }
    let end = stream.committed.min(log.kept.end);
    let found = collected.runs.get(&log.stream);
    let runs = runs_of(found.map_or(&[], Vec::as_slice), &(log.kept.start..end));
    let last = stream.context;
    let mut contexts = Vec::new();
    for run in runs {
        // The last context comes out exactly as it was: the next commit of the cluster goes on from it. So a run
        // that reaches over its begin is written as two.
        let at = last.llsn_begin;
        let split = (run.llsn_begin < at && at < run.llsn_end()).then(|| at - run.llsn_begin);
        for part in pieces(run, split) {
            contexts.push(CommitContext {
                version: 0,
                glsn_begin: part.glsn_begin,
                llsn_begin: part.llsn_begin,
                length: part.length,
                high_watermark: part.glsn_end() - 1,
            });
        }
    }
    let count = contexts.len() as u64;
    // Versions only have to rise, and to end with the one that the cluster knows.
    let top = last.version.max(count);
    for (i, context) in contexts.iter_mut().enumerate() {
        context.version = top - (count - 1 - i as u64);
        if context.llsn_begin == last.llsn_begin && context.length == last.length {
            context.high_watermark = last.high_watermark;
        }
    }
    contexts
}

fn pieces(run: CommitRun, split: Option<u64>) -> Vec<CommitRun> {
    let Some(at) = split else { return vec![run] };
    let (first, second) = (at, run.length - at);
    vec![
        CommitRun {
            length: first,
            ..run
        },
        CommitRun {
            glsn_begin: run.glsn_begin + first,
            llsn_begin: run.llsn_begin + first,
            length: second,
        },
    ]
}

/// The runs within `range`, rising, dense, without repetition. Where a run is lost its records get the
/// numbers right before those that follow.
fn runs_of(found: &[CommitRun], range: &Range<u64>) -> Vec<CommitRun> {
    let mut sorted = found.to_vec();
    sorted.sort_by_key(|run| run.llsn_begin);
    let mut next = range.start;
    let mut runs: Vec<CommitRun> = Vec::new();
    for run in sorted {
        let (begin, end) = (run.llsn_begin.max(next), run.llsn_end().min(range.end));
        if begin >= end {
            continue;
        }
        // Copies say the same again: what was taken already is left out.
        let glsn = run.glsn_begin + (begin - run.llsn_begin);
        let missing = begin - next;
        match runs.last_mut() {
            Some(last) if last.glsn_end() + missing == glsn => last.length += end - next,
            _ => runs.push(CommitRun {
                glsn_begin: glsn.saturating_sub(missing).max(1),
                llsn_begin: next,
                length: end - next,
            }),
        }
        next = end;
    }
    runs
}
