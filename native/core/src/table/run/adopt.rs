//! Making the run of one node that of another.

use std::path::Path;

use super::footer::{FOOTER_BYTES, Footer};
use super::info::{RunIdentity, RunInfo, check_identity};
use crate::error::{Error, Result};
use crate::vfs::VfsFile;

/// Let the file of a run that was copied say that it belongs to `node`, and return the checksum of its new footer.
/// Nothing else of it changes, so that is what the list of runs has to be told. The file is durable on return.
///
/// # Errors
/// [`Error::WrongIdentity`] and [`Error::Corruption`] where the file is not the run that `info` lists.
pub fn adopt(
    file: &dyn VfsFile,
    path: &Path,
    from: RunIdentity,
    info: &RunInfo,
    node: u128,
) -> Result<u32> {
    let at = info.bytes.saturating_sub(FOOTER_BYTES as u64);
    let mut bytes = [0; FOOTER_BYTES];
    let read = file.read_exact_at(&mut bytes, at);
    read.map_err(|error| error.of_written(at))?;
    let (mut footer, checksum) = Footer::decode(path, at, &bytes)?;
    check_identity(path, footer.identity, from)?;
    if checksum != info.checksum || footer.file_bytes() != Some(info.bytes) {
        let reason = "the footer is not the one that the manifest lists";
        return Err(Error::corrupt(path, at, reason));
    }
    footer.identity.node = node;
    let (bytes, checksum) = footer.encode();
    file.write_all_at(&bytes, at)?;
    file.sync()?;
    Ok(checksum)
}
