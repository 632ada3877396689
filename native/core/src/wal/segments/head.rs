//! The head of a segment: the state of all logs as it was when the segment began.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::vfs::{Vfs, VfsFile};
use crate::wal::format::frame::{FLAG_MORE, Kind};
use crate::wal::format::header::FIRST_FRAME;
use crate::wal::format::state::State;
use crate::wal::segments::segment::Segment;
use crate::wal::segments::walk::Walk;

/// The state at the head of a segment, and a walk that stands behind it.
pub fn read_preamble(
    file: Arc<dyn VfsFile>,
    segment: &Segment,
    limit: u32,
) -> Result<(State, Walk)> {
    let mut walk = Walk::new(file, segment.seed, FIRST_FRAME, 0, limit);
    let mut bytes = Vec::new();
    loop {
        let Some(frame) = walk.next_frame()? else {
            let reason = format!("no preamble: {}", walk.ended.clone().unwrap_or_default());
            return Err(Error::corrupt(segment.path(), walk.offset.into(), reason));
        };
        if frame.header.kind != Kind::Preamble {
            return Err(Error::corrupt(
                segment.path(),
                frame.offset.into(),
                "a preamble frame is missing",
            ));
        }
        bytes.extend_from_slice(walk.payload(&frame)?);
        if frame.header.flags & FLAG_MORE == 0 {
            break;
        }
    }
    let state = State::decode(&bytes)
        .map_err(|error| Error::corrupt(segment.path(), FIRST_FRAME.into(), error.to_string()))?;
    Ok((state, walk))
}

/// From which LLSN on it may hold records that were written to it first: what was committed when it began was
/// not written again. 1 if its head does not tell.
pub fn begins(vfs: &dyn Vfs, segment: &Segment, stream: u32) -> Result<u64> {
    match read_preamble(segment.reader(vfs)?, segment, segment.bytes) {
        Ok((state, _)) => Ok(state
            .streams
            .get(&stream)
            .map_or(1, |found| found.committed)),
        Err(Error::Corruption { .. }) => Ok(1),
        Err(error) => Err(error),
    }
}
