//! Flushes and merges.

use std::sync::Arc;

use super::commit::Written;
use super::merge::{Merge, Source};
use super::numbers::Reserved;
use super::operation::{Flushed, TreeOperation};
use super::pick::{MergePlan, pick_any, pick_merge};
use super::retain::{Filter, Retain};
use super::tree::Tree;
use super::version::{ListedRun, Slice, TreeVersion, has_keys};
use super::view::{OpenSlice, State, View};
use crate::error::{Error, Result};
use crate::table::entry::{Direction, Entries, Entry};
use crate::table::run::{RunInfo, RunWriter};

/// Entries between two looks at whether the tree was dropped.
const LOOK_ENTRIES: u64 = 4096;

/// Keeps everything.
fn everything() -> impl FnMut(&Entry<'_>, u64) -> Result<bool> {
    |_, _| Ok(true)
}

/// A range that a task works on; no other does meanwhile.
pub(super) struct Busy<'a> {
    tree: &'a Tree,
    ranges: Vec<Vec<u8>>,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut busy = self.tree.busy.lock();
        self.ranges.iter().for_each(|range| {
            busy.remove(range);
        });
    }
}

impl Tree {
    /// Choose by `pick` what to work on, and keep others from the ranges that it says.
    pub(super) fn choose<P>(
        &self,
        pick: impl FnOnce(&View, u64, &dyn Fn(&[u8]) -> bool) -> Option<(P, Vec<Vec<u8>>)>,
    ) -> Option<(P, Busy<'_>, Arc<View>)> {
        // Tasks leave the list after their change is visible, so that what is seen under this lock is what
        // the task will find.
        let mut busy = self.busy.lock();
        let view = Arc::clone(&self.state().view);
        let floor = self.floor.position();
        let (plan, ranges) = pick(&view, floor, &|range| busy.contains(range))?;
        busy.extend(ranges.iter().cloned());
        Some((plan, Busy { tree: self, ranges }, view))
    }

    /// Write what is in memory to a run; false if nothing was applied since the last flush. The floor goes
    /// up to what was asked for, as far as nobody holds it.
    ///
    /// # Errors
    /// Those of the file system. Nothing is lost: the next flush writes the same again.
    pub fn flush(&self) -> Result<bool> {
        let _alone = self.flushing.lock();
        self.check_wanted()?;
        let Some(sealed) = self.seal() else {
            return Ok(false);
        };
        let floor = self.floor.reach(sealed.position);
        let sources = sealed.level.sources(&[], None, Direction::Forward);
        let sources = sources.map(Source::Memory).collect();
        let is_oldest = self.state().view.runs.is_empty();
        let entries = Retain::new(Merge::new(sources, Direction::Forward), floor, is_oldest);
        let written = self.write(entries, u64::MAX, &mut everything())?;

        let committer = &mut *self.committer.lock();
        let version = Arc::clone(&self.state().view.version);
        let mut operations = Vec::new();
        let mut what = Flushed::Nothing;
        for Written { run, .. } in &written {
            let info = run.info();
            what = Flushed::Run(info.number);
            let recency = version.next_recency();
            operations.push(add_run(info, recency, recency));
            let ranges = version.ranges().iter().filter(|(begin, range)| {
                **begin <= info.last_key && has_keys(&info.first_key, range.end.as_deref())
            });
            operations.extend(ranges.map(|(begin, _)| TreeOperation::AddSlice {
                range: begin.clone(),
                run: info.number,
                begin: None,
                end: None,
            }));
        }
        let position = sealed.position;
        operations.push(TreeOperation::Flush { position, what });
        operations.extend(raised(&version, floor));
        self.commit(committer, operations, written, |state, view| State {
            view,
            active: state.active.clone(),
            sealed: None,
            applied: state.applied,
        })?;
        Ok(true)
    }

    /// Write entries to runs, a new one where one has `cut` bytes and a key ends. On an error what was
    /// written is discarded.
    fn write<E: Entries>(
        &self,
        entries: Retain<E>,
        cut: u64,
        filter: &mut Filter<'_>,
    ) -> Result<Vec<Written>> {
        let mut output = Output {
            tree: self,
            current: None,
            done: Vec::new(),
            numbers: Vec::new(),
        };
        let result = output.write(entries, cut, filter);
        if result.is_err() {
            let numbers = std::mem::take(&mut output.numbers);
            drop(output);
            self.discard(numbers);
            result?;
            return Ok(Vec::new());
        }
        Ok(output.done)
    }

