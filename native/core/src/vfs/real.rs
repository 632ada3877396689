//! The real disk, through std and rustix.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FlockOperation;

use super::{Access, AlignedBuf, SyncMethod, Vfs, VfsFile, VfsLock, check_blocks};
use crate::error::{Error, Result};
use crate::limits::BLOCK_BYTES;

/// Bytes of zeros written at a time: large enough for a disk's full bandwidth.
const ZERO_CHUNK_BYTES: usize = 1 << 20;

/// Most of a lock file that is shown as its holder's note.
const NOTE_BYTES_MAX: u64 = 4096;

/// How often a lock attempt steps aside for [`Vfs::is_locked`] probes, each of which holds the
/// lock for two system calls.
const LOCK_ATTEMPTS_MAX: u32 = 1000;

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealVfs;

struct RealFile {
    file: File,
    path: PathBuf,
    /// What `write_durable_at` does; `Direct` also means that the file is open with `O_DIRECT`.
    method: SyncMethod,
}

/// Add `flags` of `open(2)` to `options`.
#[cfg(target_os = "linux")]
fn with_flags(options: &mut OpenOptions, flags: rustix::fs::OFlags) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    options.custom_flags(flags.bits().cast_signed())
}

/// Whether an open was refused because the file system does not know `O_DIRECT`.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        rustix::io::Errno::from_io_error(error),
        Some(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP)
    )
}

