//! What was done to a file system in memory, in order.

use std::path::Path;
use std::sync::Arc;

use super::MemoryVfs;
use super::crash::{CrashPolicy, Disk};
use super::tree::{EntryChange, NodeId};

/// Operations between two kept states of the disk: a crash replays at most this many.
const CHECKPOINT_OPERATIONS: usize = 16;

/// One change, or one request to make changes durable.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A new, empty file or directory.
    Create {
        /// The new file or directory.
        node: NodeId,
        /// Whether it is a directory.
        is_dir: bool,
        /// Its path.
        path: Arc<Path>,
        /// Its entry.
        change: EntryChange,
    },
    /// A file got another name, replacing what had it.
    Rename {
        /// The old path.
        from: Arc<Path>,
        /// The new path.
        to: Arc<Path>,
        /// Both entries.
        change: EntryChange,
    },
    /// A file lost its name.
    Remove {
        /// The path.
        path: Arc<Path>,
        /// Its entry.
        change: EntryChange,
    },
    /// Bytes were written.
    Write {
        /// The file.
        node: NodeId,
        /// The path it was opened by.
        path: Arc<Path>,
        /// Where.
        offset: u64,
        /// What.
        data: Arc<[u8]>,
        /// Whether the write was durable when it returned.
        durable: bool,
    },
    /// A file was cut or extended by zeros.
    SetLen {
        /// The file.
        node: NodeId,
        /// Its path.
        path: Arc<Path>,
        /// The new length.
        len: u64,
    },
    /// Everything written to the file before is durable.
    Sync {
        /// The file.
        node: NodeId,
        /// The path it was opened by.
        path: Arc<Path>,
    },
    /// The entries of the directory are durable.
    SyncDir {
        /// The directory.
        node: NodeId,
        /// Its path.
        path: Arc<Path>,
    },
    /// A number that the test put here.
    Mark(u64),
}

/// Operations on a known beginning; a source of crash images.
pub struct Trace {
    operations: Vec<Operation>,
    /// The disk before operation 0, [`CHECKPOINT_OPERATIONS`], twice that, ...
    checkpoints: Vec<Disk>,
}

impl Trace {
    pub(super) fn new(mut disk: Disk, operations: Vec<Operation>) -> Self {
        let mut checkpoints = Vec::new();
        for chunk in operations.chunks(CHECKPOINT_OPERATIONS) {
            checkpoints.push(disk.clone());
            for operation in chunk {
                disk.apply(operation);
            }
        }
        // For the cut behind the last operation, when that is the first of a chunk.
        checkpoints.push(disk);
        Self {
            operations,
            checkpoints,
        }
    }

    /// Number of operations: cuts are `0..=len`.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether nothing was done.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// What was done.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The marks set before `cut`, in order.
    pub fn marks_before(&self, cut: usize) -> impl Iterator<Item = u64> {
        self.operations[..cut]
            .iter()
            .filter_map(|operation| match operation {
                Operation::Mark(number) => Some(*number),
                _ => None,
            })
    }

    /// The file system after a crash when the operations `0..cut` had been issued; under
    /// [`CrashPolicy::Torn`] operation `cut` itself may have been under way.
    pub fn crash(&self, cut: usize, policy: CrashPolicy) -> MemoryVfs {
        let checkpoint = cut / CHECKPOINT_OPERATIONS;
        let mut disk = self.checkpoints[checkpoint].clone();
        for operation in &self.operations[checkpoint * CHECKPOINT_OPERATIONS..cut] {
            disk.apply(operation);
        }
        let tree = disk.crash(policy, cut, self.operations.get(cut));
        MemoryVfs::from_tree(Arc::new(tree), true)
    }

    /// Every cut under every policy, with `seeds` seeds of the random ones: (cut, policy, image).
    pub fn crashes(
        &self,
        seeds: u64,
    ) -> impl Iterator<Item = (usize, CrashPolicy, MemoryVfs)> + '_ {
        (0..=self.len()).flat_map(move |cut| {
            CrashPolicy::all(seeds).map(move |policy| (cut, policy, self.crash(cut, policy)))
        })
    }
}
