//! Saves what can be saved of a damaged node directory, into a new one.
//!
//! # Theory of operation
//!
//! All valid frames are read, also those behind damage, and also where the manifest, `CURRENT` or the
//! identity is lost: a segment's header block names it. Each log then has stretches of records with
//! holes between them. All are kept, and the holes are declared: lost records keep their positions, so that
//! these stay dense. On demand one stretch alone is kept, and so is one of a log with explicit commits. The
//! [`Plan`] says what that loses.
//!
//! The new directory begins with a preamble in which each log is empty at the first kept position, with
//! the cursors and with what is known of producers below it. Then the batches are appended at their own
//! positions and epochs, byte for byte except where a stretch begins or ends inside one. The identity
//! is written last: until then the new directory cannot be opened.
//!
//! # Invariants
//!
//! - The source is only read.
//! - A record that is kept keeps its position, its epoch and its producer's sequence.
//! - Success is reported only after the new directory was verified.

mod collect;
pub(crate) mod create;
mod plan;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::vfs::Vfs;
use crate::wal::recover::directory::LOCK;
use crate::wal::tools::inspect::{SALVAGED, Survey};
use crate::wal::tools::verify::{Progress, Report, verify};

pub use plan::{Damage, Keep, LogPlan, Loss, Plan};

use collect::Collected;

/// How to make the new directory.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which stretch of a log with holes to keep.
    pub keep: Keep,
    /// Random number for identity and salts.
    pub entropy: u64,
    /// What the lock file says about the holder.
    pub holder: String,
}

/// What [`SALVAGED`] shall hold.
pub type Note<'a> = &'a dyn Fn(&Plan) -> Result<Vec<u8>>;

/// What was done.
#[derive(Clone, Debug)]
pub struct Salvaged {
    /// What was kept and lost.
    pub plan: Plan,
    /// The verification of the new directory: it has no damage.
    pub report: Report,
}

/// What a salvage would keep and lose. Reads everything, changes nothing.
pub fn plan(vfs: &Arc<dyn Vfs>, dir: &Path, keep: Keep, progress: Progress<'_>) -> Result<Plan> {
    let survey = look(vfs, dir)?;
    let collected = Collected::read(vfs, &survey, progress)?;
    Ok(plan::decide(&survey, &collected, keep))
}

/// Make a new directory at `target` of everything that can be saved of `dir`.
pub fn salvage(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    target: &Path,
    options: &Options,
    note: Note<'_>,
    progress: Progress<'_>,
) -> Result<Salvaged> {
    let survey = look(vfs, dir)?;
    create::refuse_existing(&**vfs, target)?;
    let read = &mut |done: u64, total: u64| progress(done, 3 * total);
    let collected = Collected::read(vfs, &survey, read)?;
    let plan = plan::decide(&survey, &collected, options.keep);
    let total = collected.bytes;
    let note = note(&plan)?;
    let holes = plan.logs.iter().any(|log| !log.holes.is_empty());
    let identity = create::identity(&survey, holes, options.entropy)?;
    let state = write::first_state(&collected, &plan);
    let holder = create::Holder::take(&**vfs, target, &options.holder, options.entropy)?;
    let room = create::Room {
        segments: survey.laps.len() as u64,
        bound: survey.files.as_ref().ok().and_then(|files| files.bound()),
    };
    let store = create::store(vfs, target, &identity, state, holder, &room)?;
    let written = &mut |done: u64| progress(total + done.min(total), 3 * total);
    write::records(vfs, &survey, &collected, &plan, &store, written)?;
    store.close()?;
    drop(store);
    vfs.replace(&target.join(SALVAGED), &note)?;
    create::finish(&**vfs, target, &identity)?;
    let checked = &mut |done: u64, all: u64| {
        let part = (total * done).checked_div(all).unwrap_or(total);
        progress(2 * total + part, 3 * total)
    };
    let report = verify(vfs, target, checked)?;
    if let Some(finding) = report.damage().next() {
        let reason = format!(
            "the new directory is damaged, so do not use it: {}",
            finding.what
        );
        return Err(Error::corrupt(
            finding.path.clone(),
            finding.offset.unwrap_or(0),
            reason,
        ));
    }
    Ok(Salvaged { plan, report })
}

fn look(vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<Survey> {
    let survey = Survey::take(vfs, dir)?;
    if survey.alive {
        let path = dir.join(LOCK);
        let holder = vfs.read(&path, 4096).unwrap_or_default();
        let holder = String::from_utf8_lossy(&holder).trim().to_owned();
        return Err(Error::Locked { path, holder });
    }
    if survey.laps.is_empty() && survey.unknown_slots.is_empty() {
        let what = format!("a segment in {}", PathBuf::from(dir).display());
        return Err(Error::NotFound { what });
    }
    Ok(survey)
}
