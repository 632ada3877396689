//! File access through a trait: the real disk, memory with recorded traces, injected faults.
//!
//! Paths are given as the caller has them; an implementation never changes the process's
//! working directory. All calls are positional and thread-safe.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod aligned;
#[cfg(test)]
mod conformance;
mod fault;
mod memory;
mod pool;
mod real;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use aligned::AlignedBuf;
pub use fault::{Fault, FaultVfs, Gate, Landed, OpKind, Rule};
pub use memory::{CrashPolicy, MemoryVfs, NodeId, Operation, Trace};
pub use pool::{BufPool, PooledBuf};
pub use real::RealVfs;

use crate::error::{Error, Result};
use crate::limits::BLOCK_BYTES;

/// How a synchronous write reaches the device. Measured choice: see
/// `benchmarks/sync_methods.py` and `docs/design/0002-sync-method.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMethod {
    /// `pwrite` into the page cache, then `fdatasync`.
    Fdatasync,
    /// `pwritev2(RWF_DSYNC)`: the status belongs to exactly this write.
    Dsync,
    /// `O_DIRECT` and `RWF_DSYNC`: no page cache; offset, length and memory are block aligned.
    Direct,
}

/// One open file. Dropping closes it.
pub trait VfsFile: Send + Sync {
    /// Read exactly `buf.len()` bytes at `offset`; shorter is an error.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// Write all of `data` at `offset`; not durable.
    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()>;

    /// Write all of `data` at `offset` and make it durable before returning. `data` begins and
    /// ends on a block boundary and lies in block-aligned memory.
    fn write_durable_at(&self, data: &[u8], offset: u64) -> Result<()>;

    /// Make everything written so far durable (data and the metadata needed to read it).
    fn sync(&self) -> Result<()>;

    /// Current length in bytes.
    fn len(&self) -> Result<u64>;

    /// Whether the file holds no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// The path the file was opened by, for messages.
    fn path(&self) -> &Path;
}

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Existing file, reading only.
    Read,
    /// Existing file, reading and writing.
    Write,
    /// New file (an existing one is an error), reading and writing.
    CreateNew,
}

/// A lock held while the value lives.
pub trait VfsLock: Send + Sync {}

/// A file system.
pub trait Vfs: Send + Sync {
    /// Open a file.
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn VfsFile>>;

    /// Open an existing file for `write_durable_at` by `method` (one open file description per
    /// call, so that a write-back error is seen by the writer it belongs to). Falls back to
    /// [`SyncMethod::Fdatasync`] where the file system refuses the method.
    fn open_durable(&self, path: &Path, method: SyncMethod) -> Result<Arc<dyn VfsFile>>;

    /// Create `path` with `len` bytes of zeros really written (not merely allocated, unless the
    /// file system is memory), and sync the file. On failure nothing is left behind. The directory
    /// is not synced.
    fn create_zeroed(&self, path: &Path, len: u64) -> Result<()>;

    /// Make the file at `path` reach from `begin` to `end` with zeros really written, as
    /// [`Vfs::create_zeroed`] does, and sync it. What stands at or behind `begin` is zeros that an attempt
    /// before left. On failure the file ends at `begin`.
    fn extend_zeroed(&self, path: &Path, begin: u64, end: u64) -> Result<()>;

    /// Read a whole file, refusing one longer than `max` bytes.
    fn read(&self, path: &Path, max: u64) -> Result<Vec<u8>>;

    /// Names (not paths) in a directory, sorted.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;

    /// Whether the path exists.
    fn exists(&self, path: &Path) -> Result<bool>;

    /// Create a directory and its parents; existing ones are fine.
    fn create_dir_all(&self, dir: &Path) -> Result<()>;

    /// Atomically replace `to` by `from`; durable after [`Vfs::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Remove a file; durable after [`Vfs::sync_dir`].
    fn remove(&self, path: &Path) -> Result<()>;

    /// Remove an empty directory; durable after [`Vfs::sync_dir`] of the one that it is in.
    fn remove_dir(&self, dir: &Path) -> Result<()>;

    /// Make the directory's entries durable.
    fn sync_dir(&self, dir: &Path) -> Result<()>;

    /// Take the exclusive lock of `path`, creating the file, without waiting. The holder's note
    /// is stored in the file for the error of whoever comes second.
    fn lock(&self, path: &Path, note: &str) -> Result<Box<dyn VfsLock>>;

    /// Whether somebody holds the lock of `path`.
    fn is_locked(&self, path: &Path) -> Result<bool>;

    /// Write a small file so that it is either the old or the new one after a crash: write a
    /// temporary beside it, sync, rename, sync the directory.
    fn replace(&self, path: &Path, data: &[u8]) -> Result<()> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        if self.exists(&temporary)? {
            self.remove(&temporary)?;
        }
        let file = self.open(&temporary, Access::CreateNew)?;
        file.write_all_at(data, 0)?;
        file.sync()?;
        self.rename(&temporary, path)?;
        self.sync_dir(path.parent().unwrap_or(Path::new(".")))
    }
}

/// Remove a directory of files and of directories like it; durable after [`Vfs::sync_dir`] of the one that it is in.
pub fn remove_all(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    for name in vfs.list(dir)? {
        let path = dir.join(name);
        // A file says that it is no directory when it is listed.
        if vfs.list(&path).is_ok() {
            remove_all(vfs, &path)?;
        } else {
            vfs.remove(&path)?;
        }
    }
    vfs.remove_dir(dir)
}

/// Refuse what a direct write could not take. Every implementation checks, so that a misaligned
/// write fails in the tests that run in memory too.
fn check_blocks(data: &[u8], offset: u64) -> Result<()> {
    let address = data.as_ptr().addr();
    if address.is_multiple_of(BLOCK_BYTES)
        && data.len().is_multiple_of(BLOCK_BYTES)
        && offset.is_multiple_of(BLOCK_BYTES as u64)
    {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "durable write of {} bytes at offset {offset}, memory {address:#x}: not in whole blocks",
        data.len()
    )))
}
