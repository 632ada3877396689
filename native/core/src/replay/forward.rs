//! Files that are read front to back, each byte once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::vfs::VfsFile;

/// Bytes read at a time where a whole file is.
const CHUNK_BYTES: usize = 1 << 20;

/// A file under a walk, which asks again for the beginning of a frame that its window cut: what was read last
/// is kept, so that no byte is read twice.
pub(super) struct Forward {
    inner: Arc<dyn VfsFile>,
    kept: Mutex<(u64, Vec<u8>)>,
    bytes: Arc<AtomicU64>,
}

impl Forward {
    /// Read `inner`, counting bytes.
    pub(super) fn new(inner: Arc<dyn VfsFile>, bytes: Arc<AtomicU64>) -> Self {
        let kept = Mutex::default();
        Self { inner, kept, bytes }
    }
}

fn read_only<T>() -> Result<T> {
    Err(Error::ReadOnly { what: "a write" })
}

impl VfsFile for Forward {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut kept = self.kept.lock();
        let (start, held) = (kept.0, &kept.1);
        let behind = offset.saturating_sub(start) as usize;
        let known = match held.get(behind..) {
            Some(known) if offset >= start => known,
            _ => &[],
        };
        let known = &known[..known.len().min(buf.len())];
        let (old, new) = buf.split_at_mut(known.len());
        old.copy_from_slice(known);
        if !new.is_empty() {
            self.inner.read_exact_at(new, offset + old.len() as u64)?;
            self.bytes.fetch_add(new.len() as u64, Ordering::Relaxed);
        }
        kept.0 = offset;
        kept.1.clear();
        kept.1.extend_from_slice(buf);
        Ok(())
    }

    fn write_all_at(&self, _: &[u8], _: u64) -> Result<()> {
        read_only()
    }

    fn write_durable_at(&self, _: &[u8], _: u64) -> Result<()> {
        read_only()
    }

    fn sync(&self) -> Result<()> {
        read_only()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }
}

/// A file in memory: the newest segment, which is looked at before the others.
pub(super) struct Held {
    path: PathBuf,
    bytes: Vec<u8>,
    /// Bytes that the file has.
    pub(super) there: u64,
}

impl Held {
    /// Read the whole file.
    pub(super) fn read(file: &dyn VfsFile) -> Result<Self> {
        let len = file.len()?;
        Self::read_first(file, len, len)
    }

    /// Read what there is of a file of `len` bytes; the rest is zeros, in which no frame stands.
    pub(super) fn read_part(file: Option<Arc<dyn VfsFile>>, path: &Path, len: u64) -> Result<Self> {
        match file {
            Some(file) => Self::read_first(&*file, file.len()?.min(len), len),
            None => Ok(Self {
                path: path.into(),
                bytes: vec![0; len as usize],
                there: 0,
            }),
        }
    }

    fn read_first(file: &dyn VfsFile, there: u64, len: u64) -> Result<Self> {
        let mut bytes = vec![0; len as usize];
        let mut at = 0;
        for chunk in bytes[..there as usize].chunks_mut(CHUNK_BYTES) {
            file.read_exact_at(chunk, at)?;
            at += chunk.len() as u64;
        }
        let path = file.path().into();
        Ok(Self { path, bytes, there })
    }
}

impl VfsFile for Held {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = offset as usize + buf.len();
        let Some(found) = self.bytes.get(offset as usize..end) else {
            let source = std::io::ErrorKind::UnexpectedEof.into();
            return Err(Error::io("read", &self.path, source));
        };
        buf.copy_from_slice(found);
        Ok(())
    }

    fn write_all_at(&self, _: &[u8], _: u64) -> Result<()> {
        read_only()
    }

    fn write_durable_at(&self, _: &[u8], _: u64) -> Result<()> {
        read_only()
    }

    fn sync(&self) -> Result<()> {
        read_only()
    }

    fn len(&self) -> Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
