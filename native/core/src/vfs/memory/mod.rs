//! A file system in memory that records what was done to it, so that a test can ask for every
//! state a crash could have left behind.
//!
//! # Theory of operation
//!
//! There is the *live* tree, which calls see, and the list of [`Operation`]s since the *base* tree.
//! [`MemoryVfs::trace`] takes both; [`Trace::crash`] replays the operations on the base in a model
//! of a disk with a volatile cache and hands back another `MemoryVfs`: the machine after power
//! came back. That one records anew, so that a crash during recovery is a crash of the image.
//!
//! The model promises what POSIX does and no more. In particular a new file, *and a new directory*,
//! can be lost until [`Vfs::sync_dir`] of the directory that holds it, whatever was synced inside.
//! [`MemoryVfs::settle`] declares everything durable, for tests that do not ask about their
//! own preparations.

mod content;
mod crash;
mod file;
mod state;
#[cfg(test)]
mod tests;
mod trace;
mod tree;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

pub use crash::CrashPolicy;
pub use trace::{Operation, Trace};
pub use tree::NodeId;

use super::{Access, SyncMethod, Vfs, VfsFile, VfsLock};
use crate::error::{Error, Result};
use content::FILE_BYTES_MAX;
use crash::Disk;
use file::{MemoryFile, MemoryLock};
use state::State;
use tree::Tree;

/// Files in memory. Clones share them.
#[derive(Clone)]
pub struct MemoryVfs {
    state: Arc<Mutex<State>>,
}

impl MemoryVfs {
    /// An empty file system that records its operations.
    pub fn new() -> Self {
        Self::from_tree(Arc::default(), true)
    }

    /// An empty file system that records nothing, for tests and benchmarks that only want files.
    pub fn untraced() -> Self {
        Self::from_tree(Arc::default(), false)
    }

    /// An empty file system that keeps of its history only what a crash *now* could lose: for long runs.
    pub fn folding() -> Self {
        Self::new().into_folding()
    }

    /// Keep from now on only what a crash now could lose.
    #[must_use]
    pub fn into_folding(self) -> Self {
        self.state.lock().folds = true;
        self
    }

    fn from_tree(tree: Arc<Tree>, traced: bool) -> Self {
        let state = State::new(tree, traced);
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Put `number` into the trace: what it stands for ("append 7 was acknowledged") must hold
    /// after every crash behind it.
    pub fn mark(&self, number: u64) {
        self.state.lock().record(|| Operation::Mark(number));
    }

    /// What was done so far.
    pub fn trace(&self) -> Trace {
        let (base, operations) = {
            let state = self.state.lock();
            (state.base.clone(), state.operations.clone())
        };
        Trace::new(base, operations)
    }

    /// Operations recorded so far: the cut that a crash now would have.
    pub fn operations(&self) -> usize {
        self.state.lock().operations.len()
    }

    /// Declare everything durable and begin a new trace here.
    pub fn settle(&self) {
        let state = &mut *self.state.lock();
        state.base = Disk::new(Arc::clone(&state.live));
        state.operations.clear();
    }

    /// An independent copy as of now: nothing in its trace, everything durable, no locks held.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        let state = self.state.lock();
        Self::from_tree(Arc::clone(&state.live), state.traced)
    }

    /// Every path, directories with a slash at the end, in order.
    pub fn paths(&self) -> Vec<String> {
        self.state.lock().live.paths()
    }

    /// Damage one bit (0 is the lowest) of the byte at `offset`. Not an operation of the trace:
    /// take a crash image or a snapshot first, then damage that.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> Result<()> {
        self.damage(path, |content| {
            let mut byte = [0];
            if !content.read(&mut byte, offset) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            content.write(&[byte[0] ^ (1 << bit)], offset);
            Ok(())
        })
    }

    /// Cut a file, or append zeros to it. Not an operation of the trace, like a flipped bit.
    pub fn truncate_file(&self, path: &Path, len: u64) -> Result<()> {
        self.damage(path, |content| {
            content.set_len(len);
            Ok(())
        })
    }

    fn damage(
        &self,
        path: &Path,
        change: impl FnOnce(&mut content::Content) -> io::Result<()>,
    ) -> Result<()> {
        let state = &mut *self.state.lock();
        let node = state.live.find(path);
        node.and_then(|node| {
            state.live.file(node)?;
            change(state.tree().file_mut(node))
        })
        .map_err(|source| Error::io("damage", path, source))
    }

    fn file(&self, node: NodeId, path: &Path, writable: bool) -> Arc<dyn VfsFile> {
        Arc::new(MemoryFile {
            vfs: self.clone(),
            node,
            path: path.into(),
            writable,
        })
    }
}

