//! One file of the operating system: its three ways to write durably.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::super::{AlignedBuf, SyncMethod, VfsFile, check_blocks};
use super::spares::Refill;
use crate::error::{Error, Result};
use crate::limits::BLOCK_BYTES;

pub(super) struct RealFile {
    file: File,
    path: PathBuf,
    /// What `write_durable_at` does; `Direct` also means that the file is open with `O_DIRECT`.
    method: SyncMethod,
    /// Dropped behind the file.
    _refill: Refill,
}

/// Whether the kernel knows `pwritev2`: an empty list of buffers writes nothing.
#[cfg(target_os = "linux")]
pub(super) fn knows_dsync(file: &File) -> bool {
    rustix::io::pwritev2(file, &[], 0, rustix::io::ReadWriteFlags::DSYNC).is_ok()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn knows_dsync(_file: &File) -> bool {
    false
}

#[cfg(target_os = "linux")]
fn pwrite_dsync(file: &File, data: &[u8], offset: u64) -> io::Result<usize> {
    let written = rustix::io::pwritev2(
        file,
        &[io::IoSlice::new(data)],
        offset,
        rustix::io::ReadWriteFlags::DSYNC,
    )?;
    Ok(written)
}

#[cfg(not(target_os = "linux"))]
fn pwrite_dsync(_file: &File, _data: &[u8], _offset: u64) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Call `write` until all of `data` is taken, through interrupts and short writes. After a short
/// write the next one begins on a multiple of `align`, so that a direct write stays aligned.
pub(super) fn write_all(
    data: &[u8],
    offset: u64,
    align: usize,
    mut write: impl FnMut(&[u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    let mut done = 0;
    while done < data.len() {
        match write(&data[done..], offset + done as u64) {
            Ok(taken) => {
                let mut next = done + taken;
                if next < data.len() {
                    next -= next % align;
                }
                if next <= done {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                done = next;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Read until `buffer` is full or the file ends; how much was read.
fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(taken) => done += taken,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

impl RealFile {
    pub(super) fn new(file: File, path: &Path, method: SyncMethod) -> Self {
        let path = path.into();
        Self {
            file,
            path,
            method,
            _refill: Refill,
        }
    }

    /// A direct read moves whole blocks into aligned memory; copy the asked part out of them.
    fn read_exact_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let skipped = (offset % BLOCK_BYTES as u64) as usize;
        let mut blocks = AlignedBuf::zeroed((skipped + buffer.len()).next_multiple_of(BLOCK_BYTES));
        let read = read_up_to(&self.file, &mut blocks, offset - skipped as u64)?;
        if read < skipped + buffer.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.copy_from_slice(&blocks[skipped..skipped + buffer.len()]);
        Ok(())
    }

    fn write_then_sync(&self, data: &[u8], offset: u64) -> io::Result<()> {
        write_all(data, offset, BLOCK_BYTES, |d, o| self.file.write_at(d, o))?;
        self.file.sync_data()
    }

    fn error(&self, op: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::io(op, &self.path, source)
    }
}

impl VfsFile for RealFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if self.method == SyncMethod::Direct {
            self.read_exact_direct(buf, offset)
        } else {
            self.file.read_exact_at(buf, offset)
        }
        .map_err(self.error("read"))
    }

    /// On a file opened by [`SyncMethod::Direct`] the data must be block aligned here too.
    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        if self.method == SyncMethod::Direct {
            check_blocks(data, offset)?;
            write_all(data, offset, BLOCK_BYTES, |d, o| self.file.write_at(d, o))
        } else {
            self.file.write_all_at(data, offset)
        }
        .map_err(self.error("write"))
    }

    fn write_durable_at(&self, data: &[u8], offset: u64) -> Result<()> {
        check_blocks(data, offset)?;
        if self.method == SyncMethod::Fdatasync {
            return self
                .write_then_sync(data, offset)
                .map_err(self.error("write"));
        }
        // A direct file is not opened with `O_DSYNC`, for which rustix has the value of `O_SYNC`:
        // that would commit the file's times with each write. The flag on the call does the same
        // as the right one, and leaves `write_all_at` without a sync.
        match write_all(data, offset, BLOCK_BYTES, |d, o| {
            pwrite_dsync(&self.file, d, o)
        }) {
            // The flag was refused, so nothing was written by the refused call.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.write_then_sync(data, offset)
            }
            result => result,
        }
        .map_err(self.error("write"))
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(self.error("sync"))
    }

    fn len(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(self.error("stat"))?.len())
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_all_survives_short_writes_and_interrupts() {
        let data: Vec<u8> = (0..40_u8).collect();
        let mut disk = [0; 48];
        let mut calls = 0;
        write_all(&data, 8, 8, |piece, offset| {
            calls += 1;
            assert!(offset.is_multiple_of(8), "a direct write must stay aligned");
            if calls % 3 == 0 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let taken = piece.len().min(11);
            disk[offset as usize..][..taken].copy_from_slice(&piece[..taken]);
            Ok(taken)
        })
        .unwrap();
        assert_eq!(disk[8..], data);
        let stuck = write_all(&data, 0, 8, |_, _| Ok(7)).unwrap_err();
        assert_eq!(stuck.kind(), io::ErrorKind::WriteZero);
    }
}
