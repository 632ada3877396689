//! Walks the frames of one segment in order, checking everything it passes.
//!
//! The walk ends at the first place where no valid frame with the expected ordinal begins; it does not
//! judge whether that is the end, a torn tail or corruption (see [`crate::wal::recover`]).

use std::sync::Arc;

use crate::batch::parse_head;
use crate::error::{Error, Result};
use crate::limits::BLOCK_BYTES;
use crate::vfs::{AlignedBuf, VfsFile};
use crate::wal::format::frame::{
    FRAME_ALIGN, FRAME_HEADER, Frame, Kind, Seed, bytes_to_check, parse, plausible,
};

/// Bytes read at a time, and at first: most walks of an open end at once.
const WINDOW_BYTES: usize = 1 << 20;
const FIRST_WINDOW_BYTES: usize = 32 << 10;

/// A walk over a segment.
pub struct Walk {
    file: Arc<dyn VfsFile>,
    seed: Seed,
    limit: u32,
    window: AlignedBuf,
    window_at: u32,
    window_bytes: usize,
    /// Where the next frame is expected.
    pub offset: u32,
    /// Ordinal the next frame must have.
    pub ordinal: u32,
    /// Where the last frame began; 0 before the first one.
    pub last: u32,
    /// Why the walk ended.
    pub ended: Option<String>,
}

impl Walk {
    /// Start at `offset`, where the frame `ordinal` is expected; read nothing at or behind `limit`.
    pub fn new(file: Arc<dyn VfsFile>, seed: Seed, offset: u32, ordinal: u32, limit: u32) -> Self {
        let window = AlignedBuf::new(0);
        Self {
            file,
            seed,
            limit,
            window,
            window_at: 0,
            window_bytes: FIRST_WINDOW_BYTES,
            offset,
            ordinal,
            last: 0,
            ended: None,
        }
    }

    /// Give the file back.
    pub fn into_file(self) -> Arc<dyn VfsFile> {
        self.file
    }

    /// Allow the walk to go on up to `limit` (a follower's durable watermark moved).
    pub fn extend(&mut self, limit: u32) {
        self.limit = limit;
        self.window.clear();
        self.ended = None;
    }

    /// Make `len` bytes at `offset` available, or as many as there are below the limit.
    fn fill(&mut self, offset: u32, len: usize) -> Result<&[u8]> {
        let left = (self.limit.saturating_sub(offset)) as usize;
        let want = len.min(left);
        let start = offset.wrapping_sub(self.window_at) as usize;
        let held = offset >= self.window_at && start + want <= self.window.len();
        if !held {
            let size = want.max(self.window_bytes).min(left);
            self.window_bytes = (self.window_bytes * 4).min(WINDOW_BYTES);
            self.window.clear();
            self.window.resize_stale(size);
            self.file
                .read_exact_at(self.window.as_mut_slice(), u64::from(offset))?;
            self.window_at = offset;
            return Ok(&self.window[..want]);
        }
        Ok(&self.window[start..start + want])
    }

    fn check(&mut self, offset: u32) -> Result<Frame> {
        let (seed, ordinal, limit) = (self.seed, self.ordinal, self.limit);
        let need = bytes_to_check(self.fill(offset, FRAME_HEADER)?);
        let frame = parse(self.fill(offset, need)?, seed, offset)?;
        if frame.header.ordinal != ordinal {
            let (given, expected) = (frame.header.ordinal.into(), ordinal.into());
            return Err(Error::NotDense {
                what: "frame ordinal",
                given,
                expected,
            });
        }
        if u64::from(frame.offset) + u64::from(frame.length) > u64::from(limit) {
            return Err(Error::malformed(
                "frame",
                offset.into(),
                "runs past the end of the segment",
            ));
        }
        if matches!(frame.header.kind, Kind::Batch | Kind::Moved) {
            let bytes = self.fill(offset, frame.length as usize)?;
            check_batch(
                &frame,
                &bytes[FRAME_HEADER..FRAME_HEADER + frame.payload as usize],
            )?;
        }
        Ok(frame)
    }

