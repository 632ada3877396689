//! Reading a tree that another process writes.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::recover::{check_begun, place};
use super::snapshot::Snapshot;
use super::version::TreeVersion;
use super::view::{Place, State, View};
use crate::error::{Error, Result};
use crate::manifest::{Follower, Identity, Manifest};
use crate::table::run::RunCache;
use crate::vfs::Vfs;

/// Merges that may overtake one attempt to read: each takes the writer several syncs.
const ATTEMPTS: usize = 64;

/// A tree that another process may be writing. Changes nothing on disk, and sees what is flushed.
pub struct TreeFollower {
    place: Place,
    manifest: Follower<TreeVersion>,
    state: Arc<State>,
}

impl TreeFollower {
    /// Open a tree for reading.
    pub fn open(
        vfs: &Arc<dyn Vfs>,
        dir: &Path,
        identity: Identity,
        cache: &Arc<RunCache>,
    ) -> Result<Self> {
        let place = place(vfs, dir, identity, cache);
        let mut manifest = Manifest::open_read_only(Arc::clone(vfs), dir, identity)?;
        let state = open_state(&place, &mut manifest, None)?;
        Ok(Self {
            place,
            manifest,
            state,
        })
    }

    /// See what was flushed and merged meanwhile; whether anything was. On an error it stays where it
    /// was.
    pub fn refresh(&mut self) -> Result<bool> {
        if !self.manifest.refresh()?
            && Arc::ptr_eq(self.manifest.version(), &self.state.view.version)
        {
            return Ok(false);
        }
        self.state = open_state(&self.place, &mut self.manifest, Some(&self.state))?;
        Ok(true)
    }

    /// The tree as of the last refresh. The writer removes files that it has merged, so that reading
    /// may fail with a missing file: see [`TreeFollower::read`].
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(Arc::clone(&self.state))
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

fn is_missing(error: &Error) -> bool {
    match error {
        Error::Missing { .. } => true,
        Error::Io { source, .. } => source.kind() == ErrorKind::NotFound,
        _ => false,
    }
}

fn open_state(
    place: &Place,
    manifest: &mut Follower<TreeVersion>,
    before: Option<&Arc<State>>,
) -> Result<Arc<State>> {
    let mut open = before
        .map(|state| state.view.runs.clone())
        .unwrap_or_default();
    for _ in 0..ATTEMPTS {
        let version = Arc::clone(manifest.version());
        check_begun(&place.dir, &version)?;
        match View::open(place, version, &open) {
            Ok(view) => return Ok(Arc::new(State::of(view))),
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
