//! What a tree consists of, as its manifest lists it. Pure.
//!
//! # Invariants
//!
//! 1. Ranges cover all keys, without a hole or an overlap.
//! 2. Each slice lies in its range and refers to a listed run; each run has a slice.
//! 3. Slices of a range that have keys in common have disjoint spans of recency, and none of them
//!    reaches into that of another.
//! 4. No run has a position above the flushed one; that one moves only up, and only in an edit that
//!    adds the run that it flushed, or says that there was nothing.
//! 5. The number of a run is never given twice.
//!
//! Every edit is checked against all of them before it is written (`invariants.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::operation::{Flushed, TreeOperation};
use crate::limits::TABLE_KEY_BYTES_MAX;
use crate::manifest::{Context, Version};
use crate::table::run::RunInfo;

/// A run in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRun {
    /// What was written.
    pub info: Arc<RunInfo>,
    /// Number of the oldest flush that is in it.
    pub oldest: u64,
    /// Number of the newest one.
    pub newest: u64,
}

/// A part of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The run's number.
    pub run: u64,
    /// First key; none is less than the empty one.
    pub begin: Vec<u8>,
    /// Key behind the last; `None` is behind all.
    pub end: Option<Vec<u8>>,
}

/// The keys from where it is listed to `end`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Key behind the last; `None` is behind all.
    pub end: Option<Vec<u8>>,
    /// Newest first.
    pub slices: Vec<Slice>,
}

/// Whether there are keys from `begin` to `end`.
pub(super) fn has_keys(begin: &[u8], end: Option<&[u8]>) -> bool {
    end.is_none_or(|end| begin < end)
}

/// The lower of two ends.
pub(super) fn lower<'a>(a: Option<&'a [u8]>, b: Option<&'a [u8]>) -> Option<&'a [u8]> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl Slice {
    pub(super) fn meets(&self, other: &Self) -> bool {
        has_keys(&self.begin, other.end.as_deref()) && has_keys(&other.begin, self.end.as_deref())
    }
}

/// The list of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeVersion {
    /// Ranges by their first key. Empty until the tree has begun.
    ranges: BTreeMap<Vec<u8>, Range>,
    runs: BTreeMap<u64, ListedRun>,
    flushed: u64,
    floor: u64,
    next_recency: u64,
    /// No run gets a number below this any more.
    settled: u64,
    /// Numbers from there on that were given, their runs listed or not.
    given: BTreeSet<u64>,
    /// Whether a snapshot has been read in part only.
    is_partial: bool,
}

impl TreeVersion {
    /// Whether the tree has begun. Until then nothing of it counts.
    pub fn has_begun(&self) -> bool {
        !self.ranges.is_empty() && !self.is_partial
    }

    /// The ranges, by their first keys.
    pub fn ranges(&self) -> &BTreeMap<Vec<u8>, Range> {
        &self.ranges
    }

    /// The runs, by number.
    pub fn runs(&self) -> &BTreeMap<u64, ListedRun> {
        &self.runs
    }

    /// Everything up to this position is in runs.
    pub fn flushed(&self) -> u64 {
        self.flushed
    }

    /// Lowest position that it can be read at.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Recency of the next flush.
    pub fn next_recency(&self) -> u64 {
        self.next_recency
    }

    /// No run gets a number below this any more.
    pub(super) fn settled(&self) -> u64 {
        self.settled
    }

    /// Lowest number from which on no run has got one.
    pub fn next_number(&self) -> u64 {
        let given = self.given.last().map_or(0, |last| last + 1);
        given.max(self.settled).max(1)
    }

    /// Say of a run that its footer has another checksum: it belongs to another node now.
    pub(super) fn set_checksum(&mut self, run: u64, checksum: u32) {
        if let Some(listed) = self.runs.get_mut(&run) {
            Arc::make_mut(&mut listed.info).checksum = checksum;
        }
    }