impl Default for MemoryVfs {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryVfs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        formatter
            .debug_struct("MemoryVfs")
            .field("paths", &state.live.paths())
            .field("operations", &state.operations.len())
            .finish_non_exhaustive()
    }
}

impl Vfs for MemoryVfs {
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn VfsFile>> {
        let state = &mut *self.state.lock();
        let (op, node) = if access == Access::CreateNew {
            ("create", state.create(path, false))
        } else {
            ("open", state.live.find(path))
        };
        let node = node.and_then(|node| state.live.file(node).map(|_| node));
        let node = node.map_err(|source| Error::io(op, path, source))?;
        Ok(self.file(node, path, access != Access::Read))
    }

    fn open_durable(&self, path: &Path, _method: SyncMethod) -> Result<Arc<dyn VfsFile>> {
        self.open(path, Access::Write)
    }

    fn create_zeroed(&self, path: &Path, len: u64) -> Result<()> {
        let error = |source| Error::io("create", path, source);
        if len > FILE_BYTES_MAX {
            return Err(error(Errno::FBIG.into()));
        }
        let state = &mut *self.state.lock();
        let node = state.create(path, false).map_err(error)?;
        state.set_len(node, path, len);
        state.record(|| Operation::Sync {
            node,
            path: path.into(),
        });
        Ok(())
    }

    fn extend_zeroed(&self, path: &Path, begin: u64, end: u64) -> Result<()> {
        let error = |source| Error::io("extend", path, source);
        if end > FILE_BYTES_MAX {
            return Err(error(Errno::FBIG.into()));
        }
        let state = &mut *self.state.lock();
        let node = state.live.find(path);
        let node = node.and_then(|node| state.live.file(node).map(|_| node));
        let node = node.map_err(error)?;
        state.set_len(node, path, begin);
        state.set_len(node, path, end);
        state.record(|| Operation::Sync {
            node,
            path: path.into(),
        });
        Ok(())
    }

    fn read(&self, path: &Path, max: u64) -> Result<Vec<u8>> {
        let state = self.state.lock();
        let content = state
            .live
            .find(path)
            .and_then(|node| state.live.file(node).cloned());
        drop(state);
        let content = content.map_err(|source| Error::io("read", path, source))?;
        if content.len() > max {
            return Err(Error::TooLarge {
                what: "file",
                size: content.len(),
                max,
            });
        }
        let mut data = vec![0; content.len() as usize];
        content.read(&mut data, 0);
        Ok(data)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let live = Arc::clone(&self.state.lock().live);
        let entries = live.find(dir).and_then(|id| live.entries(id));
        let entries = entries.map_err(|source| Error::io("list", dir, source))?;
        Ok(entries.keys().map(ToString::to_string).collect())
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.state.lock().live.find(path).is_ok())
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        let result = self.state.lock().create_dir_all(dir);
        result.map_err(|source| Error::io("create", dir, source))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let result = self.state.lock().rename(from, to);
        result.map_err(|source| Error::io("rename", from, source))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let result = self.state.lock().remove(path);
        result.map_err(|source| Error::io("remove", path, source))
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        let result = self.state.lock().remove_dir(dir);
        result.map_err(|source| Error::io("remove", dir, source))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let state = &mut *self.state.lock();
        let node = state.live.find(dir);
        node.and_then(|node| {
            state.live.entries(node)?;
            state.record(|| Operation::SyncDir {
                node,
                path: dir.into(),
            });
            Ok(())
        })
        .map_err(|source| Error::io("sync", dir, source))
    }

    fn lock(&self, path: &Path, note: &str) -> Result<Box<dyn VfsLock>> {
        let note = note.as_bytes();
        let error = |source| Error::io("lock", path, source);
        let state = &mut *self.state.lock();
        let file = match state.live.find(path) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => state.create(path, false),
            found => found,
        }
        .map_err(error)?;
        let content = state.live.file(file).map_err(error)?;
        if state.locks.contains(&file) {
            let mut holder = vec![0; content.len() as usize];
            content.read(&mut holder, 0);
            let holder = String::from_utf8_lossy(&holder).into_owned();
            return Err(Error::Locked {
                path: path.into(),
                holder,
            });
        }
        state.set_len(file, path, 0);
        state.write(file, &path.into(), note, 0, false);
        state.locks.insert(file);
        Ok(Box::new(MemoryLock {
            state: Arc::clone(&self.state),
            node: file,
        }))
    }

    fn is_locked(&self, path: &Path) -> Result<bool> {
        let state = self.state.lock();
        Ok(state
            .live
            .find(path)
            .is_ok_and(|node| state.locks.contains(&node)))
    }
}