/// Open for direct, synchronous writes; `None` where the file system refuses it. Decided by
/// `open` and by the alignment that the kernel reports, never by a trial write.
#[cfg(target_os = "linux")]
fn open_direct(options: &mut OpenOptions, path: &Path) -> io::Result<Option<File>> {
    use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};
    let file = match with_flags(options, OFlags::DIRECT | OFlags::DSYNC).open(path) {
        Ok(file) => file,
        Err(error) if is_refusal(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    // Kernels before 6.1 do not report the alignment; a block has always been enough there.
    if let Ok(status) = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        && StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::DIOALIGN)
    {
        let fits = |align: u32| align != 0 && BLOCK_BYTES.is_multiple_of(align as usize);
        if !fits(status.stx_dio_mem_align) || !fits(status.stx_dio_offset_align) {
            return Ok(None);
        }
    }
    Ok(Some(file))
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_options: &mut OpenOptions, _path: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

/// Whether the kernel knows `pwritev2`: an empty list of buffers writes nothing.
#[cfg(target_os = "linux")]
fn knows_dsync(file: &File) -> bool {
    rustix::io::pwritev2(file, &[], 0, rustix::io::ReadWriteFlags::DSYNC).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn knows_dsync(_file: &File) -> bool {
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
fn write_all(
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
        self.file.write_all_at(data, offset)?;
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
        match self.method {
            SyncMethod::Fdatasync => self.write_then_sync(data, offset),
            SyncMethod::Dsync => {
                match write_all(data, offset, 1, |d, o| pwrite_dsync(&self.file, d, o)) {
                    // The flag was refused, so nothing was written by the refused call.
                    Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                        self.write_then_sync(data, offset)
                    }
                    result => result,
                }
            }
            SyncMethod::Direct => {
                write_all(data, offset, BLOCK_BYTES, |d, o| self.file.write_at(d, o))
            }
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

/// Fill a new file with `len` zeros and sync it.
fn fill_with_zeros(file: &File, len: u64) -> io::Result<()> {
    // Asking for the space first finds a full disk before any byte moves, and keeps the file in
    // few extents. The zeros are written all the same: an extent that is merely allocated would
    // cost a metadata write at the first real one.
    #[cfg(target_os = "linux")]
    if len > 0 {
        let allocated = rustix::io::retry_on_intr(|| {
            rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, len)
        });
        if let Err(error) = allocated
            && error != rustix::io::Errno::OPNOTSUPP
        {
            return Err(error.into());
        }
    }
    let chunk_bytes = len.min(ZERO_CHUNK_BYTES as u64) as usize;
    let zeros = AlignedBuf::zeroed(chunk_bytes.next_multiple_of(BLOCK_BYTES));
    let mut offset = 0;
    while offset < len {
        // Whole blocks, as the file may be open with `O_DIRECT`; what is too much is cut below.
        let left = (len - offset).min(zeros.len() as u64) as usize;
        let chunk = &zeros[..left.next_multiple_of(BLOCK_BYTES)];
        write_all(chunk, offset, BLOCK_BYTES, |d, o| file.write_at(d, o))?;
        offset += chunk.len() as u64;
    }
    if offset > len {
        file.set_len(len)?;
    }
    file.sync_all()
}

/// A directory path that can be opened: the parent of a bare file name is empty.
fn openable(dir: &Path) -> &Path {
    if dir.as_os_str().is_empty() {
        Path::new(".")
    } else {
        dir
    }
}

impl Vfs for RealVfs {
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn VfsFile>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match access {
            Access::Read => {}
            Access::Write => _ = options.write(true),
            Access::CreateNew => _ = options.write(true).create_new(true),
        }
        let op = if access == Access::CreateNew {
            "create"
        } else {
            "open"
        };
        let file = options
            .open(path)
            .map_err(|source| Error::io(op, path, source))?;
        Ok(Arc::new(RealFile {
            file,
            path: path.into(),
            method: SyncMethod::Fdatasync,
        }))
    }

    fn open_durable(&self, path: &Path, method: SyncMethod) -> Result<Arc<dyn VfsFile>> {
        let error = |source| Error::io("open", path, source);
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if method == SyncMethod::Direct
            && let Some(file) = open_direct(&mut options.clone(), path).map_err(error)?
        {
            return Ok(Arc::new(RealFile {
                file,
                path: path.into(),
                method,
            }));
        }
        let file = options.open(path).map_err(error)?;
        let method = match method {
            SyncMethod::Dsync if knows_dsync(&file) => SyncMethod::Dsync,
            _ => SyncMethod::Fdatasync,
        };
        Ok(Arc::new(RealFile {
            file,
            path: path.into(),
            method,
        }))
    }

    fn create_zeroed(&self, path: &Path, len: u64) -> Result<()> {
        let error = |source| Error::io("create", path, source);
        let file = create_uncached(path).map_err(error)?;
        fill_with_zeros(&file, len).map_err(|source| {
            // The first failure is the one to report; what is left behind is only removed.
            let _ = fs::remove_file(path);
            error(source)
        })
    }

    fn read(&self, path: &Path, max: u64) -> Result<Vec<u8>> {
        let error = |source| Error::io("read", path, source);
        let file = File::open(path).map_err(error)?;
        let size = file.metadata().map_err(error)?.len();
        let mut data = Vec::with_capacity(size.min(max) as usize);
        if size <= max {
            // It may grow meanwhile: one byte more than allowed tells.
            file.take(max.saturating_add(1))
                .read_to_end(&mut data)
                .map_err(error)?;
        }
        let size = size.max(data.len() as u64);
        if size > max {
            return Err(Error::TooLarge {
                what: "file",
                size,
                max,
            });
        }
        Ok(data)
    }

    /// Names that are not UTF-8 are left out: no file of ours has one.
    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let error = |source| Error::io("list", dir, source);
        let mut names = Vec::new();
        for entry in fs::read_dir(openable(dir)).map_err(error)? {
            names.extend(entry.map_err(error)?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        fs::exists(path).map_err(|source| Error::io("stat", path, source))
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        fs::create_dir_all(openable(dir)).map_err(|source| Error::io("create", dir, source))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|source| Error::io("rename", from, source))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|source| Error::io("remove", path, source))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        File::open(openable(dir))
            .and_then(|file| file.sync_all())
            .map_err(|source| Error::io("sync", dir, source))
    }

    fn lock(&self, path: &Path, note: &str) -> Result<Box<dyn VfsLock>> {
        let error = |source| Error::io("lock", path, source);
        let mut options = OpenOptions::new();
        // Not truncated on open: the note belongs to the holder until we are the holder.
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(error)?;
        if !lock_exclusive(&file).map_err(error)? {
            let mut holder = Vec::new();
            file.take(NOTE_BYTES_MAX)
                .read_to_end(&mut holder)
                .map_err(error)?;
            let holder = String::from_utf8_lossy(&holder).trim().to_owned();
            return Err(Error::Locked {
                path: path.into(),
                holder,
            });
        }
        file.set_len(0)
            .and_then(|()| file.write_all(note.as_bytes()))
            .map_err(error)?;
        Ok(Box::new(RealLock {
            file,
            process: std::process::id(),
        }))
    }

    fn is_locked(&self, path: &Path) -> Result<bool> {
        let error = |source| Error::io("lock", path, source);
        let file = match File::open(path) {
            Ok(file) => file,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(error(source)),
        };
        // A shared lock, for as long as `file` lives: it never takes the lock from a holder, and
        // `lock_exclusive` tells it from one.
        Ok(!try_flock(&file, FlockOperation::NonBlockingLockShared).map_err(error)?)
    }
}

/// Create a file that bypasses the page cache where that can be had.
fn create_uncached(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(target_os = "linux")]
    {
        let created = with_flags(&mut options.clone(), rustix::fs::OFlags::DIRECT).open(path);
        match created {
            // Some file systems create the file before they refuse the flag.
            Err(error) if is_refusal(&error) => {
                let _ = fs::remove_file(path);
            }
            result => return result,
        }
    }
    options.open(path)
}

struct RealLock {
    file: File,
    process: u32,
}

impl VfsLock for RealLock {}

impl Drop for RealLock {
    /// Closing releases the lock only with the last copy of the descriptor, and a forked child
    /// has one: release it by name. The child itself must not: the lock is its parent's.
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        }
    }
}

/// Try a lock without waiting; whether it was had.
fn try_flock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    match rustix::io::retry_on_intr(|| rustix::fs::flock(file, operation)) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Take the exclusive lock; false when another holds it. A shared lock is only a probe of
/// `is_locked` and gone in a moment, so it is not taken for a holder.
fn lock_exclusive(file: &File) -> io::Result<bool> {
    for _ in 0..LOCK_ATTEMPTS_MAX {
        if try_flock(file, FlockOperation::NonBlockingLockExclusive)? {
            return Ok(true);
        }
        if !try_flock(file, FlockOperation::NonBlockingLockShared)? {
            return Ok(false);
        }
        rustix::fs::flock(file, FlockOperation::Unlock)?;
        std::thread::yield_now();
    }
    Ok(false)
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
