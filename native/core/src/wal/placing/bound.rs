//! The bound on a log's size: stored in the manifest, in force as a number of segments.
//!
//! The manifest keeps the bound, so that every open has it and not only the ones that are told. An open
//! that names another one replaces it.

use std::path::Path;

use crate::error::{Error, Result};
use crate::limits::WAL_BYTES_DEFAULT;
use crate::manifest::WalFiles;

/// Segments that records may not use, so that trim, cleaning and recovery always find room.
pub const RESERVE_SEGMENTS: u64 = 2;

/// Segments kept from what is neither record nor needed to free space.
pub const CATALOG_RESERVE: u64 = 1;

/// Sizes the appender works with.
#[derive(Clone, Copy)]
pub struct Sizes {
    /// Segment file length.
    pub segment_bytes: u32,
    /// Length of the first segment's file to begin with.
    pub begin_bytes: u32,
    /// Most segments that may exist.
    pub segments_max: u64,
    /// The same for what is no record: more, if the bound was lowered or what has to find room needs it.
    pub segments_limit: u64,
}

/// Fewest segments a bound may allow: the reserve, the newest one, and one before it.
const SEGMENTS_MIN: u64 = 4;

/// Refuse a bound that holds too few segments.
pub(crate) fn check(segment_bytes: u32, given: Option<u64>) -> Result<()> {
    let least = least(segment_bytes);
    if given.is_none_or(|bytes| bytes >= least) {
        return Ok(());
    }
    let reason = format!("wal_bytes_max must be at least four segments ({least} bytes)");
    Err(Error::InvalidArgument(reason))
}

fn least(segment_bytes: u32) -> u64 {
    SEGMENTS_MIN * u64::from(segment_bytes)
}

/// The bound that counts: the one given, else the stored one, else the default.
pub(crate) fn choose(
    dir: &Path,
    files: &WalFiles,
    segment_bytes: u32,
    given: Option<u64>,
) -> Result<u64> {
    check(segment_bytes, given)?;
    let (stored, least) = (files.bound(), least(segment_bytes));
    match given.or(stored) {
        Some(bytes) if bytes >= least => Ok(bytes),
        // Every open refuses so small a bound, so no open has stored it.
        Some(bytes) => {
            let reason = format!(
                "the manifest it names bounds the log to {bytes} bytes, below four segments"
            );
            Err(Error::corrupt(dir.join("CURRENT"), 0, reason))
        }
        // With very large segments the default would hold fewer than four.
        None => Ok(WAL_BYTES_DEFAULT.max(least)),
    }
}

/// Segment counts for a bound, with `used` segments there already.
///
/// Changes get the reserve even where the bound leaves none, because it was lowered below what is in use or because
/// the reserve is used up. Else nothing could be trimmed any more.
pub(crate) fn sizes(segment_bytes: u32, wal_bytes_max: u64, used: u64, begin_bytes: u64) -> Sizes {
    let segments_max = wal_bytes_max / u64::from(segment_bytes);
    Sizes {
        segment_bytes,
        begin_bytes: begin_bytes.min(segment_bytes.into()) as u32,
        segments_max,
        segments_limit: limit(segments_max, used),
    }
}

/// Most segments for what is no record, with `used` there already: see [`sizes`].
pub(crate) fn limit(segments_max: u64, used: u64) -> u64 {
    if used < segments_max {
        segments_max
    } else {
        used + RESERVE_SEGMENTS
    }
}
