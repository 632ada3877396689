//! Base, terms, and the entries in memory.
//!
//! Entries are in memory from some index on; older ones are read back by the owner. Terms are kept as runs, so
//! the term of any index is known without reading.

use std::collections::VecDeque;
use std::ops::Range;

use super::{Broken, ENTRY_OVERHEAD, Result, check};

/// One entry; its index is its place in the log.
#[derive(Debug)]
pub struct Entry<D> {
    /// Term of the leader that added it.
    pub term: u64,
    /// What its data is; see [`super::PLAIN`].
    pub kind: u8,
    /// Bytes of data.
    pub size: u64,
    /// How the owner keeps them.
    pub data: D,
}

impl<D> Entry<D> {
    /// What it counts for in a window or message.
    pub fn weight(&self) -> u64 {
        self.size + ENTRY_OVERHEAD
    }
}

/// Where entries are.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// In memory, by their places there.
    Memory(Range<usize>),
    /// Only in storage.
    Storage {
        /// Index of the first.
        begin: u64,
        /// Index behind the last.
        end: u64,
    },
}

/// The log; see the module above.
pub(super) struct Log<D> {
    /// First index and term of each run; the first is the base.
    runs: Vec<(u64, u64)>,
    entries: VecDeque<Entry<D>>,
    /// Index of the first entry in memory.
    begin: u64,
    pub(super) last: u64,
    pub(super) commit: u64,
    pub(super) durable: u64,
    pub(super) applied: u64,
    pub(super) handed: u64,
    /// Last index and weight of what was handed out and is not applied.
    handouts: VecDeque<(u64, u64)>,
    weight: u64,
    weight_max: Option<u64>,
}

impl<D> Log<D> {
    pub(super) fn new(base: u64, term: u64, weight_max: Option<u64>) -> Self {
        Self {
            runs: vec![(base, term)],
            entries: VecDeque::new(),
            begin: base + 1,
            last: base,
            commit: base,
            durable: base,
            applied: base,
            handed: base,
            handouts: VecDeque::new(),
            weight: 0,
            weight_max,
        }
    }

    pub(super) fn copied(&self, data: impl Fn(&D) -> D) -> Self {
        let copy = |each: &Entry<D>| Entry {
            data: data(&each.data),
            ..*each
        };
        Self {
            runs: self.runs.clone(),
            entries: self.entries.iter().map(copy).collect(),
            handouts: self.handouts.clone(),
            ..*self
        }
    }

    // --- looking

    pub(super) fn base(&self) -> u64 {
        self.runs[0].0
    }

    pub(super) fn last_term(&self) -> u64 {
        self.runs[self.runs.len() - 1].1
    }