    /// The next frame, or `None` where the walk ends.
    pub fn next_frame(&mut self) -> Result<Option<Frame>> {
        let found = match self.check(self.offset) {
            Err(first) if is_data_error(&first) => {
                let aligned = self.offset.next_multiple_of(BLOCK_BYTES as u32);
                // A group that was built while another was in flight begins on a fresh block.
                match if aligned == self.offset {
                    Err(first)
                } else {
                    self.check(aligned).map_err(|_| first)
                } {
                    Err(reason) => {
                        self.ended = Some(reason.to_string());
                        return Ok(None);
                    }
                    Ok(frame) => frame,
                }
            }
            other => other?,
        };
        (self.offset, self.last) = (found.end(), found.offset);
        self.ordinal += 1;
        Ok(Some(found))
    }

    /// Payload of the frame [`Walk::next_frame`] returned last.
    pub fn payload(&mut self, frame: &Frame) -> Result<&[u8]> {
        let bytes = self.fill(frame.offset, frame.length as usize)?;
        Ok(&bytes[FRAME_HEADER..FRAME_HEADER + frame.payload as usize])
    }

    /// Search for frames of this lap behind the end of the walk, up to `reach`: (offset, end, durable) of
    /// each.
    pub fn ghosts(&mut self, reach: u32) -> Result<Vec<(u32, u32, u32)>> {
        self.limit = self.limit.min(reach);
        let mut found = Vec::new();
        let mut offset = self.offset.next_multiple_of(FRAME_ALIGN as u32);
        while let Some(frame) = self.candidate(offset, self.limit)? {
            let end = frame.end().min(self.limit);
            found.push((frame.offset, end, frame.header.durable));
            offset = frame.offset + FRAME_ALIGN as u32;
        }
        Ok(found)
    }

    /// Go on behind bytes that are damaged: at the next whole frame of this lap that begins before `before`.
    /// Without one the walk stays where it is, and the answer is false.
    pub fn resync(&mut self, before: u32) -> Result<bool> {
        let expected = self.ordinal;
        let mut offset = self.offset.next_multiple_of(FRAME_ALIGN as u32) + FRAME_ALIGN as u32;
        while let Some(frame) = self.candidate(offset, before.min(self.limit))? {
            self.ordinal = frame.header.ordinal;
            match self.check(frame.offset) {
                Ok(_) => {
                    (self.offset, self.ended) = (frame.offset, None);
                    return Ok(true);
                }
                Err(error) if is_data_error(&error) => {}
                Err(error) => return Err(error),
            }
            self.ordinal = expected;
            offset = frame.offset + FRAME_ALIGN as u32;
        }
        Ok(false)
    }

    /// The first frame head from `offset` on that checks, and comes later than what the walk passed.
    fn candidate(&mut self, mut offset: u32, before: u32) -> Result<Option<Frame>> {
        while (offset as usize) + FRAME_HEADER <= before as usize {
            let seed = self.seed;
            let left = (before - offset) as usize;
            let window = self.fill(offset, left.min(WINDOW_BYTES))?;
            let steps = (window.len() - FRAME_HEADER) / FRAME_ALIGN + 1;
            let hit = (0..steps)
                .map(|i| i * FRAME_ALIGN)
                .find(|at| plausible(&window[*at..]));
            let Some(at) = hit else {
                offset += (steps * FRAME_ALIGN) as u32;
                continue;
            };
            offset += at as u32;
            let need = bytes_to_check(self.fill(offset, FRAME_HEADER)?);
            let frame = parse(self.fill(offset, need)?, seed, offset);
            match frame {
                Ok(frame) if frame.header.ordinal >= self.ordinal => return Ok(Some(frame)),
                _ => offset += FRAME_ALIGN as u32,
            }
        }
        Ok(None)
    }
}

/// Whether the error speaks of bytes rather than of the device.
fn is_data_error(error: &Error) -> bool {
    matches!(error, Error::Malformed { .. } | Error::NotDense { .. })
}

fn check_batch(frame: &Frame, payload: &[u8]) -> Result<()> {
    let refuse = |reason: &str| Err(Error::malformed("frame", frame.offset.into(), reason));
    let head = parse_head(payload)?;
    if head.head_len() != frame.head as usize || head.total_len() != payload.len() {
        return refuse("batch length does not match its frame");
    }
    if frame.header.count == 0 || frame.header.count > head.count() {
        return refuse("record count does not match the batch");
    }
    head.verify_pages(0, &payload[head.head_len()..])
}
