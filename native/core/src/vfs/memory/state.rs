//! The live tree and its changes, each recorded as it happens.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::crash::Disk;
use super::trace::Operation;
use super::tree::{Entry, EntryChange, NodeId, Tree};

/// Operations after which they are folded, where they are.
const FOLD_OPERATIONS: usize = 256;

pub(super) struct State {
    pub(super) live: Arc<Tree>,
    /// What everything was before the first of `operations`.
    pub(super) base: Disk,
    pub(super) operations: Vec<Operation>,
    /// Whether operations are recorded.
    pub(super) traced: bool,
    /// Whether only what a crash now could lose is kept of them.
    pub(super) folds: bool,
    pub(super) locks: BTreeSet<NodeId>,
}

impl State {
    /// Begin with `tree`, all of it durable.
    pub(super) fn new(tree: Arc<Tree>, traced: bool) -> Self {
        Self {
            live: Arc::clone(&tree),
            base: Disk::new(tree),
            operations: Vec::new(),
            traced,
            folds: false,
            locks: BTreeSet::new(),
        }
    }

    pub(super) fn tree(&mut self) -> &mut Tree {
        Arc::make_mut(&mut self.live)
    }

    pub(super) fn record(&mut self, operation: impl FnOnce() -> Operation) {
        if self.traced {
            self.operations.push(operation());
            if self.folds && self.operations.len() >= FOLD_OPERATIONS {
                self.fold();
            }
        }
    }

    /// Take what was done into the base, as a disk and its cache.
    fn fold(&mut self) {
        for operation in self.operations.drain(..) {
            self.base.apply(&operation);
        }
        self.base.write_back();
    }

    /// Make a file or directory and its entry.
    pub(super) fn create(&mut self, path: &Path, is_dir: bool) -> io::Result<NodeId> {
        let entry = self.live.entry(path)?;
        if self.live.get(&entry).is_some() {
            return Err(Errno::EXIST.into());
        }
        let node = self.live.next_id();
        let change = EntryChange {
            unlink: None,
            link: Some((entry, node)),
        };
        self.tree().insert(node, is_dir);
        self.tree().apply(&change);
        self.record(|| Operation::Create {
            node,
            is_dir,
            path: path.into(),
            change,
        });
        Ok(node)
    }

    pub(super) fn create_dir_all(&mut self, dir: &Path) -> io::Result<()> {
        let mut path = PathBuf::new();
        for component in dir.components() {
            path.push(component);
            match self.live.find(&path) {
                Ok(id) if self.live.is_dir(id) => {}
                Ok(_) => return Err(Errno::EXIST.into()),
                Err(_) => _ = self.create(&path, true)?,
            }
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (source, target) = (self.live.entry(from)?, self.live.entry(to)?);
        let node = self.live.get(&source).ok_or(Errno::NOENT)?;
        if let Some(replaced) = self.live.get(&target) {
            match (self.live.is_dir(node), self.live.entries(replaced)) {
                _ if replaced == node => return Ok(()),
                (false, Ok(_)) => return Err(Errno::ISDIR.into()),
                (true, Err(error)) => return Err(error),
                (true, Ok(entries)) if !entries.is_empty() => return Err(Errno::NOTEMPTY.into()),
                _ => {}
            }
        }
        let change = EntryChange {
            unlink: Some(source),
            link: Some((target, node)),
        };
        self.tree().apply(&change);
        self.record(|| Operation::Rename {
            from: from.into(),
            to: to.into(),
            change,
        });
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let entry = self.live.entry(path)?;
        let node = self.live.get(&entry).ok_or(Errno::NOENT)?;
        self.live.file(node)?;
        self.unlink(path, entry);
        Ok(())
    }

    pub(super) fn remove_dir(&mut self, dir: &Path) -> io::Result<()> {
        let entry = self.live.entry(dir)?;
        let node = self.live.get(&entry).ok_or(Errno::NOENT)?;
        if !self.live.entries(node)?.is_empty() {
            return Err(Errno::NOTEMPTY.into());
        }
        self.unlink(dir, entry);
        Ok(())
    }

    fn unlink(&mut self, path: &Path, entry: Entry) {
        let change = EntryChange {
            unlink: Some(entry),
            link: None,
        };
        self.tree().apply(&change);
        self.record(|| Operation::Remove {
            path: path.into(),
            change,
        });
    }

    pub(super) fn write(
        &mut self,
        node: NodeId,
        path: &Arc<Path>,
        data: &[u8],
        offset: u64,
        durable: bool,
    ) {
        self.tree().file_mut(node).write(data, offset);
        self.record(|| Operation::Write {
            node,
            path: Arc::clone(path),
            offset,
            data: data.into(),
            durable,
        });
    }

    pub(super) fn set_len(&mut self, node: NodeId, path: &Path, len: u64) {
        self.tree().file_mut(node).set_len(len);
        self.record(|| Operation::SetLen {
            node,
            path: path.into(),
            len,
        });
    }
}
