//! A tree: keys with their versions, in memory and in runs.
//!
//! # Theory of operation
//!
//! A tree follows a log. Its owner brings the entries of the log in order, a
//! [`Piece`](super::memory::Piece) at a time ([`Tree::apply`]), and says when to [`Tree::flush`] and
//! to [`Tree::merge`]; the tree decides what to merge, split and coalesce ([`pick`]). The log is its
//! write-ahead log: what is above [`Tree::flushed`] is applied again after an open.
//!
//! ```text
//! tree    memory level (active, and sealed while it is flushed) + ranges that cover all keys
//! range   [begin, end) of keys, with slices, newest first
//! slice   a part of a run, with bounds of its own within the range
//! ```
//!
//! The [`TreeVersion`] says which runs there are; its manifest makes it durable. A *view* is a
//! version with its runs open. Readers get view and memory level together, by one load, as a
//! [`Snapshot`]; they take no lock, and what they hold stays there until they let go of it.
//!
//! # Use
//!
//! ```text
//! Tree::create(vfs, dir, identity, flushed, options, cache) -> Arc<Tree>
//! Tree::open(vfs, dir, identity, options, cache) -> (Arc<Tree>, TreeReport)
//!
//! tree.apply(piece, position)     entries of the log up to a position; one caller at a time
//! tree.applied(), tree.flushed(), tree.floor(), tree.memory_bytes()
//! tree.flush() -> bool            writes what is in memory; false if there was nothing to do
//! tree.merge(filter) -> bool      picks, runs and installs one merge; any number of threads
//! tree.pick() -> MergeTask        the same in steps: task.run(filter), task.install()
//! tree.compact(filter) -> bool    merges one range to as little as it can have
//! tree.reshape() -> bool          splits or coalesces ranges, once
//! tree.raise_floor(position)      no snapshot will be asked for versions below it
//! tree.hold(position) -> Hold     keeps the floor at or below a position while it lives
//! tree.settle()                   after a failed commit; removes what is not needed any more
//! tree.abandon()                  the tree was dropped: running tasks discard what they wrote
//! tree.close()                    ends the manifest in good order
//!
//! tree.snapshot() -> Snapshot     as of what is applied
//! snapshot.position(), snapshot.floor()
//! snapshot.get(key, at) -> Option<Hit>                 Hit: position(), payload()
//! snapshot.entries(begin, end, direction, at, tombstones) -> Visible (an `Entries`)
//!
//! TreeFollower::open(vfs, dir, identity, options, cache); follower.refresh(); follower.snapshot()
//! ```
//!
//! # Order of a change
//!
//! Run written, synced, renamed, directory synced; edit appended, synced; view swapped; only then
//! runs removed that no view has. After a commit whose outcome is unknown nothing is removed until
//! [`Tree::settle`] (which every later change begins with) has begun a new manifest file.
//!
//! # Invariants
//!
//! 1. Of one key, the slices of a range and the memory level hold versions of disjoint spans of
//!    positions, in the order of their recency. So the newest source that has a version at or below
//!    a position has the one that is visible there.
//! 2. A merge changes no answer at a position at or above the floor.
//! 3. Edits have one author at a time. Tasks of a range that is being merged are not begun.
//! 4. The number of a run is never given twice, even if the run was lost.

mod commit;
mod divide;
mod floor;
mod follower;
mod image;
mod invariants;
mod merge;
mod numbers;
mod operation;
mod pick;
mod recover;
mod reshape;
mod retain;
mod snapshot;
mod task;
#[allow(clippy::module_inception, reason = "the type that the folder is about")]
mod tree;
mod version;
mod view;

#[cfg(test)]
mod tests;

pub use floor::{HOLDS_MAX, Hold};
pub use follower::TreeFollower;
pub(in crate::table) use follower::is_missing;
pub use image::{RunCopy, TreeImage, TreeRestore};
pub use merge::{Merge, Source};
pub use operation::{Flushed, TreeOperation};
pub use pick::{
    MergePlan, RangeShape, Reshape, ShapeOptions, SliceShape, pick_any, pick_merge, pick_reshape,
};
pub use recover::TreeReport;
pub use retain::{Filter, Retain, Tombstones, Visible};
pub use snapshot::{Hit, Snapshot, Versions};
pub use task::MergeTask;
pub use tree::{Tree, TreeOptions, TreeStats};
pub use version::{ListedRun, Range, Slice, TreeVersion};
