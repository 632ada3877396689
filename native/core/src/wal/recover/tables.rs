//! The segments that the manifest lists.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::manifest::{Identity, Manifest, WalFiles};
use crate::vfs::Vfs;
use crate::wal::format::identity::NodeIdentity;
use crate::wal::recover::directory::check_no_remains;
use crate::wal::segments::segment::{Sealed, Segment};

/// The segments a manifest lists, oldest first.
pub fn tables(dir: &Path, files: &WalFiles, segment_bytes: u32) -> Result<Vec<Arc<Segment>>> {
    let mut segments = Vec::new();
    for listed in files.segments() {
        let segment = match listed.sealed {
            None => Segment::active(listed.number, listed.salt, segment_bytes),
            // Sealed, so its index is on the disk, and is read when somebody needs it.
            Some(_) => Segment::unloaded(listed.number, listed.salt, segment_bytes),
        };
        segment.set_slot(dir, listed.slot);
        let filled = files.filled_bytes(listed.slot);
        if let Some(filled) = filled.and_then(|bytes| u32::try_from(bytes).ok()) {
            segment.set_filled(filled.min(segment_bytes));
        }
        if let Some(sealed) = listed.sealed {
            // No segment ends behind its file.
            let end = u32::try_from(sealed.bytes)
                .ok()
                .filter(|end| *end <= segment_bytes);
            let Some(end) = end else {
                return Err(Error::corrupt(
                    segment.path(),
                    0,
                    "sealed length is out of range",
                ));
            };
            segment.set_sealed(Sealed {
                end,
                side_bytes: sealed.side_bytes,
                side_crc: sealed.side_crc,
            });
        }
        segments.push(Arc::new(segment));
    }
    // Sealing a segment and opening the next are one edit, so there is always one to write to.
    if segments
        .last()
        .is_some_and(|newest| newest.sealed().is_some())
    {
        return Err(Error::corrupt(
            dir.join("CURRENT"),
            0,
            "the manifest lists no segment to write to",
        ));
    }
    Ok(segments)
}

/// The segments of a directory as listed by its manifest, for inspection without opening the log.
pub fn open_tables(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
) -> Result<(NodeIdentity, Arc<WalFiles>, Vec<Arc<Segment>>)> {
    let Some(identity) = NodeIdentity::read(&**vfs, dir)? else {
        check_no_remains(&**vfs, dir)?;
        return Err(Error::NotFound {
            what: format!("a Braidlog directory at {}", dir.display()),
        });
    };
    let who = Identity {
        object: identity.wal,
        node: identity.node,
    };
    let follower = Manifest::<WalFiles>::open_read_only(Arc::clone(vfs), dir, who)?;
    let files = Arc::clone(follower.version());
    let segments = tables(dir, &files, identity.segment_bytes)?;
    Ok((identity, files, segments))
}
