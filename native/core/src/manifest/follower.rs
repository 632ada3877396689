//! The reader's side of a manifest, in a process that does not write it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::codec::{self, Field};
use super::current::{CURRENT, file_name, named_but_missing, read_current};
use super::replay::Replay;
use super::{Identity, Version};
use crate::error::{Error, Result};
use crate::limits::MANIFEST_FILE_BYTES_MAX;
use crate::vfs::{Access, Vfs, VfsFile};

/// Rotations that may overtake one attempt to open. Each takes the writer several syncs, the
/// follower three calls, so that more mean something else is wrong.
const OPEN_ATTEMPTS: usize = 64;

/// A manifest that another process may be writing. Changes nothing on disk.
///
/// It sees every committed edit after the next [`Follower::refresh`]. It may also see an edit
/// whose sync has not returned yet, and which goes away again if that sync fails or the machine
/// stops: a version may thus step back by one edit, in that case only.
pub struct Follower<V> {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    identity: Identity,
    version: Arc<V>,
    view: View<V>,
}

/// One file and how far it was read.
struct View<V> {
    number: u64,
    file: Arc<dyn VfsFile>,
    replay: Replay<V>,
}

impl<V: Version> Follower<V> {
    pub(super) fn open(vfs: Arc<dyn Vfs>, dir: &Path, identity: Identity) -> Result<Self> {
        let view = open_view::<V>(vfs.as_ref(), dir, &identity)?;
        let version = Arc::new(view.replay.version.clone());
        Ok(Self {
            vfs,
            dir: dir.to_owned(),
            identity,
            version,
            view,
        })
    }

    /// The version as of the last refresh.
    pub fn version(&self) -> &Arc<V> {
        &self.version
    }

    /// The version as of the last refresh, whose it is, and what newer builds have added.
    pub(super) fn shown(&self) -> (V, Identity, Vec<Field>) {
        let kept = self.view.replay.kept.clone();
        (V::clone(&self.version), self.identity, kept)
    }

    /// Number of the last edit seen.
    pub fn last_edit(&self) -> u64 {
        self.view.replay.next_edit - 1
    }

    /// Whether the writer had closed the manifest as of the last refresh.
    pub fn closed(&self) -> bool {
        self.view.replay.closed
    }

    /// Read what was written meanwhile; whether anything was. On an error the version stays.
    pub fn refresh(&mut self) -> Result<bool> {
        let number = read_current(self.vfs.as_ref(), &self.dir)?;
        if number == self.view.number {
            if !self.view.advance(&self.dir)? {
                return Ok(false);
            }
        } else {
            self.view = open_view(self.vfs.as_ref(), &self.dir, &self.identity)?;
        }
        self.version = Arc::new(self.view.replay.version.clone());
        Ok(true)
    }
}

impl<V: Version> View<V> {
    /// Apply the edits that were appended; whether there were any. What stands behind them is a
    /// write in progress.
    fn advance(&mut self, dir: &Path) -> Result<bool> {
        let path = dir.join(file_name(self.number));
        let end = self.replay.end;
        let bytes = read_from(self.file.as_ref(), &path, end)?;
        if bytes.is_empty() {
            return Ok(false);
        }
        let mut replay = self.replay.clone();
        replay.feed(&path, &bytes)?;
        self.replay = replay;
        Ok(self.replay.end != end)
    }
}

/// Open the file that `CURRENT` names. The writer may remove it before it is opened; then
/// `CURRENT` names another one by now.
fn open_view<V: Version>(vfs: &dyn Vfs, dir: &Path, identity: &Identity) -> Result<View<V>> {
    let mut number = read_current(vfs, dir)?;
    for _ in 0..OPEN_ATTEMPTS {
        let path = dir.join(file_name(number));
        match vfs.open(&path, Access::Read) {
            Ok(file) => {
                let bytes = read_from(file.as_ref(), &path, 0)?;
                let mut replay = Replay::begin(&path, &bytes, number, identity)?;
                replay.feed(&path, &bytes[codec::HEADER_BYTES..])?;
                return Ok(View {
                    number,
                    file,
                    replay,
                });
            }
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                let again = read_current(vfs, dir)?;
                if again == number {
                    return Err(named_but_missing(path));
                }
                number = again;
            }
            Err(error) => return Err(error),
        }
    }
    let reason = format!("replaced {OPEN_ATTEMPTS} times while it was opened");
    Err(Error::Missing {
        path: dir.join(CURRENT),
        reason,
    })
}

/// The bytes from `begin` to the end, as of the length now: what is appended later is not looked
/// at, so an incomplete edit has nothing behind it.
fn read_from(file: &dyn VfsFile, path: &Path, begin: u64) -> Result<Vec<u8>> {
    let size = file.len()?;
    let max = MANIFEST_FILE_BYTES_MAX;
    if size > max {
        return Err(Error::TooLarge {
            what: "manifest file",
            size,
            max,
        });
    }
    let Some(left) = size.checked_sub(begin) else {
        return Err(Error::corrupt(path, size, "shorter than it was"));
    };
    let mut bytes = vec![0; left as usize];
    file.read_exact_at(&mut bytes, begin)?;
    Ok(bytes)
}