    pub(super) fn cached_count(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn entry(&self, at: usize) -> &Entry<D> {
        &self.entries[at]
    }

    /// The run that an index at or behind the base is in.
    fn run(&self, index: u64) -> usize {
        self.runs.partition_point(|(begin, _)| *begin <= index) - 1
    }

    pub(super) fn term(&self, index: u64) -> Option<u64> {
        let (begin, term) = self.runs[self.runs.len() - 1];
        if index < self.base() || index > self.last {
            None
        } else if index >= begin {
            Some(term)
        } else {
            Some(self.runs[self.run(index)].1)
        }
    }

    pub(super) fn last_not_after(&self, index: u64, term: u64) -> u64 {
        let base = self.base();
        let mut index = index.min(self.last);
        while index > base {
            let (begin, found) = self.runs[self.run(index)];
            if found <= term {
                break;
            }
            // A run never begins at 0 but for the base, at which it ends.
            index = begin.saturating_sub(1);
        }
        index.max(base)
    }

    /// The place of an index in memory.
    fn place(&self, index: u64) -> usize {
        usize::try_from(index - self.begin).unwrap_or(usize::MAX)
    }

    pub(super) fn find(&self, begin: u64, end: u64, bytes_max: u64) -> Result<Found> {
        let (first, behind) = (self.base() + 1, self.last + 1);
        check(first <= begin && begin <= end && end <= behind, || {
            format!("entries {begin}..{end} are not in {first}..{behind}")
        })?;
        if begin == end {
            return Ok(Found::Memory(0..0));
        }
        if begin < self.begin {
            let end = end.min(self.begin);
            return Ok(Found::Storage { begin, end });
        }
        let (start, stop) = (self.place(begin), self.place(end));
        let (mut weight, mut at) = (0, start);
        while at < stop {
            weight += self.entries[at].weight();
            if weight > bytes_max && at > start {
                break;
            }
            at += 1;
        }
        Ok(Found::Memory(start..at))
    }

    pub(super) fn data_bytes(&self, begin: u64, end: u64) -> u64 {
        let (begin, end) = (begin.max(self.begin), end.min(self.last + 1));
        if begin >= end {
            return 0;
        }
        let range = self.place(begin)..self.place(end);
        self.entries.range(range).map(|each| each.size).sum()
    }

    pub(super) fn check(&self) -> Result<()> {
        check(self.commit <= self.last, || {
            "the commit index is beyond the end".to_owned()
        })?;
        check(self.durable <= self.last, || {
            "more is durable than there is".to_owned()
        })?;
        check(self.base() <= self.commit, || {
            "the base is not committed".to_owned()
        })?;
        let installs = self.applied < self.base();
        let bound = self.commit.min(self.durable);
        let handed = self.applied <= self.handed && self.handed <= bound;
        check(installs || handed, || {
            "applied what was not handed out".to_owned()
        })
    }

    pub(super) fn runs(&self) -> &[(u64, u64)] {
        &self.runs
    }

    // --- changing

    pub(super) fn skip_to(&mut self, last: u64, runs: &[(u64, u64)]) -> Result<()> {
        check(self.last == self.base() && last >= self.last, || {
            format!("a log that has entries goes on behind {last}")
        })?;
        for &(begin, term) in runs {
            let (before, earlier) = self.runs[self.runs.len() - 1];
            check(begin > before && term > earlier && begin <= last, || {
                format!(
                    "a run of term {term} from {begin} on behind one of term {earlier} from {before}"
                )
            })?;
            self.runs.push((begin, term));
        }
        (self.last, self.commit, self.durable) = (last, last, last);
        self.begin = last + 1;
        Ok(())
    }

    pub(super) fn append(&mut self, index: u64, entry: Entry<D>) -> Result<()> {
        check(index == self.last + 1, || {
            format!("entry {index} leaves a gap")
        })?;
        check(entry.term >= self.last_term(), || {
            format!("terms fall at {index}")
        })?;
        self.push(entry);
        Ok(())
    }

    /// Add entries of a term that is not below the last one.
    pub(super) fn extend(&mut self, term: u64, entries: Vec<Entry<D>>) {
        debug_assert!(term >= self.last_term());
        self.entries.reserve(entries.len());
        for entry in entries {
            self.push(entry);
        }
    }

    fn push(&mut self, entry: Entry<D>) {
        self.last += 1;
        if entry.term != self.last_term() {
            self.runs.push((self.last, entry.term));
        }
        self.weight += entry.weight();
        self.entries.push_back(entry);
    }

    pub(super) fn cut(&mut self, begin: u64) -> Result<()> {
        check(begin > self.commit, || {
            format!("a conflict at {begin}, committed is {}", self.commit)
        })?;
        check(begin >= self.begin, || {
            format!("a conflict at {begin}, which left the memory")
        })?;
        let gone = self.entries.split_off(self.place(begin));
        self.weight -= gone.iter().map(Entry::weight).sum::<u64>();
        self.last = begin - 1;
        while self.runs[self.runs.len() - 1].0 >= begin {
            self.runs.pop();
        }
        self.durable = self.durable.min(begin - 1);
        Ok(())
    }

    pub(super) fn commit_to(&mut self, index: u64) -> Result<()> {
        check(index <= self.last, || {
            format!("commit {index} is beyond the end {}", self.last)
        })?;
        self.commit = self.commit.max(index);
        Ok(())
    }

    pub(super) fn fold(&mut self, index: u64) -> Result<()> {
        check(self.base() <= index && index <= self.applied, || {
            format!("cannot fold up to {index}")
        })?;
        if index >= self.begin {
            let gone = self.entries.drain(..=self.place(index));
            self.weight -= gone.map(|each| each.weight()).sum::<u64>();
            self.begin = index + 1;
        }
        let kept = self.run(index);
        self.runs.drain(..kept);
        self.runs[0].0 = index;
        Ok(())
    }

    pub(super) fn restart_at(&mut self, base: u64, term: u64) -> Result<()> {
        check(base > self.commit, || {
            format!("base {base} is below {}", self.commit)
        })?;
        *self = Self {
            durable: 0,
            applied: self.applied,
            handed: self.handed,
            ..Self::new(base, term, self.weight_max)
        };
        Ok(())
    }

    pub(super) fn loaded(&mut self, commit: u64) {
        self.durable = self.last;
        self.commit = commit.min(self.last);
        self.evict();
    }

    // --- handing out

    pub(super) fn take_base(&mut self) -> bool {
        let base = self.base();
        let takes = self.handed < base && base <= self.durable;
        if takes {
            self.handed = base;
        }
        takes
    }

    /// Only what is durable here: a leader may commit before its own write (Ongaro, 10.2.1).
    pub(super) fn committed(&self, bytes_max: u64) -> Option<(u64, u64)> {
        let end = self.commit.min(self.durable) + 1;
        if self.handed < self.base() || self.handed + 1 >= end {
            return None;
        }
        let out: u64 = self.handouts.iter().map(|(_, weight)| weight).sum();
        (out < bytes_max).then(|| (end, bytes_max - out))
    }

    pub(super) fn handed_out(&mut self, last: u64, weight: u64) {
        self.handed = last;
        self.handouts.push_back((last, weight));
    }

    pub(super) fn has_committed(&self) -> bool {
        self.handed < self.commit.min(self.durable).max(self.base())
    }

    pub(super) fn applied_to(&mut self, index: u64) -> Result<()> {
        if index < self.applied || index > self.handed {
            return Err(Broken(format!("{index} was not handed out")));
        }
        while self.handouts.front().is_some_and(|each| each.0 <= index) {
            self.handouts.pop_front();
        }
        self.applied = index;
        self.evict();
        Ok(())
    }

    /// Drop what can be read back, once there is more in memory than wanted.
    fn evict(&mut self) {
        let Some(max) = self.weight_max else { return };
        let end = self.commit.min(self.durable) + 1;
        while self.weight > max && self.begin < end {
            let Some(gone) = self.entries.pop_front() else {
                return;
            };
            self.weight -= gone.weight();
            self.begin += 1;
        }
    }
}
