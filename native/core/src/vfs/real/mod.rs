//! The real disk, through std and rustix.

#![expect(
    clippy::disallowed_types,
    reason = "the one place where files are those of the system"
)]

mod file;
mod lock;
mod open;
mod spares;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use super::{Access, SyncMethod, Vfs, VfsFile, VfsLock};
use crate::error::{Error, Result};
use file::RealFile;
use lock::RealLock;

/// Most of a lock file that is shown as its holder's note.
const NOTE_BYTES_MAX: u64 = 4096;

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealVfs;

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
        let file =
            spares::open(|| options.open(path)).map_err(|source| Error::io(op, path, source))?;
        Ok(Arc::new(RealFile::new(file, path, SyncMethod::Fdatasync)))
    }

    fn open_durable(&self, path: &Path, method: SyncMethod) -> Result<Arc<dyn VfsFile>> {
        let error = |source| Error::io("open", path, source);
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = match method {
            SyncMethod::Fdatasync => None,
            SyncMethod::Dsync => Some(spares::open(|| options.open(path)).map_err(error)?),
            SyncMethod::Direct => {
                spares::open(|| open::open_direct(&mut options.clone(), path)).map_err(error)?
            }
        };
        if let Some(file) = file.filter(file::knows_dsync) {
            return Ok(Arc::new(RealFile::new(file, path, method)));
        }
        let file = spares::open(|| options.open(path)).map_err(error)?;
        Ok(Arc::new(RealFile::new(file, path, SyncMethod::Fdatasync)))
    }

    fn create_zeroed(&self, path: &Path, len: u64) -> Result<()> {
        let error = |source| Error::io("create", path, source);
        let _refill = spares::Refill;
        let file = spares::open(|| open::create_uncached(path)).map_err(error)?;
        open::fill_with_zeros(&file, 0, len).map_err(|source| {
            // The first failure is the one to report; what is left behind is only removed.
            let _ = fs::remove_file(path);
            error(source)
        })
    }

    fn extend_zeroed(&self, path: &Path, begin: u64, end: u64) -> Result<()> {
        let error = |source| Error::io("extend", path, source);
        let _refill = spares::Refill;
        let file = spares::open(|| open::open_uncached(path)).map_err(error)?;
        let filled = file
            .set_len(begin)
            .and_then(|()| open::fill_with_zeros(&file, begin, end));
        filled.map_err(|source| {
            // As above: a full disk gets back what was taken of it.
            let _ = file.set_len(begin);
            error(source)
        })
    }

    fn read(&self, path: &Path, max: u64) -> Result<Vec<u8>> {
        let error = |source| Error::io("read", path, source);
        let _refill = spares::Refill;
        let file = spares::open(|| File::open(path)).map_err(error)?;
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
        let _refill = spares::Refill;
        for entry in spares::open(|| fs::read_dir(openable(dir))).map_err(error)? {
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

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        fs::remove_dir(dir).map_err(|source| Error::io("remove", dir, source))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let _refill = spares::Refill;
        spares::open(|| File::open(openable(dir)))
            .and_then(|file| file.sync_all())
            .map_err(|source| Error::io("sync", dir, source))
    }

    fn lock(&self, path: &Path, note: &str) -> Result<Box<dyn VfsLock>> {
        let error = |source| Error::io("lock", path, source);
        let mut options = OpenOptions::new();
        // Not truncated on open: the note belongs to the holder until we are the holder.
        options.read(true).write(true).create(true).truncate(false);
        let mut file = spares::open(|| options.open(path)).map_err(error)?;
        if !lock::lock_exclusive(&file).map_err(error)? {
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
        // Cut only what is left of a longer one: a file that is emptied and written anew costs a flush.
        let note = note.as_bytes();
        file.write_all(note)
            .and_then(|()| file.metadata())
            .and_then(|found| match note.len() as u64 {
                len if found.len() > len => file.set_len(len),
                _ => Ok(()),
            })
            .map_err(error)?;
        Ok(Box::new(RealLock::new(file)))
    }

    fn is_locked(&self, path: &Path) -> Result<bool> {
        let error = |source| Error::io("lock", path, source);
        let file = match spares::open(|| File::open(path)) {
            Ok(file) => file,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(error(source)),
        };
        // A shared lock, for as long as `file` lives: it never takes the lock from a holder, and
        // `lock_exclusive` tells it from one.
        Ok(!lock::lock_shared(&file).map_err(error)?)
    }
}
