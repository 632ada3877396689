//! The end of a log that was not closed: torn or not.
//!
//! A recycled slot holds bytes of an earlier lap behind the end, which mean nothing. With steady appends they
//! may even be frames with the very ordinals that come next, so what stands there must also be a frame that
//! the state would take next.

use crate::batch::BatchView;
use crate::error::Result;
use crate::limits::BLOCK_BYTES;
use crate::vfs::VfsFile;
use crate::wal::format::change::Change;
use crate::wal::format::frame::{FRAME_HEADER, FrameHeader, Kind, bytes_to_check, extent, peek};
use crate::wal::format::state::State;

/// Whether an unfinished frame stands behind the last one, which ends at `offset`: one with the next `ordinal`
/// that might come next in a log of this `state`.
pub fn is_torn(file: &dyn VfsFile, offset: u32, ordinal: u32, limit: u32, state: &State) -> bool {
    // A group that was built while another was in flight begins on a fresh block.
    let block = offset.next_multiple_of(BLOCK_BYTES as u32);
    [offset, block]
        .into_iter()
        .any(|at| begins(file, at, ordinal, limit, state).unwrap_or(false))
}

fn begins(
    file: &dyn VfsFile,
    offset: u32,
    ordinal: u32,
    limit: u32,
    state: &State,
) -> Result<bool> {
    let left = limit.saturating_sub(offset) as usize;
    if left < FRAME_HEADER {
        return Ok(false);
    }
    let mut bytes = vec![0; FRAME_HEADER];
    file.read_exact_at(&mut bytes, offset.into())?;
    let Some(header) = peek(&bytes) else {
        return Ok(false);
    };
    // Another ordinal, or more that was durable than there is: it is of an earlier lap.
    if header.ordinal != ordinal || header.durable > offset {
        return Ok(false);
    }
    let whole = extent(&bytes);
    let need = match header.kind {
        // The header says enough: LLSN and epoch must be the next ones.
        Kind::Batch => FRAME_HEADER,
        // Its numbers are old ones, so it is judged by whether its payload is whole.
        Kind::Moved => FRAME_HEADER + whole,
        // Other kinds are judged by the change that they carry.
        _ => bytes_to_check(&bytes),
    };
    if need > left {
        // It would end behind the segment, so no writer has finished it.
        return Ok(true);
    }
    bytes.resize(need, 0);
    file.read_exact_at(&mut bytes, offset.into())?;
    Ok(may_follow(&header, &bytes[FRAME_HEADER..], state))
}

/// Whether a frame of which nothing but the header is trusted may be the next one.
fn may_follow(header: &FrameHeader, payload: &[u8], state: &State) -> bool {
    let change = match header.kind {
        Kind::Batch => Ok(Change::Batch {
            count: header.count,
            producer: None,
        }),
        // A copy that is whole and does not check under this lap was finished by an earlier one.
        Kind::Moved => return BatchView::parse(payload).is_err(),
        _ => Change::decode(header, payload),
    };
    // A change that does not decode was cut off while it was written.
    let Ok(change) = change else { return true };
    // A change that the state has already is of an earlier lap: with steady appends it may have the very
    // ordinal.
    let news = match (&change, state.streams.get(&header.stream)) {
        (Change::Trim, Some(stream)) => header.llsn > stream.low,
        (Change::SetCursor(name, cursor), Some(stream)) => stream
            .cursors
            .get(name)
            .is_none_or(|stored| cursor.touched >= stored.touched),
        _ => true,
    };
    news && state.check(header, &change).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::*;
    use crate::vfs::{Access, MemoryVfs, Vfs};
    use crate::wal::format::change::NewLog;
    use crate::wal::format::frame::{Seed, frame_len, seal};
    use crate::wal::format::header::FIRST_FRAME;

    fn header(kind: Kind, llsn: u64, ordinal: u32) -> FrameHeader {
        FrameHeader {
            kind,
            flags: 0,
            stream: u32::from(kind != Kind::Catalog),
            count: u32::from(kind == Kind::Batch),
            epoch: 0,
            llsn,
            durable: 0,
            ordinal,
        }
    }

    /// A log with one stream whose next record is 8.
    fn state() -> State {
        let mut state = State::default();
        let log = NewLog {
            id: 1,
            explicit_commit: false,
            created: 0,
            name: "a".into(),
            options: Vec::new(),
        };
        let create = FrameHeader {
            stream: 1,
            ..header(Kind::Catalog, 0, 0)
        };
        state.apply(&create, &Change::CreateLog(log)).unwrap();
        for llsn in 1..8 {
            let change = Change::Batch {
                count: 1,
                producer: None,
            };
            state.apply(&header(Kind::Batch, llsn, 0), &change).unwrap();
        }
        state
    }

    fn torn(kind: Kind, llsn: u64, ordinal: u32, at: u32) -> bool {
        let seed = Seed {
            salt: 9,
            segment: 3,
        };
        let mut bytes = vec![0; 3 * BLOCK_BYTES];
        let frame = &mut bytes[at as usize..][..frame_len(16)];
        seal(frame, &header(kind, llsn, ordinal), seed, at, 16, 16);
        let vfs = MemoryVfs::new();
        let path = Path::new("/slot");
        vfs.replace(path, &bytes).unwrap();
        let file = vfs.open(path, Access::Read).unwrap();
        is_torn(&*file, FIRST_FRAME + 64, 5, bytes.len() as u32, &state())
    }

    #[test]
    fn only_the_frame_that_comes_next_is_evidence() {
        let (here, block) = (FIRST_FRAME + 64, 2 * FIRST_FRAME);
        for at in [here, block] {
            assert!(torn(Kind::Batch, 8, 5, at));
            // Of an earlier lap, with the ordinal that comes next.
            assert!(!torn(Kind::Batch, 3, 5, at));
            assert!(!torn(Kind::Batch, 8, 6, at));
            // Its payload does not decode, so it was not finished.
            assert!(torn(Kind::Commit, 0, 5, at));
        }
        assert!(!torn(Kind::Batch, 8, 5, here + 8));
        assert!(!torn(Kind::Batch, 8, 5, 0));
    }
}
