//! Reading a tree that another process writes.
//!
//! # Theory of operation
//!
//! A follower reads the manifest and opens the runs. It has a memory level of its own, into which its owner applies what
//! the log has behind the flushed position: as with the writer's, what is in memory is above what is in runs. A refresh
//! takes over a newer version and lets go of what that has flushed.
//!
//! Nobody keeps the files from being removed. A run that is open stays readable, as long as there are not too
//! many of them; of the others a read says that they are missing, and a newer version has what they had.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::commit::Committer;
use super::recover::{check_begun, place};
use super::snapshot::Snapshot;
use super::tree::{Tree, TreeOptions};
use super::version::TreeVersion;
use super::view::{Place, State, View};
use crate::error::{Error, Result};
use crate::manifest::{Follower, Identity, Manifest};
use crate::table::memory::Level;
use crate::table::run::{Run, RunCache};
use crate::vfs::Vfs;

/// Merges that may overtake one attempt to read: each takes the writer several syncs.
const ATTEMPTS: usize = 64;

/// A tree that another process may be writing. Changes nothing on disk, and sees what is flushed and what was applied to it.
pub struct TreeFollower {
    place: Place,
    manifest: Follower<TreeVersion>,
    tree: Arc<Tree>,
}

impl TreeFollower {
    /// Open a tree for reading. Of the options only the bound of the memory level counts.
    ///
    /// # Errors
    /// [`Error::NotFound`] where there is none; [`Error::Missing`] where a file of it is lost; those of reading.
    pub fn open(
        vfs: &Arc<dyn Vfs>,
        dir: &Path,
        identity: Identity,
        options: TreeOptions,
        cache: &Arc<RunCache>,
    ) -> Result<Self> {
        let place = Place {
            is_followed: true,
            ..place(vfs, dir, identity, cache)
        };
        let mut manifest = Manifest::open_read_only(Arc::clone(vfs), dir, identity)?;
        let view = open_view(&place, &mut manifest, BTreeMap::new())?;
        let tree = Tree::assemble(place.clone(), options, Committer::absent(), view);
        // Nothing is written for it.
        tree.abandon();
        Ok(Self {
            place,
            manifest,
            tree,
        })
    }

    /// The tree, to apply the log to and to read. Nothing else can be done with it.
    pub(in crate::table) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// See what was flushed and merged meanwhile; whether anything was. On an error it stays where it
    /// was. Nothing may be applied meanwhile.
    pub fn refresh(&mut self) -> Result<bool> {
        let state = self.tree.state();
        let refreshed = self.manifest.refresh().map_err(|error| match error {
            // It was there.
            Error::NotFound { what } => Error::Missing {
                path: self.place.dir.to_path_buf(),
                reason: format!("{what} not found"),
            },
            other => other,
        });
        if !refreshed? && Arc::ptr_eq(self.manifest.version(), &state.view.version) {
            return Ok(false);
        }
        let view = open_view(&self.place, &mut self.manifest, state.view.runs.clone())?;
        let flushed = view.version.flushed();
        // An edit that was seen and then lost, with its sync, may be gone again: what it had flushed is in the log.
        let is_back = flushed < state.view.version.flushed();
        let (active, applied) = if is_back {
            (Level::default(), flushed)
        } else {
            let active = state.active.above(flushed)?;
            (active, state.applied.max(flushed))
        };
        self.tree.publish(|_| State {
            view: Arc::new(view),
            active,
            sealed: None,
            applied,
        });
        Ok(true)
    }

    /// The tree as of the last refresh, and of what was applied. The writer removes files that it has merged, so that reading
    /// may fail with a missing file: see [`TreeFollower::read`].
    pub fn snapshot(&self) -> Snapshot {
        self.tree.snapshot()
    }

    /// Read by a snapshot, and again by a newer one where a file was removed meanwhile.
    pub fn read<T>(&mut self, mut read: impl FnMut(&Snapshot) -> Result<T>) -> Result<T> {
        for _ in 0..ATTEMPTS {
            match read(&self.snapshot()) {
                Err(error) if is_missing(&error) && self.refresh()? => (),
                result => return result,
            }
        }
        Err(overtaken(&self.place.dir))
    }
}

fn overtaken(dir: &Path) -> Error {
    Error::Missing {
        path: dir.to_owned(),
        reason: format!("its runs were replaced {ATTEMPTS} times while they were opened"),
    }
}

/// Whether an error may be of a file that was removed.
pub(in crate::table) fn is_missing(error: &Error) -> bool {
    match error {
        Error::Missing { .. } => true,
        Error::Io { source, .. } => source.kind() == ErrorKind::NotFound,
        _ => false,
    }
}

/// Open the newest version, with the runs that are `open` already.
fn open_view(
    place: &Place,
    manifest: &mut Follower<TreeVersion>,
    mut open: BTreeMap<u64, Arc<Run>>,
) -> Result<View> {
    for _ in 0..ATTEMPTS {
        let version = Arc::clone(manifest.version());
        check_begun(&place.dir, &version)?;
        match View::open(place, version, &open) {
            Ok(view) => return Ok(view),
            // The writer may have merged it: then the manifest says so by now.
            Err(error) if is_missing(&error) => {
                if !manifest.refresh()? {
                    return Err(error);
                }
                open.retain(|number, _| manifest.version().runs().contains_key(number));
            }
            Err(error) => return Err(error),
        }
    }
    Err(overtaken(&place.dir))
}