    /// The operations that give a slice list of `slices` to a new range.
    pub(super) fn slice_operations<'a>(
        range: &'a [u8],
        end: Option<&'a [u8]>,
        slices: impl IntoIterator<Item = &'a Slice>,
    ) -> impl Iterator<Item = TreeOperation> {
        slices
            .into_iter()
            .map(move |slice| TreeOperation::AddSlice {
                range: range.to_vec(),
                run: slice.run,
                begin: (slice.begin != range).then(|| slice.begin.clone()),
                end: slice.end.clone().filter(|of| Some(of.as_slice()) != end),
            })
    }

    fn add_run(&mut self, run: &ListedRun) -> Result<(), String> {
        let number = run.info.number;
        if number < self.settled.max(1) || self.given.contains(&number) {
            return Err(format!("number {number} was given before"));
        }
        if run.oldest > run.newest {
            return Err(format!(
                "run {number}: recency {} to {}",
                run.oldest, run.newest
            ));
        }
        self.given.insert(number);
        self.runs.insert(number, run.clone());
        Ok(())
    }

    fn remove_run(&mut self, number: u64) -> Result<(), String> {
        let removed = self.runs.remove(&number);
        removed
            .map(|_| ())
            .ok_or_else(|| format!("run {number} is not listed"))
    }

    fn add_range(&mut self, begin: &[u8], end: Option<&Vec<u8>>) -> Result<(), String> {
        if begin.len().max(end.map_or(0, Vec::len)) > TABLE_KEY_BYTES_MAX {
            return Err("a bound is longer than any key".into());
        }
        let range = Range {
            end: end.cloned(),
            slices: Vec::new(),
        };
        match self.ranges.insert(begin.to_vec(), range) {
            None => Ok(()),
            Some(_) => Err(format!("a range already begins at {}", shown(begin))),
        }
    }

    fn remove_range(&mut self, begin: &[u8]) -> Result<(), String> {
        match self.ranges.remove(begin) {
            None => Err(format!("no range begins at {}", shown(begin))),
            Some(range) if !range.slices.is_empty() => {
                Err(format!("range {} still has slices", shown(begin)))
            }
            Some(_) => Ok(()),
        }
    }

    fn add_slice(
        &mut self,
        range: &[u8],
        run: u64,
        begin: Option<&Vec<u8>>,
        end: Option<&Vec<u8>>,
    ) -> Result<(), String> {
        let Some(into) = self.ranges.get_mut(range) else {
            return Err(format!("no range begins at {}", shown(range)));
        };
        let Some(listed) = self.runs.get(&run) else {
            return Err(format!("a slice of run {run}, which is not listed"));
        };
        let slice = Slice {
            run,
            begin: begin.map_or(range, Vec::as_slice).to_vec(),
            end: end.or(into.end.as_ref()).cloned(),
        };
        // Newest first; where recency is equal, by keys.
        let at = into.slices.partition_point(|other| {
            let newest = self.runs.get(&other.run).map_or(0, |run| run.newest);
            (std::cmp::Reverse(newest), &other.begin)
                < (std::cmp::Reverse(listed.newest), &slice.begin)
        });
        into.slices.insert(at, slice);
        Ok(())
    }

    fn remove_slice(&mut self, range: &[u8], run: u64, begin: &[u8]) -> Result<(), String> {
        let unknown = || format!("range {} has no such slice of run {run}", shown(range));
        let from = self.ranges.get_mut(range).ok_or_else(unknown)?;
        let at = from
            .slices
            .iter()
            .position(|slice| slice.run == run && slice.begin == begin);
        from.slices.remove(at.ok_or_else(unknown)?);
        Ok(())
    }

    fn flush(&mut self, position: u64, what: Flushed, added: &BTreeSet<u64>) -> Result<(), String> {
        let before = self.flushed;
        if position <= before {
            return Err(format!("flushed up to {position}, after {before}"));
        }
        match what {
            Flushed::Nothing if !added.is_empty() => {
                return Err("nothing was flushed, and a run is added".into());
            }
            Flushed::Nothing => {}
            Flushed::Run(number) => {
                let run = self.runs.get(&number).filter(|_| added.contains(&number));
                let Some(run) = run else {
                    return Err(format!("run {number} was flushed and is not added"));
                };
                if (run.oldest, run.newest) != (self.next_recency, self.next_recency) {
                    let next = self.next_recency;
                    return Err(format!(
                        "run {number} was flushed as {}, not {next}",
                        run.newest
                    ));
                }
                let (first, last) = (run.info.position_min, run.info.position_max);
                if first <= before || last > position {
                    return Err(format!(
                        "run {number} has positions {first} to {last}, flushed were {} to {position}",
                        before + 1
                    ));
                }
                self.next_recency += 1;
            }
        }
        self.flushed = position;
        Ok(())
    }

    /// Whether an operation may stand here.
    fn admit(
        &self,
        context: Context,
        operation: &TreeOperation,
        has_begun: bool,
    ) -> Result<(), String> {
        use TreeOperation as Op;
        match operation {
            Op::AddRange { .. } | Op::AddRun(_) | Op::AddSlice { .. } => {}
            Op::Given { .. } | Op::Restore { .. } if context.snapshot => {}
            Op::Given { .. } | Op::Restore { .. } => {
                return Err("an operation of snapshots".into());
            }
            _ if context.snapshot => return Err("an operation that no snapshot has".into()),
            Op::Begin { .. } if !has_begun => return Ok(()),
            Op::Begin { .. } => return Err("the tree has begun already".into()),
            _ => {}
        }
        // Behind what makes a snapshot whole, an operation would undo it in part.
        if context.snapshot && self.has_begun() {
            return Err("an operation behind the end of the snapshot".into());
        }
        if !has_begun && !context.snapshot {
            return Err("the tree has not begun".into());
        }
        Ok(())
    }

    fn apply_one(
        &mut self,
        operation: &TreeOperation,
        added: &mut BTreeSet<u64>,
    ) -> Result<(), String> {
        use TreeOperation as Op;
        match operation {
            Op::Begin { flushed } => {
                (self.flushed, self.floor) = (*flushed, *flushed);
                (self.settled, self.next_recency) = (1, 1);
                self.add_range(&[], None)
            }
            Op::AddRun(run) => {
                added.insert(run.info.number);
                self.add_run(run)
            }
            Op::RemoveRun { number } => self.remove_run(*number),
            Op::AddRange { begin, end } => self.add_range(begin, end.as_ref()),
            Op::RemoveRange { begin } => self.remove_range(begin),
            Op::AddSlice {
                range,
                run,
                begin,
                end,
            } => self.add_slice(range, *run, begin.as_ref(), end.as_ref()),
            Op::RemoveSlice { range, run, begin } => self.remove_slice(range, *run, begin),
            Op::Flush { position, what } => self.flush(*position, *what, added),
            Op::Floor { position } if *position < self.floor => {
                Err(format!("floor {position}, after {}", self.floor))
            }
            Op::Floor { position } => {
                self.floor = *position;
                Ok(())
            }
            Op::Settle { below } if *below < self.settled => {
                Err(format!("settled below {below}, after {}", self.settled))
            }
            Op::Settle { below } => {
                self.settled = *below;
                self.given = self.given.split_off(below);
                Ok(())
            }
            Op::Given { number } if !self.given.insert(*number) => {
                Err(format!("number {number} was given before"))
            }
            Op::Given { .. } => Ok(()),
            Op::Restore {
                flushed,
                floor,
                next_recency,
                settled,
            } => {
                (self.flushed, self.floor) = (*flushed, *floor);
                (self.next_recency, self.settled) = (*next_recency, *settled);
                self.given = self.given.split_off(settled);
                Ok(())
            }
        }
    }
}