    /// Choose the merge that is wanted most. No other task works on its range while this one lives.
    pub fn pick(&self) -> Option<MergeTask<'_>> {
        self.task(|view, floor, is_busy| {
            pick_merge(&view.shapes(floor, is_busy), &self.options.shape)
        })
    }

    /// Choose any range that a merge makes smaller.
    pub fn pick_any(&self) -> Option<MergeTask<'_>> {
        self.task(|view, floor, is_busy| pick_any(&view.shapes(floor, is_busy)))
    }

    fn task(
        &self,
        pick: impl FnOnce(&View, u64, &dyn Fn(&[u8]) -> bool) -> Option<MergePlan>,
    ) -> Option<MergeTask<'_>> {
        let flushed = self.flushed();
        self.floor.reach(flushed);
        let (plan, busy, view) = self.choose(|view, floor, is_busy| {
            let plan = pick(view, floor, is_busy)?;
            Some((plan, vec![view.ranges[plan.range].begin.clone()]))
        })?;
        let range = &view.ranges[plan.range];
        Some(MergeTask {
            begin: range.begin.clone(),
            slices: range.slices[..plan.slices].to_vec(),
            is_oldest: plan.slices == range.slices.len(),
            floor: self.floor.position().min(flushed),
            written: None,
            busy,
        })
    }

    /// Pick, run and install one merge; false if none is wanted.
    ///
    /// # Errors
    /// Those of the file system, and [`crate::Error::Corruption`] of a page that it reads. Its inputs stay.
    pub fn merge(&self, filter: Option<&mut Filter<'_>>) -> Result<bool> {
        let Some(mut task) = self.pick() else {
            return Ok(false);
        };
        task.run(filter)?;
        task.install()?;
        Ok(true)
    }

    /// Merge every range to as few entries and slices as it can have; false if it was all done. To be
    /// called until then.
    pub fn compact(&self, filter: Option<&mut Filter<'_>>) -> Result<bool> {
        let Some(mut task) = self.pick_any() else {
            return Ok(false);
        };
        task.run(filter)?;
        task.install()?;
        Ok(true)
    }
}

/// What a task writes.
struct Output<'a> {
    tree: &'a Tree,
    current: Option<(RunWriter, Reserved)>,
    done: Vec<Written>,
    /// All numbers that were used.
    numbers: Vec<u64>,
}

impl Output<'_> {
    fn write<E: Entries>(
        &mut self,
        mut entries: Retain<E>,
        cut: u64,
        filter: &mut Filter<'_>,
    ) -> Result<()> {
        let mut count = 0_u64;
        while let Some(is_new_key) = entries.advance(filter)? {
            if count.is_multiple_of(LOOK_ENTRIES) {
                self.tree.check_wanted()?;
            }
            count += 1;
            let is_full = |(writer, _): &(RunWriter, Reserved)| writer.bytes() >= cut;
            if is_new_key && self.current.as_ref().is_some_and(is_full) {
                self.finish()?;
            }
            if self.current.is_none() {
                self.begin()?;
            }
            if let Some((writer, _)) = &mut self.current {
                writer.push(entries.entry())?;
            }
        }
        self.finish()
    }

    fn begin(&mut self) -> Result<()> {
        let Tree { place, options, .. } = self.tree;
        let number = self.tree.numbers.reserve();
        self.numbers.push(number.number);
        let vfs = Arc::clone(&place.vfs);
        let identity = place.run_identity(number.number);
        let writer = RunWriter::create(vfs, &place.dir, identity, options.run)?;
        self.current = Some((writer, number));
        Ok(())
    }

    /// Make the current run durable, and open it: what is listed can be read.
    fn finish(&mut self) -> Result<()> {
        let Some((writer, number)) = self.current.take() else {
            return Ok(());
        };
        if let Some(info) = writer.finish()? {
            let run = self.tree.place.open_run(&info)?;
            self.done.push(Written { run, number });
        }
        Ok(())
    }
}

/// A merge of the newest slices of a range.
pub struct MergeTask<'a> {
    begin: Vec<u8>,
    slices: Vec<OpenSlice>,
    is_oldest: bool,
    floor: u64,
    /// `None` until it has run.
    written: Option<Vec<Written>>,
    busy: Busy<'a>,
}

