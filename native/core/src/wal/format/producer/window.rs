//! What one producer stored.

use super::RUNS_MAX;
use crate::codec::Put;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub epoch: u32,
    pub sequence: u64,
    pub llsn: u64,
    pub count: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    pub runs: Vec<Run>,
}

impl Window {
    pub fn epoch(&self) -> u32 {
        self.runs.last().map_or(0, |run| run.epoch)
    }

    pub fn next(&self) -> u64 {
        self.runs.last().map_or(1, |run| run.sequence + run.count)
    }

    pub fn last_llsn(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.llsn + run.count)
    }

    /// Runs of the latest epoch.
    pub fn latest(&self) -> &[Run] {
        self.epochs().last().unwrap_or_default()
    }

    /// Runs of each epoch, rising.
    pub fn epochs(&self) -> impl Iterator<Item = &[Run]> {
        self.runs.chunk_by(|run, next| run.epoch == next.epoch)
    }

    /// Whether the oldest run can go: what is left stays if what is not `committed` is taken back.
    pub fn can_shorten(&self, committed: u64) -> bool {
        self.runs.get(1).is_some_and(|run| run.llsn < committed)
    }

    /// Add a run, or make the last one longer.
    pub fn push(&mut self, run: Run, committed: u64) {
        let goes_on = run.sequence == self.next();
        match self.runs.last_mut() {
            // The next in sequence: the same run if it also lies right behind, else a new one.
            Some(last) if last.epoch == run.epoch && goes_on => {
                if last.llsn + last.count == run.llsn {
                    last.count += run.count;
                } else {
                    self.runs.push(run);
                }
            }
            // A new incarnation. The runs of the one before stay until something of this one is committed, for a
            // rollback may take this one back.
            Some(last) if last.epoch < run.epoch => self.runs.push(run),
            // It does not go on where the window ends: records between were lost elsewhere. What was known
            // before would answer wrongly.
            _ => self.runs = vec![run],
        }
        let first = self.latest().first();
        // Committed: no rollback brings the former incarnation back.
        if first.is_some_and(|run| run.llsn < committed) {
            self.settle();
        }
        // The oldest run is the least likely to be repeated.
        if self.runs.len() > RUNS_MAX {
            self.runs.remove(0);
        }
    }

    /// Forget the epochs before the latest.
    pub fn settle(&mut self) {
        let before = self.runs.len() - self.latest().len();
        self.runs.drain(..before);
    }

    /// Forget LLSNs from `from` on; false if nothing is left.
    pub fn cut(&mut self, from: u64) -> bool {
        self.runs.retain(|run| run.llsn < from);
        // A cut may go through the middle of a run.
        if let Some(run) = self.runs.last_mut() {
            run.count = run.count.min(from - run.llsn);
        }
        !self.runs.is_empty()
    }
}

/// Append the runs of one epoch.
pub fn encode_runs(id: u64, runs: &[Run], out: &mut Vec<u8>) {
    out.put_u64(id);
    out.put_u32(runs.first().map_or(0, |run| run.epoch));
    out.put_u32(runs.len() as u32);
    for run in runs {
        out.put_u64(run.sequence);
        out.put_u64(run.llsn);
        out.put_u64(run.count);
    }
}
