//! Commit runs: the GLSNs that a stream's LLSNs were given.

use crate::error::{Error, Result};

/// `length` consecutive LLSNs that were given consecutive GLSNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitRun {
    /// GLSN of the first record.
    pub glsn_begin: u64,
    /// LLSN of the first record.
    pub llsn_begin: u64,
    /// Records; not 0.
    pub length: u64,
}

impl CommitRun {
    /// GLSN behind the last record.
    pub fn glsn_end(&self) -> u64 {
        self.glsn_begin.saturating_add(self.length)
    }

    /// LLSN behind the last record.
    pub fn llsn_end(&self) -> u64 {
        self.llsn_begin.saturating_add(self.length)
    }

    /// Whether it holds a record and both ends fit.
    pub(super) fn is_valid(&self) -> bool {
        self.length > 0
            && self.glsn_begin.checked_add(self.length).is_some()
            && self.llsn_begin.checked_add(self.length).is_some()
    }
}

/// One committed record under both its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitPoint {
    /// Global number.
    pub glsn: u64,
    /// Number in its stream.
    pub llsn: u64,
}

/// Runs in ascending order of both numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CommitRuns {
    runs: Vec<CommitRun>,
}

impl CommitRuns {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            runs: Vec::with_capacity(capacity),
        }
    }

    pub(super) fn as_slice(&self) -> &[CommitRun] {
        &self.runs
    }

    pub(super) fn capacity(&self) -> usize {
        self.runs.capacity()
    }

    /// LLSN behind the last committed record.
    pub(super) fn llsn_end(&self) -> Option<u64> {
        self.runs.last().map(CommitRun::llsn_end)
    }

    /// Append `run`, or lengthen the last one by it where both numbers continue.
    pub(super) fn push(&mut self, run: CommitRun, gaps: bool) -> Result<()> {
        if !run.is_valid() {
            return Err(Error::InvalidArgument(format!("not a commit run: {run:?}")));
        }
        if let Some(last) = self.runs.last_mut() {
            let expected = last.llsn_end();
            if run.llsn_begin < expected || (run.llsn_begin > expected && !gaps) {
                let given = run.llsn_begin;
                return Err(Error::NotDense {
                    what: "committed LLSN",
                    given,
                    expected,
                });
            }
            if run.glsn_begin < last.glsn_end() {
                return Err(Error::InvalidArgument(format!(
                    "GLSN {} was given out before: the last run ends at {}",
                    run.glsn_begin,
                    last.glsn_end()
                )));
            }
            if run.llsn_begin == expected && run.glsn_begin == last.glsn_end() {
                last.length += run.length;
                return Ok(());
            }
        }
        self.runs.push(run);
        Ok(())
    }

    pub(super) fn glsn_of(&self, llsn: u64) -> Option<u64> {
        let at = self.runs.partition_point(|run| run.llsn_begin <= llsn);
        let run = self.runs.get(at.checked_sub(1)?)?;
        (llsn < run.llsn_end()).then(|| run.glsn_begin + (llsn - run.llsn_begin))
    }

    pub(super) fn llsn_of(&self, glsn: u64) -> Option<u64> {
        self.floor(glsn)
            .filter(|point| point.glsn == glsn)
            .map(|point| point.llsn)
    }

    /// The committed record with the greatest GLSN not above `glsn`.
    pub(super) fn floor(&self, glsn: u64) -> Option<CommitPoint> {
        let at = self.runs.partition_point(|run| run.glsn_begin <= glsn);
        let run = self.runs.get(at.checked_sub(1)?)?;
        let into = (glsn - run.glsn_begin).min(run.length - 1);
        Some(CommitPoint {
            glsn: run.glsn_begin + into,
            llsn: run.llsn_begin + into,
        })
    }

    /// The committed record with the smallest GLSN not below `glsn`.
    pub(super) fn ceil(&self, glsn: u64) -> Option<CommitPoint> {
        let at = self.runs.partition_point(|run| run.glsn_end() <= glsn);
        let run = self.runs.get(at)?;
        let into = glsn.saturating_sub(run.glsn_begin);
        Some(CommitPoint {
            glsn: run.glsn_begin + into,
            llsn: run.llsn_begin + into,
        })
    }
}
