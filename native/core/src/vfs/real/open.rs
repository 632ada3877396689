//! Opening and creating files with the flags that direct I/O needs, where they can be had.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::super::AlignedBuf;
use super::file::write_all;
use crate::limits::BLOCK_BYTES;

/// Bytes of zeros written at a time: large enough for a disk's full bandwidth.
const ZERO_CHUNK_BYTES: usize = 1 << 20;

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

/// Whether direct I/O on `file` takes whole blocks, by what the kernel reports. Kernels before 6.1
/// do not; a block has always been enough there.
#[cfg(target_os = "linux")]
fn takes_blocks(file: &File) -> bool {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let Ok(status) = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return true;
    };
    let fits = |align: u32| align != 0 && BLOCK_BYTES.is_multiple_of(align as usize);
    !StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::DIOALIGN)
        || (fits(status.stx_dio_mem_align) && fits(status.stx_dio_offset_align))
}

/// Open for direct I/O; `None` where that is refused. Decided by `open` and by the alignment that
/// the kernel reports, never by a trial write.
#[cfg(target_os = "linux")]
pub(super) fn open_direct(options: &mut OpenOptions, path: &Path) -> io::Result<Option<File>> {
    match with_flags(options, rustix::fs::OFlags::DIRECT).open(path) {
        Ok(file) => Ok(takes_blocks(&file).then_some(file)),
        Err(error) if is_refusal(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn open_direct(_options: &mut OpenOptions, _path: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

/// Open a file for writing that bypasses the page cache where that can be had.
pub(super) fn open_uncached(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(target_os = "linux")]
    if let Some(file) = open_direct(&mut options.clone(), path)? {
        return Ok(file);
    }
    options.open(path)
}

/// Create a file that bypasses the page cache where that can be had.
pub(super) fn create_uncached(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{OFlags, fcntl_setfl};
        match with_flags(&mut options.clone(), OFlags::DIRECT).open(path) {
            Ok(file) => {
                if !takes_blocks(&file) {
                    fcntl_setfl(&file, OFlags::empty())?;
                }
                return Ok(file);
            }
            // Some file systems create the file before they refuse the flag.
            Err(error) if is_refusal(&error) => {
                let _ = fs::remove_file(path);
            }
            Err(error) => return Err(error),
        }
    }
    options.open(path)
}

/// Whether a file is kept in memory, where space that is allocated costs its first write nothing.
#[cfg(target_os = "linux")]
fn is_in_memory(file: &File) -> io::Result<bool> {
    // TMPFS_MAGIC of statfs(2), which rustix has no name for.
    const TMPFS: i64 = 0x0102_1994;
    #[allow(
        clippy::allow_attributes,
        clippy::useless_conversion,
        reason = "the width of the field depends on the architecture"
    )]
    let kind = i64::from(rustix::fs::fstatfs(file)?.f_type);
    Ok(kind == TMPFS)
}

/// Fill a file with zeros from `begin`, which is a whole number of blocks, to `end`, and sync it.
pub(super) fn fill_with_zeros(file: &File, begin: u64, end: u64) -> io::Result<()> {
    let len = end - begin;
    // Asking for the space first finds a full disk before any byte moves, and keeps the file in
    // few extents. The zeros are written all the same: an extent that is merely allocated would
    // cost a metadata write at the first real one. Only memory has no extents.
    #[cfg(target_os = "linux")]
    if len > 0 {
        let allocated = rustix::io::retry_on_intr(|| {
            rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), begin, len)
        });
        match allocated {
            Ok(()) if is_in_memory(file)? => return file.sync_all(),
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let chunk_bytes = len.min(ZERO_CHUNK_BYTES as u64) as usize;
    let zeros = AlignedBuf::zeroed(chunk_bytes.next_multiple_of(BLOCK_BYTES));
    let mut offset = begin;
    while offset < end {
        // Whole blocks, as the file may be open with `O_DIRECT`; what is too much is cut below.
        let left = (end - offset).min(zeros.len() as u64) as usize;
        let chunk = &zeros[..left.next_multiple_of(BLOCK_BYTES)];
        write_all(chunk, offset, BLOCK_BYTES, |d, o| file.write_at(d, o))?;
        offset += chunk.len() as u64;
    }
    if offset > end {
        file.set_len(end)?;
    }
    file.sync_all()
}
