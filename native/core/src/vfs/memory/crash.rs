//! A disk with a volatile cache: what must, and what may, be on it after a crash.
//!
//! # Rules
//!
//! - What was synced is there. A durable write counts as synced by itself, and nothing else.
//! - Of the other writes any subset is there, torn at sectors, and in any order where they overlap
//!   (which is what pages written back at different times look like).
//! - Of the unsynced entry changes of one directory a prefix is there: a file system journals them
//!   in order. A rename between directories is one change in both.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::trace::Operation;
use super::tree::{EntryChange, NodeId, Tree};

/// The unit that a device writes atomically.
const SECTOR_BYTES: usize = 512;

/// Unsynced changes of one file that a cache holds for long.
const CACHED_CHANGES: usize = 16;

/// What survives of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPolicy {
    /// Everything: the process died, the machine did not.
    KeepAll,
    /// Nothing.
    DropUnsynced,
    /// Some writes, each whole, sometimes out of order; some prefix of entry changes.
    Subset {
        /// Which ones.
        seed: u64,
    },
    /// As `Subset`, and writes may be torn at sectors; the next operation may have begun.
    Torn {
        /// Which ones.
        seed: u64,
    },
}

impl CrashPolicy {
    /// Every policy, the random ones with seeds `0..seeds`.
    pub fn all(seeds: u64) -> impl Iterator<Item = Self> {
        let random = (0..seeds).flat_map(|seed| [Self::Subset { seed }, Self::Torn { seed }]);
        [Self::KeepAll, Self::DropUnsynced]
            .into_iter()
            .chain(random)
    }
}

/// A deterministic source of choices: splitmix64 (Steele, Lea and Flood, 2014).
struct Choices(u64);

impl Choices {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero. The bias of the remainder does not matter here.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// True `quarters` times out of four.
    fn chance(&mut self, quarters: usize) -> bool {
        self.below(4) < quarters
    }
}

/// A change of one file that is in the cache only.
#[derive(Clone, Debug)]
enum Change {
    /// The part `range` of `data`, to be at `offset`.
    Write {
        offset: u64,
        data: Arc<[u8]>,
        range: Range<usize>,
    },
    SetLen(u64),
}

/// The disk and its cache while operations are issued.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    /// What is durable.
    tree: Arc<Tree>,
    /// Unsynced changes of files, oldest first.
    changes: BTreeMap<NodeId, Vec<Change>>,
    /// Unsynced entry changes, oldest first.
    entries: Vec<EntryChange>,
}

impl Change {
    fn apply(&self, node: NodeId, tree: &mut Tree) {
        match self {
            Self::Write {
                offset,
                data,
                range,
            } => {
                tree.file_mut(node).write(&data[range.clone()], *offset);
            }
            Self::SetLen(len) => tree.file_mut(node).set_len(*len),
        }
    }

    /// What is left of a write when `begin..end` of the file was overwritten since.
    fn outside(self, begin: u64, end: u64, left: &mut Vec<Self>) {
        let Self::Write {
            offset,
            data,
            range,
        } = self
        else {
            left.push(self);
            return;
        };
        let len = range.len() as u64;
        let before = begin.saturating_sub(offset).min(len);
        let behind = (offset + len).saturating_sub(end).min(len);
        if before + behind >= len {
            left.push(Self::Write {
                offset,
                data,
                range,
            });
            return;
        }
        for (skip, take) in [(0, before), (len - behind, behind)] {
            if take > 0 {
                let start = range.start + skip as usize;
                let range = start..start + take as usize;
                left.push(Self::Write {
                    offset: offset + skip,
                    data: Arc::clone(&data),
                    range,
                });
            }
        }
    }
}

impl Disk {
    pub(super) fn new(tree: Arc<Tree>) -> Self {
        Self {
            tree,
            changes: BTreeMap::new(),
            entries: Vec::new(),
        }
    }

    fn tree(&mut self) -> &mut Tree {
        Arc::make_mut(&mut self.tree)
    }

