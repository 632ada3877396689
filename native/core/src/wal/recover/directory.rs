//! What a node directory is, and how it comes into being.
//!
//! Creating a directory is a sequence that may be cut anywhere: `IDENTITY` first, then the manifest,
//! then files. Until the manifest exists nothing was ever promised, so an unfinished creation starts over;
//! but a directory that holds log files without a manifest or an identity lost them, and is refused.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::manifest::{self, Identity, Manifest, WalFiles};
use crate::vfs::Vfs;
use crate::wal::format::identity::{IDENTITY, NodeIdentity};
use crate::wal::format::salt::mix;
use crate::wal::format::watermark::{WATERMARK, Watermark};
use crate::wal::recover::evidence::check_newest;
use crate::wal::segments::checkpoint::CHECKPOINT;
use crate::wal::segments::segment::{open_slot, slot_path};
use crate::wal::write::options::Options;

/// What a restore leaves in a directory until it is whole.
pub const RESTORING: &str = "RESTORING";

/// Name of the lock file.
pub const LOCK: &str = "LOCK";

pub(crate) enum Found {
    Node(NodeIdentity),
    Unfinished,
}

/// Whose directory this is, or that its creation did not get far enough to hold anything.
pub(super) fn identify(vfs: &dyn Vfs, dir: &Path) -> Result<Found> {
    if let Some(identity) = NodeIdentity::read(vfs, dir)? {
        return Ok(Found::Node(identity));
    }
    let names = check_no_remains(vfs, dir)?;
    // The lock comes before the identity, and a kill may leave the identity half made.
    let harmless = |name: &String| name == LOCK || name == "IDENTITY.tmp";
    if names.iter().all(harmless) {
        return Ok(Found::Unfinished);
    }
    Err(Error::Foreign {
        path: dir.into(),
        what: "node directory, and it is not empty",
    })
}

/// Forget a restore that was whole when it was interrupted: another one would begin with removing its files.
pub(super) fn end_restore(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let path = dir.join(RESTORING);
    if vfs.exists(&path)? {
        vfs.remove(&path)?;
        vfs.sync_dir(dir)?;
    }
    Ok(())
}

