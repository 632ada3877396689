//! The checkpoint file: state and number index as of a durable place in the newest segment.
//!
//! ```text
//! 0   u32 magic "BRCP"   4 u32 format   8 u64 segment   16 u64 salt
//! 24  u32 offset behind the last frame   28 u32 ordinal of the next one   32 u32 offset of the last frame
//! 36  u32 bytes of the state   40 u32 bytes of the index
//! 44  u32 CRC32C of bytes 0..44 and of everything behind
//! 48  the state as in a preamble, then the index as in a side file
//! ```
//!
//! An open folds the newest segment from here on rather than from its preamble.
//!
//! # Invariants
//!
//! - It is written when everything below its offset is durable, and bound to one lap by the salt. Durable
//!   bytes of a lap never change: so it is never wrong, only old. No write invalidates it, and it is not synced.
//! - It is derived. Missing, torn, of another lap or version, it is no checkpoint, and the preamble is read.

use std::path::Path;
use std::sync::Arc;

use crate::codec::{Put, Take};
use crate::error::Result;
use crate::index::{SegmentIndex, decode};
use crate::vfs::{Vfs, VfsFile};
use crate::wal::format::frame::{FRAME_HEADER, Seed, bytes_to_check, parse};
use crate::wal::format::state::State;
use crate::wal::segments::segment::Segment;
use crate::wal::segments::walk::Walk;

const MAGIC: u32 = u32::from_le_bytes(*b"BRCP");
const FORMAT: u32 = 1;

/// Bytes before the state.
const HEADER_BYTES: usize = 48;

/// Name of the file in the node directory.
pub const CHECKPOINT: &str = "CHECKPOINT";

/// Where in a segment a checkpoint stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Segment and salt.
    pub seed: Seed,
    /// Offset behind the last frame.
    pub offset: u32,
    /// Ordinal of the next frame.
    pub ordinal: u32,
    /// Offset of the last frame.
    pub last: u32,
}

/// State and index as of a place in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The place.
    pub mark: Mark,
    /// State behind the last frame.
    pub state: State,
    /// Index of the frames before the place.
    pub index: SegmentIndex,
}

/// The file's content. `index` is the segment's index encoded as a side file that ends at the offset.
pub fn encode(mark: Mark, state: &[u8], index: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + state.len() + index.len());
    out.put_u32(MAGIC);
    out.put_u32(FORMAT);
    out.put_u64(mark.seed.segment);
    out.put_u64(mark.seed.salt);
    out.put_u32(mark.offset);
    out.put_u32(mark.ordinal);
    out.put_u32(mark.last);
    out.put_u32(state.len() as u32);
    out.put_u32(index.len() as u32);
    let body = crc32c::crc32c_append(crc32c::crc32c(&out), state);
    out.put_u32(crc32c::crc32c_append(body, index));
    out.extend_from_slice(state);
    out.extend_from_slice(index);
    out
}

impl Checkpoint {
    /// The file's content.
    pub fn encode(&self) -> Vec<u8> {
        let Seed { salt, segment } = self.mark.seed;
        let index = self
            .index
            .encode(segment, salt, u64::from(self.mark.offset));
        encode(self.mark, &self.state.encode(), &index)
    }

    /// Decode; `None` if it is not a whole checkpoint. Behind it anything may stand: a longer one was
    /// overwritten.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut take = Take::new("checkpoint", bytes);
        let known = take.u32().ok()? == MAGIC && take.u32().ok()? == FORMAT;
        let (segment, salt) = (take.u64().ok()?, take.u64().ok()?);
        let (offset, ordinal) = (take.u32().ok()?, take.u32().ok()?);
        let last = take.u32().ok()?;
        let (state, index) = (take.u32().ok()? as usize, take.u32().ok()? as usize);
        let checksum = take.u32().ok()?;
        let body = bytes.get(HEADER_BYTES..)?;
        let body = body.get(..state.checked_add(index)?)?;
        let found = crc32c::crc32c_append(crc32c::crc32c(&bytes[..HEADER_BYTES - 4]), body);
        if !known || found != checksum || last >= offset || ordinal == 0 {
            return None;
        }
        let (side, index) = decode(&body[state..]).ok()?;
        let mine = (side.segment, side.salt, side.sealed_bytes) == (segment, salt, offset.into());
        let mark = Mark {
            seed: Seed { salt, segment },
            offset,
            ordinal,
            last,
        };
        let state = State::decode(&body[..state]).ok()?;
        mine.then_some(Self { mark, state, index })
    }

    /// Read it from a node directory; `None` if there is none, or it cannot be used.
    pub fn read(vfs: &dyn Vfs, dir: &Path, bytes_max: u64) -> Option<Self> {
        Self::decode(&vfs.read(&dir.join(CHECKPOINT), bytes_max).ok()?)
    }

    /// Whether the frame before the place is there: the file may have been put into a directory, or the
    /// segment taken out of it, by hand.
    fn stands_in(&self, file: &dyn VfsFile, segment: &Segment) -> Result<bool> {
        let mark = self.mark;
        if mark.seed != segment.seed || mark.offset > segment.bytes {
            return Ok(false);
        }
        let left = (mark.offset - mark.last) as usize;
        if left < FRAME_HEADER {
            return Ok(false);
        }
        let mut bytes = vec![0; FRAME_HEADER];
        file.read_exact_at(&mut bytes, mark.last.into())?;
        let need = bytes_to_check(&bytes);
        if need > left {
            return Ok(false);
        }
        bytes.resize(need, 0);
        file.read_exact_at(&mut bytes, mark.last.into())?;
        let frame = parse(&bytes, mark.seed, mark.last).ok();
        Ok(frame.is_some_and(|frame| {
            frame.end() == mark.offset && frame.header.ordinal == mark.ordinal - 1
        }))
    }
}

/// State and index of the newest segment as of its checkpoint, and a walk that stands there; `None` if
/// there is no checkpoint of this segment.
pub fn resume(
    vfs: &dyn Vfs,
    dir: &Path,
    file: Arc<dyn VfsFile>,
    segment: &Segment,
) -> Result<Option<(State, Walk)>> {
    let Some(found) = Checkpoint::read(vfs, dir, segment.bytes.into()) else {
        return Ok(None);
    };
    if !found.stands_in(&*file, segment)? {
        return Ok(None);
    }
    let Mark {
        seed,
        offset,
        ordinal,
        last,
    } = found.mark;
    segment.set_index(found.index);
    let mut walk = Walk::new(file, seed, offset, ordinal, segment.bytes);
    walk.last = last;
    Ok(Some((found.state, walk)))
}
