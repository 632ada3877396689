//! What the next open would find: identity, logs, watermark, lock, damage.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::SALVAGED;
use super::edits::edits;
use super::newest::newest_state;
use super::survey::{Ending, Survey};
use crate::error::Result;
use crate::manifest::{Orphans, find_wal_orphans};
use crate::vfs::Vfs;
use crate::wal::format::identity::NodeIdentity;
use crate::wal::format::state::State;
use crate::wal::format::stream::Stream;
use crate::wal::format::watermark::Watermark;
use crate::wal::recover::directory::LOCK;

/// Longest note or lock holder that is read.
const NOTE_BYTES_MAX: u64 = 16 << 20;

/// One log with its stream.
#[derive(Clone, Debug)]
pub struct LogCondition {
    /// Name.
    pub name: String,
    /// Id.
    pub id: u128,
    /// Creation time, microseconds since the epoch.
    pub created: i64,
    /// Options, opaque to the core.
    pub options: Vec<u8>,
    /// Number of its stream.
    pub number: u32,
    /// The stream.
    pub stream: Stream,
}

/// The condition of a directory.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Whose it is.
    pub identity: Option<NodeIdentity>,
    /// Logs by name.
    pub logs: Vec<LogCondition>,
    /// What the frames add up to: logs, and the tables that follow them.
    pub state: State,
    /// Segments in use.
    pub segments: u64,
    /// Newest segment and offset behind its last frame.
    pub end: Option<(u64, u32)>,
    /// The watermark file.
    pub watermark: Option<Watermark>,
    /// What the holder of the lock wrote, while it holds it.
    pub holder: Option<String>,
    /// What recovery would say, in a word: `in use`, `clean`, `not closed`, `torn tail`,
    /// `corruption`, `empty`.
    pub recovery: &'static str,
    /// Where and why, unless all is well.
    pub fault: Option<String>,
    /// What had to be guessed to show this.
    pub guesses: Vec<String>,
    /// The note that salvage left.
    pub salvaged: Option<String>,
    /// Files of this program that nothing names.
    pub orphans: Vec<PathBuf>,
    /// Files that this program never writes.
    pub foreign: Vec<PathBuf>,
}

/// Tell the condition of a directory; fails only if there is none.
pub fn condition(vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<Condition> {
    let survey = Survey::take(vfs, dir)?;
    let (recovery, fault, end) = diagnose(&**vfs, &survey);
    let fold = newest_state(vfs, &survey, end.map(|(_, end)| end))?;
    let Orphans { files, foreign } = strangers(&**vfs, &survey)?;
    Ok(Condition {
        identity: survey.identity.as_ref().ok().copied().flatten(),
        logs: logs(fold.state.clone()),
        state: fold.state,
        segments: survey.laps.len() as u64,
        end,
        watermark: survey.watermark,
        holder: survey.alive.then(|| holder(&**vfs, dir)),
        recovery,
        fault,
        guesses: fold.guesses.into_iter().collect(),
        salvaged: text(&**vfs, &dir.join(SALVAGED)),
        orphans: files,
        foreign,
    })
}

fn diagnose(vfs: &dyn Vfs, survey: &Survey) -> (&'static str, Option<String>, Option<(u64, u32)>) {
    let broken = |error: &dyn std::fmt::Display| ("corruption", Some(error.to_string()), None);
    match (&survey.identity, &survey.files) {
        (Err(error), _) | (_, Err(error)) => return broken(error),
        _ => {}
    }
    let Some(newest) = survey.newest() else {
        return ("empty", None, None);
    };
    let path = newest.path.display();
    let at = |end| Some((newest.number, end));
    match survey.ending(vfs) {
        Err(error) => broken(&error),
        Ok(None) => ("empty", None, None),
        Ok(Some((end, Ending::Corrupt { reason }))) => (
            "corruption",
            Some(format!("{path} at offset {end}: {reason}")),
            at(end),
        ),
        Ok(Some((end, _))) if survey.alive => ("in use", None, at(end)),
        Ok(Some((end, Ending::Closed))) => ("clean", None, at(end)),
        Ok(Some((end, Ending::Open))) => ("not closed", None, at(end)),
        Ok(Some((end, Ending::Torn { reason }))) => (
            "torn tail",
            Some(format!(
                "{path} at offset {end}: {reason}; what follows was never acknowledged, \
                 the next open cuts it"
            )),
            at(end),
        ),
    }
}

fn logs(state: State) -> Vec<LogCondition> {
    let State {
        logs, mut streams, ..
    } = state;
    let mut found: Vec<_> = logs
        .into_values()
        .filter_map(|log| {
            Some(LogCondition {
                name: log.log.name,
                id: log.log.id,
                created: log.log.created,
                options: log.log.options,
                number: log.stream,
                stream: streams.remove(&log.stream)?,
            })
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Files that are not in use.
pub fn strangers(vfs: &dyn Vfs, survey: &Survey) -> Result<Orphans> {
    let (Ok(files), Ok(edits)) = (&survey.files, edits(vfs, &survey.dir)) else {
        return Ok(Orphans::default());
    };
    let wal = survey.dir.join("wal");
    let inside = if vfs.exists(&wal)? {
        vfs.list(&wal)?
    } else {
        Vec::new()
    };
    let data = vfs.list(&survey.dir)?;
    let running = BTreeSet::new();
    let mut found = find_wal_orphans(&data, &inside, edits.file_number, files, &running);
    found.foreign.retain(|path| path != Path::new(SALVAGED));
    Ok(found)
}

fn holder(vfs: &dyn Vfs, dir: &Path) -> String {
    text(vfs, &dir.join(LOCK)).unwrap_or_default()
}

fn text(vfs: &dyn Vfs, path: &Path) -> Option<String> {
    if !vfs.exists(path).ok()? {
        return None;
    }
    let bytes = vfs.read(path, NOTE_BYTES_MAX).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}
