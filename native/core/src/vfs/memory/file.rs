//! An open file in memory, and a held lock.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::super::{VfsFile, VfsLock, check_blocks};
use super::MemoryVfs;
use super::content::FILE_BYTES_MAX;
use super::state::State;
use super::trace::Operation;
use super::tree::NodeId;
use crate::error::{Error, Result};

pub(super) struct MemoryFile {
    pub(super) vfs: MemoryVfs,
    pub(super) node: NodeId,
    pub(super) path: Arc<Path>,
    pub(super) writable: bool,
}

impl MemoryFile {
    fn write(&self, data: &[u8], offset: u64, durable: bool) -> Result<()> {
        let refused = if !self.writable {
            Errno::BADF
        } else if offset
            .checked_add(data.len() as u64)
            .is_none_or(|end| end > FILE_BYTES_MAX)
        {
            Errno::FBIG
        } else {
            self.vfs
                .state
                .lock()
                .write(self.node, &self.path, data, offset, durable);
            return Ok(());
        };
        Err(Error::io("write", &*self.path, refused.into()))
    }
}

impl VfsFile for MemoryFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        // The content is shared, so the copy is made outside the lock.
        let content = self.vfs.state.lock().live.file(self.node).cloned();
        match content {
            Ok(content) if content.read(buf, offset) => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(error),
        }
        .map_err(|source| Error::io("read", &*self.path, source))
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write(data, offset, false)
    }

    fn write_durable_at(&self, data: &[u8], offset: u64) -> Result<()> {
        check_blocks(data, offset)?;
        self.write(data, offset, true)
    }

    fn sync(&self) -> Result<()> {
        let path = Arc::clone(&self.path);
        self.vfs.state.lock().record(|| Operation::Sync {
            node: self.node,
            path,
        });
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        let state = self.vfs.state.lock();
        let content = state.live.file(self.node);
        Ok(content
            .map_err(|source| Error::io("stat", &*self.path, source))?
            .len())
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

pub(super) struct MemoryLock {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) node: NodeId,
}

impl VfsLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.state.lock().locks.remove(&self.node);
    }
}
