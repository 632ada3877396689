//! Files that nothing refers to.
//!
//! # Theory of operation
//!
//! A crash between writing a file and committing the edit that lists it, or between the edit that
//! forgets it and its removal, leaves an orphan. Finding them is a set difference of names;
//! collecting them is two steps, each repeatable: move to `trash/`, make that durable, remove. A
//! move that turns out to be wrong can be undone by hand until the second step.
//!
//! # Invariants
//!
//! 1. Only names that this program gives are ever orphans; anything else is left alone.
//! 2. A file of a running task is none, listed or not.
//! 3. Nothing is collected by a follower or while the outcome of an edit is unknown: such an edit
//!    may list a file that the version in memory does not.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::current::{CURRENT, parse_file_name};
use super::{Manifest, WalFiles, parse_side_name, parse_slot_name};
use crate::error::{Error, Result};
use crate::vfs::Vfs;

/// Directory of the log's files, under the data directory.
const WAL: &str = "wal";
/// Directory that orphans pass through, under the data directory.
const TRASH: &str = "trash";
/// Ending of files that become visible by a rename.
const TEMPORARY: &str = ".tmp";

/// What stands in a node's directories besides the files in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// Files to remove, relative to the data directory.
    pub files: Vec<PathBuf>,
    /// Names that this program never gives, relative to the data directory. Left alone.
    pub foreign: Vec<PathBuf>,
}

/// Compare the names in the data directory and in `wal/` with the file list. `manifest` is the
/// number of the live manifest file, `running` are the paths (relative to the data directory) that
/// running tasks are writing.
pub fn find_wal_orphans(
    data: &[String],
    wal: &[String],
    manifest: u64,
    version: &WalFiles,
    running: &BTreeSet<PathBuf>,
) -> Orphans {
    let data = data
        .iter()
        .map(|name| (PathBuf::from(name), judge_data(name, manifest)));
    let wal = wal
        .iter()
        .map(|name| (Path::new(WAL).join(name), judge_wal(name, version)));
    let mut found = Orphans::default();
    for (path, judgement) in data.chain(wal) {
        match judgement {
            _ if running.contains(&path) => (),
            Judgement::InUse => (),
            Judgement::Orphan => found.files.push(path),
            Judgement::Foreign => found.foreign.push(path),
        }
    }
    found
}

#[derive(Clone, Copy)]
enum Judgement {
    InUse,
    Orphan,
    Foreign,
}

impl Judgement {
    fn in_use(yes: bool) -> Self {
        if yes { Self::InUse } else { Self::Orphan }
    }
}

fn judge_data(name: &str, manifest: u64) -> Judgement {
    if matches!(
        name,
        "LOCK"
            | "IDENTITY"
            | "WATERMARK"
            | "CHECKPOINT"
            | "BALLAST"
            | "FAULTS"
            | CURRENT
            | WAL
            | TRASH
    ) {
        return Judgement::InUse;
    }
    if let Some(number) = parse_file_name(name) {
        return Judgement::in_use(number == manifest);
    }
    match name.strip_suffix(TEMPORARY) {
        Some("IDENTITY" | "WATERMARK" | "FAULTS" | CURRENT) => Judgement::Orphan,
        _ => Judgement::Foreign,
    }
}

fn judge_wal(name: &str, version: &WalFiles) -> Judgement {
    if let Some(slot) = parse_slot_name(name) {
        return Judgement::in_use(version.slot_bytes(slot).is_some());
    }
    if let Some(number) = parse_side_name(name) {
        // The side file of an active segment is not listed yet: a new one will be written.
        let sealed = version
            .segment(number)
            .is_some_and(|segment| segment.sealed.is_some());
        return Judgement::in_use(sealed);
    }
    match name.strip_suffix(TEMPORARY) {
        Some(of) if parse_slot_name(of).is_some() || parse_side_name(of).is_some() => {
            Judgement::Orphan
        }
        _ => Judgement::Foreign,
    }
}

/// Find the orphans of a node's directory, for [`collect`].
///
/// To be called after a full normal recovery, by the holder of the lock; refused with
/// [`Error::Failed`] while the outcome of an edit is unknown.
pub fn wal_orphans(manifest: &Manifest<WalFiles>, running: &BTreeSet<PathBuf>) -> Result<Orphans> {
    manifest.check_settled()?;
    let (vfs, dir) = (manifest.vfs(), manifest.dir());
    let data = vfs.list(dir)?;
    let wal = if data.iter().any(|name| name == WAL) {
        vfs.list(&dir.join(WAL))?
    } else {
        vec![]
    };
    let live = manifest.file_number().unwrap_or_default();
    Ok(find_wal_orphans(
        &data,
        &wal,
        live,
        manifest.version(),
        running,
    ))
}

/// Move files, given relative to `dir`, to `dir/trash` and remove what is in there. Files that are
/// gone already are fine, so that a collection may be repeated after any crash.
///
/// The caller is the writer and knows the outcome of every edit; see [`wal_orphans`].
pub fn collect(vfs: &dyn Vfs, dir: &Path, files: &[PathBuf]) -> Result<()> {
    let trash = dir.join(TRASH);
    if !vfs.exists(&trash)? {
        if files.is_empty() {
            return Ok(());
        }
        vfs.create_dir_all(&trash)?;
        vfs.sync_dir(dir)?;
    }
    let mut touched = BTreeSet::new();
    for file in files {
        let from = dir.join(file);
        let Some(name) = from.file_name() else {
            continue;
        };
        // A file of the same name in there is trash of an earlier run.
        if found(vfs.rename(&from, &trash.join(name)))? {
            touched.extend(from.parent().map(Path::to_owned));
        }
    }
    if !touched.is_empty() {
        touched.insert(trash.clone());
        touched.iter().try_for_each(|dir| vfs.sync_dir(dir))?;
    }
    let mut removed = false;
    for name in vfs.list(&trash)? {
        removed |= found(vfs.remove(&trash.join(name)))?;
    }
    if removed {
        vfs.sync_dir(&trash)
    } else {
        Ok(())
    }
}

/// Whether the file was there.
fn found(result: Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