impl MergeTask<'_> {
    /// First key of the range.
    pub fn range(&self) -> &[u8] {
        &self.begin
    }

    /// How many slices it merges.
    pub fn slices(&self) -> usize {
        self.slices.len()
    }

    /// Write the merged runs. The filter may leave out more than what the floor does.
    pub fn run(&mut self, filter: Option<&mut Filter<'_>>) -> Result<()> {
        let tree = self.busy.tree;
        let sources = self.slices.iter().map(OpenSlice::source_once).collect();
        let entries = Merge::new(sources, Direction::Forward);
        let entries = Retain::new(entries, self.floor, self.is_oldest);
        let cut = tree.options.shape.range_bytes;
        let written = match filter {
            Some(filter) => tree.write(entries, cut, filter)?,
            None => tree.write(entries, cut, &mut everything())?,
        };
        self.give_up();
        self.written = Some(written);
        Ok(())
    }

    /// Put what was written in place of the slices.
    ///
    /// # Errors
    /// Those of the file system, after which it is discarded; [`Error::InvalidArgument`] for a task that has
    /// not run.
    pub fn install(mut self) -> Result<()> {
        let Some(written) = self.written.take() else {
            let reason = "the merge has not run";
            return Err(Error::InvalidArgument(reason.into()));
        };
        let tree = self.busy.tree;
        let committer = &mut *tree.committer.lock();
        let version = Arc::clone(&tree.state().view.version);
        let mut operations = Vec::new();
        for slice in &self.slices {
            operations.push(TreeOperation::RemoveSlice {
                range: self.begin.clone(),
                run: slice.run.info().number,
                begin: slice.begin.clone(),
            });
        }
        self.replace(&written, &mut operations);
        operations.extend(self.unused_runs(&version));
        // Their files go with the commit, unless somebody else reads them.
        self.slices.clear();
        operations.extend(raised(&version, self.floor));
        tree.commit(committer, operations, written, with_view)
    }

    /// Discard what was written.
    fn give_up(&mut self) {
        let written = self.written.take().unwrap_or_default();
        if !written.is_empty() {
            let numbers: Vec<u64> = written.iter().map(|each| each.number.number).collect();
            drop(written);
            self.busy.tree.discard(numbers);
        }
    }

    /// Each run gets the keys from its first one to that of the next.
    fn replace(&self, written: &[Written], operations: &mut Vec<TreeOperation>) {
        let oldest = self.slices.iter().map(|slice| slice.oldest).min();
        let newest = self.slices.iter().map(|slice| slice.newest).max();
        let recency = (oldest.unwrap_or_default(), newest.unwrap_or_default());
        for (at, Written { run, .. }) in written.iter().enumerate() {
            let info = run.info();
            let next = written.get(at + 1).map(|next| next.run.info());
            operations.push(add_run(info, recency.0, recency.1));
            operations.push(TreeOperation::AddSlice {
                range: self.begin.clone(),
                run: info.number,
                begin: (at > 0).then(|| info.first_key.clone()),
                end: next.map(|next| next.first_key.clone()),
            });
        }
    }

    /// Runs of which this takes the last slice.
    fn unused_runs(&self, version: &TreeVersion) -> Vec<TreeOperation> {
        let is_input = |range: &[u8], slice: &Slice| {
            let mut inputs = self.slices.iter();
            range == self.begin
                && inputs
                    .any(|input| input.run.info().number == slice.run && input.begin == slice.begin)
        };
        let mut unused: std::collections::BTreeSet<u64> = self
            .slices
            .iter()
            .map(|slice| slice.run.info().number)
            .collect();
        for (begin, range) in version.ranges() {
            for slice in &range.slices {
                if !is_input(begin, slice) {
                    unused.remove(&slice.run);
                }
            }
        }
        let remove = |number| TreeOperation::RemoveRun { number };
        unused.into_iter().map(remove).collect()
    }
}

impl Drop for MergeTask<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// The state with another view.
pub(super) fn with_view(state: &State, view: Arc<View>) -> State {
    State {
        view,
        active: state.active.clone(),
        sealed: state.sealed.clone(),
        applied: state.applied,
    }
}

fn add_run(info: &RunInfo, oldest: u64, newest: u64) -> TreeOperation {
    TreeOperation::AddRun(ListedRun {
        info: Arc::new(info.clone()),
        oldest,
        newest,
    })
}

/// The floor, where it is higher than that of the version.
fn raised(version: &TreeVersion, floor: u64) -> Option<TreeOperation> {
    let position = floor;
    (position > version.floor()).then_some(TreeOperation::Floor { position })
}