/// A key in a message.
pub(super) fn shown(key: &[u8]) -> String {
    format!("\"{}\"", key.escape_ascii())
}

impl Version for TreeVersion {
    const KIND: u32 = 3;
    type Operation = TreeOperation;

    fn apply(&mut self, context: Context, operations: &[TreeOperation]) -> Result<(), String> {
        if !context.snapshot {
            self.whole()?;
        }
        let mut added = BTreeSet::new();
        // A split of the only range leaves none for a moment.
        let mut has_begun = !self.ranges.is_empty();
        for operation in operations {
            self.admit(context, operation, has_begun)?;
            has_begun = true;
            self.apply_one(operation, &mut added)?;
            // What makes a snapshot whole is its last operation.
            self.is_partial =
                context.snapshot && !matches!(operation, TreeOperation::Restore { .. });
        }
        // A snapshot may come in parts; only the whole of it makes sense.
        if self.is_partial || self.ranges.is_empty() && operations.is_empty() {
            return Ok(());
        }
        self.check()
    }

    fn whole(&self) -> Result<(), String> {
        if self.is_partial {
            return Err("the snapshot is incomplete".into());
        }
        Ok(())
    }

    /// Ranges, runs, slices, numbers, then what makes it whole.
    fn snapshot(&self) -> Vec<TreeOperation> {
        use TreeOperation as Op;
        if self.ranges.is_empty() {
            return Vec::new();
        }
        let mut out = Vec::new();
        out.extend(self.ranges.iter().map(|(begin, range)| Op::AddRange {
            begin: begin.clone(),
            end: range.end.clone(),
        }));
        out.extend(self.runs.values().cloned().map(Op::AddRun));
        for (begin, range) in &self.ranges {
            let end = range.end.as_deref();
            out.extend(Self::slice_operations(begin, end, &range.slices));
        }
        let unlisted = self
            .given
            .iter()
            .filter(|given| !self.runs.contains_key(given));
        out.extend(unlisted.map(|&number| Op::Given { number }));
        out.push(Op::Restore {
            flushed: self.flushed,
            floor: self.floor,
            next_recency: self.next_recency,
            settled: self.settled,
        });
        out
    }
}
