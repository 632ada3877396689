//! Splitting and coalescing ranges, by slices alone.

use std::sync::Arc;

use super::operation::TreeOperation;
use super::pick::{Reshape, pick_reshape};
use super::task::with_view;
use super::tree::Tree;
use super::version::{Range, Slice, TreeVersion, has_keys};
use super::view::{OpenRange, OpenSlice, View};
use crate::error::Result;

/// A change of ranges, with the keys that say which.
enum Plan {
    Split { range: Vec<u8>, at: Vec<u8> },
    Coalesce { left: Vec<u8>, right: Vec<u8> },
}

impl Tree {
    /// Split one range that is too large, or coalesce two that are small; false if none is wanted.
    pub fn reshape(&self) -> Result<bool> {
        self.reshape_by(
            |view, shapes| match pick_reshape(shapes, &self.options.shape)? {
                Reshape::Split(range) => {
                    let range = &view.ranges[range];
                    let at = middle_of(range)?;
                    let range = range.begin.clone();
                    Some(Plan::Split { range, at })
                }
                Reshape::Coalesce(left) => {
                    let begin = |range: usize| view.ranges[range].begin.clone();
                    let (left, right) = (begin(left), begin(left + 1));
                    Some(Plan::Coalesce { left, right })
                }
            },
        )
    }

    fn reshape_by(
        &self,
        pick: impl FnOnce(&View, &[super::pick::RangeShape]) -> Option<Plan>,
    ) -> Result<bool> {
        let chosen = self.choose(|view, floor, is_busy| {
            let plan = pick(view, &view.shapes(floor, is_busy))?;
            let ranges = match &plan {
                Plan::Split { range, .. } => vec![range.clone()],
                Plan::Coalesce { left, right } => vec![left.clone(), right.clone()],
            };
            Some((plan, ranges))
        });
        let Some((plan, _busy, _)) = chosen else {
            return Ok(false);
        };
        let committer = &mut *self.committer.lock();
        // A flush may have added slices since.
        let view = Arc::clone(&self.state().view);
        let operations = match &plan {
            Plan::Split { range, at } => split(&view.version, range, at, |run, begin, end| {
                let info = view.runs[&run].info();
                begin <= info.last_key.as_slice() && has_keys(&info.first_key, end)
            }),
            Plan::Coalesce { left, right } => coalesce(&view.version, left, right),
        };
        self.commit(committer, operations, Vec::new(), with_view)?;
        Ok(true)
    }
}

/// A key that halves the oldest slices of a range; `None` if they have no such key.
fn middle_of(range: &OpenRange) -> Option<Vec<u8>> {
    let last = range.slices.last()?;
    let time = (last.oldest, last.newest);
    let mut oldest: Vec<&OpenSlice> = range
        .slices
        .iter()
        .filter(|slice| (slice.oldest, slice.newest) == time)
        .collect();
    oldest.sort_by(|a, b| a.begin.cmp(&b.begin));
    let key = if oldest.len() > 1 {
        // A merge cut them here: the halves share no file.
        oldest[oldest.len() / 2].begin.clone()
    } else {
        let middle = last.run.middle_key(Some(&last.begin), last.end.as_deref());
        middle?.to_vec()
    };
    let is_inside = key > range.begin && has_keys(&key, range.end.as_deref());
    is_inside.then_some(key)
}

fn take_apart(begin: &[u8], range: &Range, operations: &mut Vec<TreeOperation>) {
    for slice in &range.slices {
        operations.push(TreeOperation::RemoveSlice {
            range: begin.to_vec(),
            run: slice.run,
            begin: slice.begin.clone(),
        });
    }
    let begin = begin.to_vec();
    operations.push(TreeOperation::RemoveRange { begin });
}

fn put_together(begin: &[u8], range: &Range, operations: &mut Vec<TreeOperation>) {
    operations.push(TreeOperation::AddRange {
        begin: begin.to_vec(),
        end: range.end.clone(),
    });
    let end = range.end.as_deref();
    operations.extend(TreeVersion::slice_operations(begin, end, &range.slices));
}

/// Split a range at a key. A half of a slice that has no keys is left out; `has` says of a run whether it
/// may have keys between two.
pub(super) fn split(
    version: &TreeVersion,
    begin: &[u8],
    at: &[u8],
    has: impl Fn(u64, &[u8], Option<&[u8]>) -> bool,
) -> Vec<TreeOperation> {
    let mut operations = Vec::new();
    let Some(range) = version.ranges().get(begin) else {
        return operations;
    };
    take_apart(begin, range, &mut operations);
    let (mut left, mut right) = (Range::default(), Range::default());
    (left.end, right.end) = (Some(at.to_vec()), range.end.clone());
    for slice in &range.slices {
        let mut halves = (slice.clone(), slice.clone());
        halves.0.end = Some(slice.end.as_deref().map_or(at, |end| end.min(at)).to_vec());
        halves.1.begin = slice.begin.as_slice().max(at).to_vec();
        let is_there = |half: &Slice| {
            has_keys(&half.begin, half.end.as_deref())
                && has(slice.run, &half.begin, half.end.as_deref())
        };
        let is_right = is_there(&halves.1);
        // A slice does not get lost, even if it has no keys at all.
        if is_there(&halves.0) || (!is_right && slice.begin.as_slice() < at) {
            left.slices.push(halves.0);
            if is_right {
                right.slices.push(halves.1);
            }
        } else {
            right.slices.push(halves.1);
        }
    }
    put_together(begin, &left, &mut operations);
    put_together(at, &right, &mut operations);
    operations
}

/// Coalesce two neighbours.
pub(super) fn coalesce(version: &TreeVersion, left: &[u8], right: &[u8]) -> Vec<TreeOperation> {
    let mut operations = Vec::new();
    let (Some(first), Some(second)) = (version.ranges().get(left), version.ranges().get(right))
    else {
        return operations;
    };
    take_apart(left, first, &mut operations);
    take_apart(right, second, &mut operations);
    let mut both = first.clone();
    both.end.clone_from(&second.end);
    for slice in &second.slices {
        // What a split cut becomes one again.
        let joined = both.slices.iter_mut().find(|of_first| {
            of_first.run == slice.run && of_first.end.as_ref() == Some(&slice.begin)
        });
        match joined {
            Some(of_first) => of_first.end.clone_from(&slice.end),
            None => both.slices.push(slice.clone()),
        }
    }
    put_together(left, &both, &mut operations);
    operations
}
