//! Removing files that are of no table any more.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::error::Result;
use crate::vfs::{Vfs, remove_all};

/// How the name of what is being removed ends. It is renamed first, so that what was removed in part is never taken for a table.
const TRASH: &str = ".trash";

/// Digits of an identity in a name.
const ID_DIGITS: usize = 32;

/// Remove directories of tables, and of trees in them, that are not `known`. Nobody may be making one meanwhile.
///
/// `known` is each table of the catalog with all its trees. The catalog has to be durable, or a crash could
/// bring back a table whose files are gone. Returns how many directories it removed; names that are no identity are left alone.
///
/// # Errors
/// Those of the file system. What is left is removed by the next call.
pub fn collect_orphans(
    vfs: &dyn Vfs,
    tables: &Path,
    known: &BTreeMap<u128, BTreeSet<u128>>,
) -> Result<u64> {
    if !vfs.exists(tables)? {
        return Ok(0);
    }
    let mut removed = collect(vfs, tables, |id| known.contains_key(&id))?;
    for (id, trees) in known {
        let dir = super::Table::dir_in(tables, *id);
        if vfs.exists(&dir)? {
            removed += collect(vfs, &dir, |id| trees.contains(&id))?;
        }
    }
    Ok(removed)
}

/// The identity that is the name of a directory.
fn identity(name: &str) -> Option<u128> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (name.len() == ID_DIGITS && name.bytes().all(is_digit))
        .then(|| u128::from_str_radix(name, 16).ok())
        .flatten()
}

/// Remove directories in one that are named by an identity which is not known.
pub(super) fn collect(vfs: &dyn Vfs, dir: &Path, is_known: impl Fn(u128) -> bool) -> Result<u64> {
    let mut trash = Vec::new();
    let mut is_renamed = false;
    for name in vfs.list(dir)? {
        if let Some(begun) = name.strip_suffix(TRASH) {
            if identity(begun).is_some() {
                trash.push(dir.join(name));
            }
        } else if identity(&name).is_some_and(|id| !is_known(id)) {
            let to = dir.join(format!("{name}{TRASH}"));
            vfs.rename(&dir.join(name), &to)?;
            trash.push(to);
            is_renamed = true;
        }
    }
    if is_renamed {
        vfs.sync_dir(dir)?;
    }
    for path in &trash {
        remove_all(vfs, path)?;
    }
    if !trash.is_empty() {
        vfs.sync_dir(dir)?;
    }
    Ok(trash.len() as u64)
}