/// Refuse a directory that has no identity and other files of a node; returns the names in it.
pub(super) fn check_no_remains(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<String>> {
    if !vfs.exists(dir)? {
        return Ok(Vec::new());
    }
    let names = vfs.list(dir)?;
    let is_ours = |name: &String| {
        name.starts_with("MANIFEST-") || ["CURRENT", "WATERMARK", "wal"].contains(&name.as_str())
    };
    if names.iter().any(|name| name == RESTORING) {
        let reason = "a restore into this directory did not finish; run it again".into();
        return Err(Error::Missing {
            path: dir.join(IDENTITY),
            reason,
        });
    }
    if names.iter().any(is_ours) {
        let reason = "other files of the node are there; restore it from a copy".into();
        return Err(Error::Missing {
            path: dir.join(IDENTITY),
            reason,
        });
    }
    Ok(names)
}

/// Make the entries durable that lead to a new node directory: without them a crash loses all of it.
pub(crate) fn sync_parents(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    for (above, parent) in dir.ancestors().skip(1).enumerate() {
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        match vfs.sync_dir(parent) {
            // A directory above that this user must not open is not one that this call has made.
            Err(Error::Io { source, .. })
                if above > 0 && source.kind() == ErrorKind::PermissionDenied => {}
            other => other?,
        }
    }
    Ok(())
}

pub(super) fn create_identity(
    vfs: &dyn Vfs,
    dir: &Path,
    options: &Options,
) -> Result<NodeIdentity> {
    let random = |n: u64| u128::from(mix(options.entropy.wrapping_add(n)));
    let identity = NodeIdentity {
        node: random(1) << 64 | random(2),
        wal: random(3) << 64 | random(4),
        segment_bytes: options.segment_bytes as u32,
        holes: false,
        tables: false,
    };
    vfs.replace(&dir.join(IDENTITY), &identity.encode())?;
    Ok(identity)
}

pub(super) fn open_manifest(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    identity: &NodeIdentity,
) -> Result<(Manifest<WalFiles>, Option<manifest::OpenReport>)> {
    let who = Identity {
        object: identity.wal,
        node: identity.node,
    };
    let options = manifest::Options::default();
    if vfs.exists(&dir.join("CURRENT"))? {
        // All checks come before `resume`, which begins a new manifest file: an open that refuses changes nothing.
        let listed = Manifest::<WalFiles>::open_read_only(Arc::clone(vfs), dir, who)?;
        check_slots(&**vfs, dir, listed.version(), identity.segment_bytes)?;
        if let Some(newest) = listed.version().newest() {
            let bytes = u64::from(identity.segment_bytes);
            let filled = listed.version().filled_bytes(newest.slot);
            let path = slot_path(dir, newest.slot);
            open_slot(&**vfs, &path, bytes, filled.unwrap_or(bytes))?;
        }
        if let Some(mark) = Watermark::read(&**vfs, dir)? {
            check_newest(dir, listed.version(), mark)?;
        }
        // Slots are made after their directory is durable. Without any, a kill may have come before that.
        let made = listed.version().slots().next().is_some();
        let (manifest, report) = Manifest::resume(Arc::clone(vfs), dir, who, options)?;
        if !made {
            make_dirs(&**vfs, dir)?;
        }
        return Ok((manifest, Some(report)));
    }
    let wal = dir.join("wal");
    // Segments are made after the manifest, so there was one.
    if vfs.exists(&wal)? && !vfs.list(&wal)?.is_empty() {
        let reason =
            "segment files are there; restore it from a copy or run `braidlog repair`".into();
        return Err(Error::Missing {
            path: dir.join("CURRENT"),
            reason,
        });
    }
    for name in [WATERMARK, CHECKPOINT] {
        // These are written after the manifest, so there was one.
        if vfs.exists(&dir.join(name))? {
            let reason = format!("{name} is there, so the log was in use; restore it from a copy");
            return Err(Error::Missing {
                path: dir.join("CURRENT"),
                reason,
            });
        }
    }
    let manifest = Manifest::create(Arc::clone(vfs), dir, who, options)?;
    make_dirs(&**vfs, dir)?;
    Ok((manifest, None))
}

/// The slot of every listed segment is there. A free one holds nothing and is made anew when needed, but not
/// their directory: it may be on a disk that is not mounted.
fn check_slots(vfs: &dyn Vfs, dir: &Path, files: &WalFiles, segment_bytes: u32) -> Result<()> {
    let wal = dir.join("wal");
    let there = vfs.exists(&wal)?;
    let present: BTreeSet<String> = if there {
        vfs.list(&wal)?.into_iter().collect()
    } else {
        BTreeSet::new()
    };
    let free: BTreeSet<u32> = files.free_slots().collect();
    for (slot, bytes) in files.slots() {
        let path = slot_path(dir, slot);
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !present.contains(&name) && !free.contains(&slot) {
            let reason =
                "the manifest lists this segment file; restore it or run `braidlog repair`";
            return Err(Error::Missing {
                path,
                reason: reason.into(),
            });
        }
        if bytes != u64::from(segment_bytes) {
            return Err(Error::corrupt(
                path,
                0,
                "slot length differs from the node's segment length",
            ));
        }
    }
    if !there && !free.is_empty() {
        let reason =
            "the manifest lists files in this directory; restore it or run `braidlog repair`";
        return Err(Error::Missing {
            path: wal,
            reason: reason.into(),
        });
    }
    Ok(())
}

/// Whether the file system is there at all, before anything is created.
pub(crate) fn make_dirs(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    vfs.create_dir_all(&dir.join("wal"))?;
    vfs.sync_dir(dir)
}
