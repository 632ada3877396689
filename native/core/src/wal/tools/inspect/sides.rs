//! Side files made again, of the segments that they index.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::listing::{SideState, no_segment, rebuild, side};
use super::survey::Survey;
use crate::error::{Error, Result};
use crate::vfs::Vfs;
use crate::wal::segments::segment::side_path;

/// Path and content of the side file of a segment, where what is there is not what it must be.
///
/// `None` where it is whole, and where a segment has none: the newest, and one that was sealed on a full disk.
/// Changes nothing. The content is checked against the manifest, so whoever puts it in its place beside a
/// running writer does no harm. Fails with [`Error::Corruption`] if the segment itself is damaged.
pub fn lost_side(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    segment: u64,
) -> Result<Option<(PathBuf, Vec<u8>)>> {
    let survey = Survey::take(vfs, dir)?;
    let lap = survey
        .laps
        .iter()
        .find(|lap| lap.number == segment)
        .ok_or_else(|| no_segment(segment))?;
    let Some(sealed) = lap.sealed else {
        return Ok(None);
    };
    if let (_, SideState::Ok | SideState::None) = side(&**vfs, &survey, lap) {
        return Ok(None);
    }
    let (index, end, problem) = rebuild(&**vfs, &survey, lap)?;
    if problem.is_some() || end != sealed.end {
        let reason = problem.unwrap_or_else(|| format!("it was sealed at {}", sealed.end));
        return Err(Error::corrupt(&lap.path, u64::from(end), reason));
    }
    let bytes = index.encode(lap.number, lap.seed.salt, sealed.end.into());
    if bytes.len() != sealed.side_bytes as usize || crc32c::crc32c(&bytes) != sealed.side_crc {
        let reason = "its index is not the one that it was sealed with";
        return Err(Error::corrupt(&lap.path, 0, reason));
    }
    Ok(Some((side_path(dir, segment), bytes)))
}
