//! A slot whose file has not its whole length yet, as readers see it.
//!
//! # Theory of operation
//!
//! A slot that was never used holds zeros, so the part of it that the file does not have reads as zeros too. So no
//! reader has to know how far the file reaches, and whatever looks for the end of the log finds the same bytes
//! before and after the file grows.
//!
//! A kill, or a full disk, leaves a file longer than the manifest lists. Who makes it longer then begins where the list
//! ends, so the file is short again for a moment. A reader that knew the longer one asks anew.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::vfs::VfsFile;

/// A file that reads as if it had the length of its slot.
pub struct GrowingFile {
    inner: Arc<dyn VfsFile>,
    /// Length when it was asked for last.
    there: AtomicU64,
    /// Length that the manifest listed: a file that is shorter has lost bytes.
    listed: u64,
    /// Length of the slot.
    bytes: u64,
}

impl GrowingFile {
    /// `file`, which has `len` bytes now and has to have those that are `listed`, as a slot of `bytes`.
    pub fn wrap(file: Arc<dyn VfsFile>, listed: u64, len: u64, bytes: u64) -> Arc<dyn VfsFile> {
        if len >= bytes {
            return file;
        }
        Arc::new(Self {
            inner: file,
            there: AtomicU64::new(len),
            listed,
            bytes,
        })
    }

    /// How many bytes below `end` the file has.
    fn there(&self, end: u64) -> Result<u64> {
        let mut there = self.there.load(Ordering::Acquire);
        if there < end {
            there = self.inner.len()?;
            self.there.fetch_max(there, Ordering::AcqRel);
        }
        Ok(there.min(end))
    }
}

impl VfsFile for GrowingFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = offset + buf.len() as u64;
        if end > self.bytes {
            // The error is that of a read past the end.
            return self.inner.read_exact_at(buf, offset.max(self.bytes));
        }
        let there = self.there(end)?.saturating_sub(offset) as usize;
        let (held, rest) = buf.split_at_mut(there);
        rest.fill(0);
        if held.is_empty() {
            return Ok(());
        }
        let read = self.inner.read_exact_at(held, offset);
        if read.is_ok() {
            return read;
        }
        let now = self.inner.len()?;
        if now < self.listed {
            return read;
        }
        // It may have been made longer anew meanwhile. What is not there now holds zeros.
        self.there.store(now, Ordering::Release);
        let still = (now.saturating_sub(offset) as usize).min(held.len());
        let (still, gone) = held.split_at_mut(still);
        gone.fill(0);
        if still.is_empty() {
            return Ok(());
        }
        self.inner.read_exact_at(still, offset)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.inner.write_all_at(data, offset)
    }

    fn write_durable_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.inner.write_durable_at(data, offset)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn len(&self) -> Result<u64> {
        Ok(self.bytes)
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::vfs::{Access, MemoryVfs, Vfs};

    #[test]
    fn what_the_file_has_not_yet_reads_as_zeros_until_it_has_it() {
        let vfs = MemoryVfs::new();
        let path = Path::new("/slot");
        vfs.replace(path, &[7; 4096]).unwrap();
        let slot = GrowingFile::wrap(vfs.open(path, Access::Read).unwrap(), 4096, 4096, 12288);
        let read = |offset| {
            let mut buf = [9; 4096];
            slot.read_exact_at(&mut buf, offset).map(|()| buf)
        };
        assert_eq!(slot.len().unwrap(), 12288);
        assert_eq!(read(0).unwrap(), [7; 4096]);
        let half = read(2048).unwrap();
        assert_eq!(
            (&half[..2048], &half[2048..]),
            (&[7; 2048][..], &[0; 2048][..])
        );
        assert_eq!(read(8192).unwrap(), [0; 4096]);
        assert!(read(8193).is_err());
        vfs.extend_zeroed(path, 4096, 8192).unwrap();
        let file = vfs.open(path, Access::Write).unwrap();
        file.write_all_at(&[8; 4096], 4096).unwrap();
        assert_eq!(read(4096).unwrap(), [8; 4096]);
        assert_eq!(read(8192).unwrap(), [0; 4096]);
    }

    #[test]
    fn a_file_that_is_made_longer_anew_is_short_for_a_moment() {
        let vfs = MemoryVfs::new();
        let path = Path::new("/slot");
        vfs.replace(path, &[7; 4096]).unwrap();
        vfs.extend_zeroed(path, 4096, 12288).unwrap();
        let slot = GrowingFile::wrap(vfs.open(path, Access::Read).unwrap(), 4096, 12288, 16384);
        let read = |offset| {
            let mut buf = [9; 4096];
            slot.read_exact_at(&mut buf, offset).map(|()| buf)
        };
        assert_eq!(read(8192).unwrap(), [0; 4096]);
        // As far as the manifest lists it, and a little longer.
        vfs.extend_zeroed(path, 4096, 4096).unwrap();
        assert_eq!(read(8192).unwrap(), [0; 4096]);
        vfs.extend_zeroed(path, 4096, 8192).unwrap();
        let file = vfs.open(path, Access::Write).unwrap();
        file.write_all_at(&[8; 4096], 4096).unwrap();
        let slot = GrowingFile::wrap(vfs.open(path, Access::Read).unwrap(), 4096, 12288, 16384);
        let mut buf = [9; 8192];
        slot.read_exact_at(&mut buf, 4096).unwrap();
        assert_eq!(
            (&buf[..4096], &buf[4096..]),
            (&[8; 4096][..], &[0; 4096][..])
        );
        // What is listed and gone is lost.
        vfs.extend_zeroed(path, 2048, 2048).unwrap();
        assert!(slot.read_exact_at(&mut [9; 4096], 0).is_err());
    }
}
