//! Folding the frames of the newest segment into the state of the logs.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::vfs::{Vfs, VfsFile};
use crate::wal::format::frame::Kind;
use crate::wal::format::order::Orders;
use crate::wal::format::state::State;
use crate::wal::segments::checkpoint;
use crate::wal::segments::frames::frame_change;
use crate::wal::segments::head::read_preamble;
use crate::wal::segments::segment::Segment;
use crate::wal::segments::walk::Walk;

/// The state as of the checkpoint, or at the head of the segment, and a walk that stands behind it.
pub fn begin(
    vfs: &dyn Vfs,
    dir: &Path,
    file: Arc<dyn VfsFile>,
    segment: &Segment,
) -> Result<(State, Walk)> {
    match checkpoint::resume(vfs, dir, Arc::clone(&file), segment)? {
        // Everything below a checkpoint is durable and was folded by the writer, so folding it again finds
        // nothing new.
        Some(found) => Ok(found),
        // Without one that can be used the whole segment is folded: that only takes longer.
        None => read_preamble(file, segment, segment.bytes),
    }
}

/// What a fold over a segment found.
pub struct Folded {
    /// Frames behind the preamble.
    pub frames: u64,
    /// Whether the last frame says that the log was closed.
    pub closed: bool,
}

/// Fold the frames of the active segment that the walk has not passed yet.
pub fn fold(
    walk: &mut Walk,
    segment: &Segment,
    state: &mut State,
    orders: &mut Orders,
) -> Result<Folded> {
    let mut folded = Folded {
        frames: 0,
        closed: false,
    };
    while let Some(frame) = walk.next_frame()? {
        let payload = walk.payload(&frame)?;
        // The frame checks, and the writer had applied the same change. So something in front of it is missing
        // or wrong.
        let corrupt = |error: Error| {
            let reason = format!("{} frame does not apply: {error}", frame.header.kind.name());
            Error::corrupt(segment.path(), frame.offset.into(), reason)
        };
        let (change, timestamps) = frame_change(&frame, payload).map_err(corrupt)?;
        state.apply(&frame.header, &change).map_err(corrupt)?;
        orders.fold(state, &frame.header, frame.length, &change);
        segment
            .note(&frame, &change, timestamps, payload)
            .map_err(corrupt)?;
        folded.frames += 1;
        // Only of the last frame: an open goes on behind the close that it found.
        folded.closed = frame.header.kind == Kind::Close;
    }
    Ok(folded)
}
