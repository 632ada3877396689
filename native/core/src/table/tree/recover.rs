//! Creating and opening a tree.
//!
//! # Theory of operation
//!
//! Open reads the manifest, then footer, index and filter of each listed run. A run that is missing,
//! short, damaged or of another tree is an error that names it: what it had is in no other place
//! but, perhaps, the log. Only when all is well what no edit lists is removed, by way of `trash/`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::commit::Committer;
use super::operation::TreeOperation;
use super::tree::{Tree, TreeOptions};
use super::version::TreeVersion;
use super::view::{Place, View};
use crate::error::{Error, Result};
use crate::manifest::current::{CURRENT, parse_file_name as parse_manifest_name};
use crate::manifest::{Identity, Manifest, OpenReport, Orphans, collect};
use crate::table::run::{RunCache, parse_file_name};
use crate::vfs::Vfs;

const TEMPORARY: &str = ".tmp";
const TRASH: &str = "trash";
const LOCK: &str = "LOCK";

/// What an open found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeReport {
    /// Of the manifest.
    pub manifest: OpenReport,
    /// Listed runs.
    pub runs: usize,
    /// What was removed, and what was left alone.
    pub orphans: Orphans,
}

impl Tree {
    /// Create an empty tree that follows a log from behind the position `flushed`. A creation that was cut
    /// short may be repeated.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] where there is a tree; [`Error::Missing`] where there was one.
    pub fn create(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        identity: Identity,
        flushed: u64,
        options: TreeOptions,
        cache: &Arc<RunCache>,
    ) -> Result<Arc<Self>> {
        vfs.create_dir_all(dir)?;
        vfs.sync_dir(dir.parent().unwrap_or(Path::new(".")))?;
        let run = vfs
            .list(dir)?
            .into_iter()
            .find(|name| parse_file_name(name).is_some());
        let has_current = vfs.exists(&dir.join(CURRENT))?;
        if let (Some(run), false) = (run, has_current) {
            return Err(Error::Missing {
                path: dir.join(CURRENT),
                reason: format!("{run} is there, so the directory was in use"),
            });
        }
        let place = place(&vfs, dir, identity, cache);
        let mut manifest =
            Manifest::<TreeVersion>::open_or_create(vfs, dir, identity, options.manifest)?;
        if manifest.version().has_begun() {
            let what = format!("tree in {}", dir.display());
            return Err(Error::AlreadyExists { what });
        }
        manifest.commit(&[TreeOperation::Begin { flushed }])?;
        let view = View::open(&place, Arc::clone(manifest.version()), &BTreeMap::new())?;
        Ok(Self::assemble(
            place,
            options,
            Committer::new(manifest),
            view,
        ))
    }

    /// Open a tree for writing.
    ///
    /// # Errors
    /// [`Error::NotFound`] where there never was one; [`Error::Missing`] where the manifest, or a run that
    /// it lists, is lost, or the creation did not finish; [`Error::WrongIdentity`],
    /// [`Error::Corruption`] and others for files that are not what they should be. Then no run is
    /// removed.
    pub fn open(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        identity: Identity,
        options: TreeOptions,
        cache: &Arc<RunCache>,
    ) -> Result<(Arc<Self>, TreeReport)> {
        let place = place(&vfs, dir, identity, cache);
        let (mut manifest, report) =
            Manifest::<TreeVersion>::open(vfs, dir, identity, options.manifest)?;
        check_begun(dir, manifest.version())?;
        let view = View::open(&place, Arc::clone(manifest.version()), &BTreeMap::new())?;
        let names = place.vfs.list(dir)?;
        let (orphans, below) = find_orphans(
            &names,
            manifest.file_number().unwrap_or_default(),
            manifest.version(),
        );
        // A number that was given must not be given again, although its run is removed now.
        if below > manifest.version().next_number() {
            manifest.commit(&[TreeOperation::Settle { below }])?;
        }
        collect(place.vfs.as_ref(), dir, &orphans.files)?;
        let view = View::new(Arc::clone(manifest.version()), view.runs);
        let report = TreeReport {
            manifest: report,
            runs: view.runs.len(),
            orphans,
        };
        let committer = Committer::new(manifest);
        Ok((Self::assemble(place, options, committer, view), report))
    }
}

pub(super) fn place(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    identity: Identity,
    cache: &Arc<RunCache>,
) -> Place {
    Place {
        vfs: Arc::clone(vfs),
        dir: dir.into(),
        identity,
        cache: Arc::clone(cache),
        is_followed: false,
    }
}

pub(super) fn check_begun(dir: &Path, version: &TreeVersion) -> Result<()> {
    if version.has_begun() {
        return Ok(());
    }
    Err(Error::Missing {
        path: dir.to_owned(),
        reason: "the creation of the tree did not finish".into(),
    })
}

/// The orphans among the names in a tree's directory, and the lowest number above all of its runs.
fn find_orphans(names: &[String], manifest: u64, version: &TreeVersion) -> (Orphans, u64) {
    let mut orphans = Orphans::default();
    let mut below = version.next_number();
    for name in names {
        let whole = name.strip_suffix(TEMPORARY);
        let run = parse_file_name(whole.unwrap_or(name));
        below = below.max(run.map_or(0, |number| number + 1));
        let is_orphan = match (run, whole) {
            (Some(_), Some(_)) => true,
            (Some(number), None) => !version.runs().contains_key(&number),
            (None, Some(of)) if of == CURRENT => true,
            (None, _) => match parse_manifest_name(name) {
                Some(number) => number != manifest,
                None if [CURRENT, LOCK, TRASH].contains(&name.as_str()) => false,
                None => {
                    orphans.foreign.push(PathBuf::from(name));
                    false
                }
            },
        };
        if is_orphan {
            orphans.files.push(PathBuf::from(name));
        }
    }
    (orphans, below)
}
