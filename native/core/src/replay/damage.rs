//! Bytes of a directory that cannot be read: what is left out, and where reading goes on.

use std::path::{Path, PathBuf};

use crate::error::Error;

/// A stretch of a file that was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// First byte that cannot be trusted.
    pub begin: u64,
    /// Where whole frames begin again, or the file ends; `None`: only the beginning is known.
    pub end: Option<u64>,
    /// What the check found.
    pub reason: String,
}

impl Damage {
    /// The damage that an error names; what names no file is said of `path`.
    pub(super) fn of(error: &Error, path: &Path) -> Self {
        let (path, begin, reason) = match error {
            Error::Corruption {
                path,
                offset,
                reason,
            } => (path.as_path(), *offset, reason.clone()),
            Error::Missing { path, reason } => {
                let reason = format!("missing or shorter than recorded: {reason}");
                (path.as_path(), 0, reason)
            }
            Error::Io { path, .. }
            | Error::Foreign { path, .. }
            | Error::Newer { path, .. }
            | Error::WrongIdentity { path, .. } => (path.as_path(), 0, error.to_string()),
            other => (path, 0, other.to_string()),
        };
        Self {
            path: path.into(),
            begin,
            end: None,
            reason,
        }
    }
}

/// Whether an error is about bytes that cannot be had, so that copies of them help.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(
        error,
        Error::Corruption { .. }
            | Error::Missing { .. }
            | Error::Malformed { .. }
            | Error::NotDense { .. }
            | Error::Io { .. }
            // Of a file that the manifest lists as one of ours.
            | Error::Foreign { .. }
            | Error::Newer { .. }
            | Error::WrongIdentity { .. }
    )
}

/// Add a damage to those of a directory: once, and as one if it goes on where the last one ends.
pub(super) fn note(damages: &mut Vec<Damage>, damage: Damage) {
    if let Some(last) = damages.last_mut()
        && last.path == damage.path
        && last.end == Some(damage.begin)
    {
        last.end = damage.end;
        return;
    }
    let known = |one: &Damage| one.path == damage.path && one.begin == damage.begin;
    match damages.iter_mut().find(|one| known(one)) {
        Some(one) => one.end = one.end.max(damage.end),
        None => damages.push(damage),
    }
}

/// Several in one line, the first ones by name.
pub(super) fn named(damages: &[Damage]) -> String {
    const NAMED: usize = 3;
    let mut text: Vec<String> = damages
        .iter()
        .take(NAMED)
        .map(|each| format!("{} at offset {}", each.path.display(), each.begin))
        .collect();
    if damages.len() > NAMED {
        text.push(format!("{} more", damages.len() - NAMED));
    }
    text.join(", ")
}
