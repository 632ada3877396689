//! What shows how far the log was durable: later frames of the same lap, and the watermark file.

use std::path::Path;

use crate::error::{Error, Result};
use crate::manifest::WalFiles;
use crate::wal::format::watermark::Watermark;
use crate::wal::segments::segment::Segment;
use crate::wal::segments::walk::Walk;

/// Refuse if the watermark shows a segment that the manifest does not list: the edit that listed it was
/// durable, so that it is no torn one.
pub fn check_newest(dir: &Path, files: &WalFiles, mark: Watermark) -> Result<()> {
    let newest = files.newest().map_or(0, |segment| segment.number);
    if mark.segment <= newest {
        return Ok(());
    }
    let reason = format!(
        "the manifest it names ends at segment {newest}, but the watermark file shows that segment {} \
         was durable. Run `braidlog repair` to see what can be saved",
        mark.segment
    );
    Err(Error::corrupt(dir.join("CURRENT"), 0, reason))
}

/// Behind which offset of the segment no write has left anything.
pub fn reach(segment: &Segment, watermark: Option<Watermark>) -> u32 {
    // A mark of another lap, or none, bounds nothing.
    let mine = watermark.filter(|mark| mark.seed() == segment.seed);
    mine.map_or(segment.bytes, |mark| mark.reach.min(segment.bytes))
}

/// How far a segment was durable, as later frames show it and as the watermark file does; 0: not at all.
pub fn durable_end(
    segment: &Segment,
    ghosts: &[(u32, u32, u32)],
    watermark: Option<Watermark>,
) -> (u32, u32) {
    // Each frame says how far the segment was durable when it was built, so a whole one behind the end proves
    // that much.
    let by_frame = ghosts.iter().map(|(_, _, durable)| *durable).max();
    let mine = watermark.filter(|mark| mark.seed() == segment.seed);
    (by_frame.unwrap_or(0), mine.map_or(0, |mark| mark.durable))
}

/// Refuse if anything shows that the log was durable beyond the end of the walk.
pub fn check_durable(
    segment: &Segment,
    walk: &Walk,
    ghosts: &[(u32, u32, u32)],
    watermark: Option<Watermark>,
    reason: &str,
) -> Result<()> {
    // Bytes that were durable may have been acknowledged. If they do not check they are damaged, and are never
    // cut as a torn tail.
    let (by_frame, by_file) = durable_end(segment, ghosts, watermark);
    let durable = by_frame.max(by_file);
    if durable > walk.offset {
        let witness = if by_frame > walk.offset {
            "a later frame"
        } else {
            "the watermark file"
        };
        let text = format!(
            "{reason}; {witness} shows that the log was durable up to {durable}. \
             Run `braidlog repair` to see what can be saved"
        );
        return Err(Error::corrupt(segment.path(), walk.offset.into(), text));
    }
    Ok(())
}
