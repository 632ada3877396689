//! Manifests: `CURRENT` and the file it names, through [`Manifest::open`] and
//! [`Manifest::open_read_only`].
//!
//! Accepted means that it opens for writing. Then the reader sees the same version before and
//! after, the file that the open wrote gives that version again, and a commit on top of it is
//! there after one more open.

use std::path::Path;
use std::sync::Arc;

use braidlog_core::error::Error;
use braidlog_core::manifest::{Manifest, Options, WalFiles, WalOperation};
use braidlog_core::vfs::{MemoryVfs, Vfs};

use super::manifest_bytes;
use super::manifest_make::{DIR, identity, manifest, mount};
use crate::input::Input;
use crate::mutate::damage;
use crate::rng::Rng;
use crate::target::{Broken, Target, Verdict, hold};

/// The target.
pub struct ManifestFiles;

impl Target for ManifestFiles {
    fn name(&self) -> &'static str {
        "manifest"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        manifest(rng).unwrap_or_default()
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        if rng.one_in(24) {
            return rename(input, rng);
        }
        if input.files.is_empty() {
            return;
        }
        let at = rng.below(input.files.len());
        let (name, bytes) = &mut input.files[at];
        let others = other.files.iter().filter(|(name, _)| name != "CURRENT");
        let foreign = others.map(|(_, bytes)| bytes.as_slice()).next();
        if name != "CURRENT" {
            manifest_bytes::mutate(bytes, foreign.unwrap_or_default(), rng);
        } else if rng.one_in(4) {
            damage(bytes, &[], other.file("CURRENT").unwrap_or_default(), rng);
        }
    }

    fn reseal(&self, input: &mut Input, rng: &mut Rng) {
        for (name, bytes) in &mut input.files {
            if name != "CURRENT" {
                manifest_bytes::reseal(bytes, rng);
            }
        }
    }

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let vfs = mount(input).map_err(|error| format!("mount: {error}"))?;
        let before = read_only(&vfs)?;
        let Ok(mut manifest) = open(&vfs)? else {
            return Ok(Verdict::Refused);
        };
        let version = Arc::clone(manifest.version());
        hold(before.as_deref() == Some(&*version), || {
            format!("a writer reads {version:?}, a reader {before:?}")
        })?;
        let after = read_only(&vfs)?;
        hold(after.as_deref() == Some(&*version), || {
            format!("a snapshot of {version:?} reads as {after:?}")
        })?;
        let slot = version.next_slot();
        let edit = [WalOperation::AddSlot { slot, bytes: 1 }];
        // The numbers of slots and of edits may be used up.
        let committed = manifest.commit(&edit).is_ok();
        let expected = Arc::clone(manifest.version());
        hold(committed == (expected != version), || {
            "a refused edit changed the version".into()
        })?;
        drop(manifest);
        if let Ok(again) = open(&vfs)? {
            hold(*again.version() == expected, || {
                format!("{:?} was committed, {:?} opened", expected, again.version())
            })?;
        } else {
            // Another snapshot takes numbers too.
            hold(!committed, || "refused after a commit".into())?;
        }
        Ok(Verdict::Accepted)
    }
}

/// Give a file another number, its name along.
fn rename(input: &mut Input, rng: &mut Rng) {
    let number = rng.hurtful(7, 100);
    for (name, bytes) in &mut input.files {
        if name == "CURRENT" {
            *bytes = braidlog_core::manifest::current::encode_current(number);
        } else {
            *name = braidlog_core::manifest::current::file_name(number);
            if let Some(field) = bytes.get_mut(40..48) {
                field.copy_from_slice(&number.to_le_bytes());
            }
        }
    }
}

fn read_only(vfs: &MemoryVfs) -> Result<Option<Arc<WalFiles>>, Broken> {
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    match Manifest::open_read_only(shared, Path::new(DIR), identity()) {
        Ok(follower) => Ok(Some(Arc::clone(follower.version()))),
        Err(error) => proper(&error).map(|()| None),
    }
}

type Opened = Result<Manifest<WalFiles>, Error>;

fn open(vfs: &MemoryVfs) -> Result<Opened, Broken> {
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    match Manifest::open(shared, Path::new(DIR), identity(), Options::default()) {
        Ok((manifest, report)) => {
            let contradiction = report.clean_close && report.dropped.is_some();
            hold(!contradiction, || format!("{report:?}"))?;
            Ok(Ok(manifest))
        }
        Err(error) => proper(&error).map(|()| Err(error)),
    }
}

/// Refusals say what to do; an I/O error would mean that the file system was to blame.
fn proper(error: &Error) -> Result<(), Broken> {
    let proper = !matches!(
        error,
        Error::Io { .. } | Error::Malformed { .. } | Error::InvalidArgument(_)
    );
    hold(proper, || format!("refused with {error:?}"))
}