    /// Issue `operation` and let it return.
    pub(super) fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Write {
                node,
                offset,
                data,
                durable: true,
                ..
            } => {
                self.write_durable(*node, *offset, data);
            }
            Operation::Sync { node, .. } => {
                let tree = Arc::make_mut(&mut self.tree);
                for change in self.changes.remove(node).into_iter().flatten() {
                    change.apply(*node, tree);
                }
            }
            Operation::SyncDir { node, .. } => self.sync_dir(*node),
            other => self.issue(other),
        }
    }

    /// Let the cache write back what is oldest, so that it stays small.
    pub(super) fn write_back(&mut self) {
        let tree = Arc::make_mut(&mut self.tree);
        for (&node, changes) in &mut self.changes {
            let old = changes.len().saturating_sub(CACHED_CHANGES);
            for change in changes.drain(..old) {
                change.apply(node, tree);
            }
        }
    }

    /// Put what `operation` changes into the cache; a request to sync has no effect before it
    /// returns that the cache could not have had by itself.
    fn issue(&mut self, operation: &Operation) {
        match operation {
            Operation::Create {
                node,
                is_dir,
                change,
                ..
            } => {
                self.tree().insert(*node, *is_dir);
                self.entries.push(change.clone());
            }
            Operation::Rename { change, .. } | Operation::Remove { change, .. } => {
                self.entries.push(change.clone());
            }
            Operation::Write {
                node, offset, data, ..
            } => {
                let (offset, range, data) = (*offset, 0..data.len(), Arc::clone(data));
                let change = Change::Write {
                    offset,
                    data,
                    range,
                };
                self.changes.entry(*node).or_default().push(change);
            }
            Operation::SetLen { node, len, .. } => {
                self.changes
                    .entry(*node)
                    .or_default()
                    .push(Change::SetLen(*len));
            }
            Operation::Sync { .. } | Operation::SyncDir { .. } | Operation::Mark(_) => {}
        }
    }

    fn write_durable(&mut self, node: NodeId, offset: u64, data: &[u8]) {
        let tree = Arc::make_mut(&mut self.tree);
        if let Some(changes) = self.changes.get_mut(&node) {
            // The length is metadata that reading this write needs, so what set it goes first.
            let resized = changes.iter().rposition(|c| matches!(c, Change::SetLen(_)));
            for change in changes.drain(..resized.map_or(0, |position| position + 1)) {
                change.apply(node, tree);
            }
            // An older write must not come back over this one.
            let mut left = Vec::with_capacity(changes.len());
            for change in changes.drain(..) {
                change.outside(offset, offset + data.len() as u64, &mut left);
            }
            *changes = left;
        }
        tree.file_mut(node).write(data, offset);
    }

    /// Commit the entry changes of `dir`, and of every directory that a rename ties to it, as far
    /// as the order inside each directory demands.
    fn sync_dir(&mut self, dir: NodeId) {
        let mut dirs = BTreeSet::from([dir]);
        let mut committed = vec![false; self.entries.len()];
        for (change, committed) in self.entries.iter().zip(&mut committed).rev() {
            if change.dirs().any(|dir| dirs.contains(&dir)) {
                *committed = true;
                dirs.extend(change.dirs());
            }
        }
        let tree = Arc::make_mut(&mut self.tree);
        let mut committed = committed.into_iter();
        self.entries.retain(|change| {
            let committed = committed.next() == Some(true);
            if committed {
                tree.apply(change);
            }
            !committed
        });
    }

    /// What is there after a crash, `next` being the operation that was not issued any more.
    pub(super) fn crash(
        mut self,
        policy: CrashPolicy,
        cut: usize,
        next: Option<&Operation>,
    ) -> Tree {
        let (seed, torn) = match policy {
            CrashPolicy::KeepAll => {
                self.keep_all();
                return Arc::unwrap_or_clone(self.tree);
            }
            CrashPolicy::DropUnsynced => return Arc::unwrap_or_clone(self.tree),
            CrashPolicy::Subset { seed } => (seed, false),
            CrashPolicy::Torn { seed } => (seed, true),
        };
        if torn && let Some(operation) = next {
            self.issue(operation);
        }
        // Mixed before use, so that neighbouring cuts and seeds choose independently.
        let mut choices = Choices(seed ^ Choices(cut as u64).next());
        self.keep_some_changes(&mut choices, torn);
        self.keep_some_entries(&mut choices);
        Arc::unwrap_or_clone(self.tree)
    }

    fn keep_all(&mut self) {
        let tree = Arc::make_mut(&mut self.tree);
        for (&node, changes) in &self.changes {
            for change in changes {
                change.apply(node, tree);
            }
        }
        for change in &self.entries {
            tree.apply(change);
        }
    }

    fn keep_some_changes(&mut self, choices: &mut Choices, torn: bool) {
        let tree = Arc::make_mut(&mut self.tree);
        // Some crashes lose nearly everything, some nearly nothing.
        let quarters = 1 + choices.below(3);
        for (&node, changes) in &self.changes {
            let mut kept: Vec<&Change> = changes
                .iter()
                .filter(|_| choices.chance(quarters))
                .collect();
            if choices.chance(2) {
                for end in (2..=kept.len()).rev() {
                    kept.swap(end - 1, choices.below(end));
                }
            }
            for change in kept {
                if torn && choices.chance(2) {
                    tear(change, node, tree, choices);
                } else {
                    change.apply(node, tree);
                }
            }
        }
    }

    fn keep_some_entries(&mut self, choices: &mut Choices) {
        let tree = Arc::make_mut(&mut self.tree);
        let mut left: BTreeMap<NodeId, usize> = BTreeMap::new();
        for dir in self.entries.iter().flat_map(EntryChange::dirs) {
            *left.entry(dir).or_default() += 1;
        }
        for count in left.values_mut() {
            *count = choices.below(*count + 1);
        }
        for change in &self.entries {
            let survives = change.dirs().all(|dir| left[&dir] > 0);
            for dir in change.dirs() {
                // A lost change ends the prefix of each of its directories.
                let count = left.entry(dir).or_default();
                *count = if survives { count.saturating_sub(1) } else { 0 };
            }
            if survives {
                tree.apply(change);
            }
        }
    }
}

/// Apply a part of a write: some of its sectors, and perhaps the length of the whole.
fn tear(change: &Change, node: NodeId, tree: &mut Tree, choices: &mut Choices) {
    let Change::Write {
        offset,
        data,
        range,
    } = change
    else {
        // A length is set atomically; its loss was decided before.
        change.apply(node, tree);
        return;
    };
    let content = tree.file_mut(node);
    let mut start = range.start;
    while start < range.end {
        let position = offset + (start - range.start) as u64;
        let sector_left = SECTOR_BYTES - (position % SECTOR_BYTES as u64) as usize;
        let end = range.end.min(start + sector_left);
        if choices.chance(2) {
            content.write(&data[start..end], position);
        }
        start = end;
    }
    if choices.chance(2) {
        let end = offset + range.len() as u64;
        content.set_len(content.len().max(end));
    }
}
