//! Names of manifest files, and `CURRENT`, which holds one of them.
//!
//! `CURRENT` is one line of text, for the eyes of an operator: the name, a space, the CRC32C of the
//! name in eight hexadecimal digits.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::vfs::Vfs;

/// Name of the pointer file.
pub const CURRENT: &str = "CURRENT";
/// Longest `CURRENT` that is read; a real one is about 26 bytes.
pub const CURRENT_BYTES_MAX: u64 = 64;

const FILE_PREFIX: &str = "MANIFEST-";

/// Name of a manifest file.
pub fn file_name(number: u64) -> String {
    format!("{FILE_PREFIX}{number:06}")
}

/// Numbers of files and edits stay below this: no manifest lives to see it, and counting on from
/// what a file says never overflows.
pub const NUMBER_MAX: u64 = 1 << 62;

/// Number of a manifest file, if the name is exactly one that [`file_name`] gives.
pub fn parse_file_name(name: &str) -> Option<u64> {
    let number = name.strip_prefix(FILE_PREFIX)?.parse().ok()?;
    (number < NUMBER_MAX && file_name(number) == name).then_some(number)
}

/// Content of `CURRENT`.
pub fn encode_current(number: u64) -> Vec<u8> {
    let name = file_name(number);
    format!("{name} {:08x}\n", crc32c::crc32c(name.as_bytes())).into_bytes()
}

/// Number that `CURRENT` names.
pub fn decode_current(path: &Path, bytes: &[u8]) -> Result<u64> {
    let number = std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| text.split_once(' '))
        .and_then(|(name, _)| parse_file_name(name))
        .ok_or_else(|| Error::corrupt(path, 0, "does not name a manifest file"))?;
    if encode_current(number) != bytes {
        return Err(Error::corrupt(path, 0, "checksum does not match"));
    }
    Ok(number)
}

/// The number that `CURRENT` names.
///
/// Without `CURRENT` it is [`Error::NotFound`] if the directory is absent or holds at most a lock,
/// and [`Error::Missing`] if anything else is there: then a manifest was lost (or its creation did
/// not finish), and what it listed must not be taken for nothing.
pub(crate) fn read_current(vfs: &dyn Vfs, dir: &Path) -> Result<u64> {
    let path = dir.join(CURRENT);
    if vfs.exists(&path)? {
        return match vfs.read(&path, CURRENT_BYTES_MAX) {
            Err(Error::TooLarge { .. }) => {
                Err(Error::corrupt(path, 0, "does not name a manifest file"))
            }
            read => decode_current(&path, &read?),
        };
    }
    let names = if vfs.exists(dir)? {
        vfs.list(dir)?
    } else {
        Vec::new()
    };
    match names.iter().find(|name| *name != "LOCK") {
        None => Err(Error::NotFound {
            what: format!("manifest in {}", dir.display()),
        }),
        Some(name) => Err(Error::Missing {
            path,
            reason: format!("{name} is there, so the directory was in use"),
        }),
    }
}

/// `CURRENT` names a file that is not there.
pub(super) fn named_but_missing(path: PathBuf) -> Error {
    Error::Missing {
        path,
        reason: format!("{CURRENT} names it"),
    }
}
