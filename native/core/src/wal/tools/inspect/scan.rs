//! Goes through a segment's frames, the damaged ones too.
//!
//! Where [`Walk`](crate::wal::Walk) ends at the first place that is no valid frame, a scan looks for the
//! next valid frame of the same lap behind it and goes on there. The salted checksums make that safe: no
//! bytes but frames of this lap, at their own offset, pass for one.

use std::sync::Arc;

use crate::batch::BatchView;
use crate::error::{Error, Result};
use crate::limits::BLOCK_BYTES;
use crate::vfs::{AlignedBuf, VfsFile};
use crate::wal::format::frame::{
    FRAME_ALIGN, FRAME_HEADER, Frame, Seed, bytes_to_check, parse, plausible,
};
use crate::wal::format::header::FIRST_FRAME;

/// Bytes read at a time.
const WINDOW_BYTES: usize = 1 << 20;

/// Bytes of a segment that are no valid frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Where they begin.
    pub offset: u32,
    /// Where the scan goes on.
    pub end: u32,
    /// What the check found.
    pub reason: String,
    /// The frame, if its header is whole and only its records are damaged.
    pub frame: Option<Frame>,
    /// Frames that stood here.
    pub frames: u32,
}

/// What a scan came by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A valid frame.
    Frame(Frame),
    /// Damage; valid frames follow, or the header is valid.
    Bad(Bad),
}

/// A scan over one segment.
pub struct Scan {
    window: Window,
    seed: Seed,
    /// Ordinal of the next frame.
    pub ordinal: u32,
    /// Where the next frame is expected; in the end, where the last one ends.
    pub offset: u32,
    /// Why nothing more was found.
    pub ended: String,
    /// The first damage that was met.
    pub first_bad: Option<(u32, String)>,
    /// Largest offset that a frame says was durable.
    pub durable: u32,
}

impl Scan {
    /// Scan the frames below `limit`.
    pub fn new(file: Arc<dyn VfsFile>, seed: Seed, limit: u32) -> Self {
        Self {
            window: Window::new(file, limit),
            seed,
            ordinal: 0,
            offset: FIRST_FRAME,
            ended: String::new(),
            first_bad: None,
            durable: 0,
        }
    }

    /// Scan from the frame at `offset` on, whatever its ordinal is; the first found is an empty [`Bad`].
    pub fn resume(file: Arc<dyn VfsFile>, seed: Seed, offset: u32, limit: u32) -> Self {
        Self {
            offset,
            ..Self::new(file, seed, limit)
        }
    }

    /// The next frame or damage; `None` where nothing valid follows any more.
    pub fn next_found(&mut self) -> Option<Found> {
        let found = match self.check(self.offset).or_else(|first| {
            // A group that was built while another was in flight begins on a fresh block.
            let aligned = self.offset.next_multiple_of(BLOCK_BYTES as u32);
            self.check(aligned).map_err(|_| first)
        }) {
            Ok(frame) => self.take(frame),
            Err(error) => self.resync(reason_of(error))?,
        };
        if let Found::Bad(bad) = &found
            && self.first_bad.is_none()
        {
            self.first_bad = Some((bad.offset, bad.reason.clone()));
        }
        Some(found)
    }

    /// Payload of a valid frame that was found last.
    pub fn payload(&mut self, frame: &Frame) -> &[u8] {
        let bytes = self.window.fill(frame.offset, frame.length as usize);
        &bytes[FRAME_HEADER..FRAME_HEADER + frame.payload as usize]
    }

    /// The frame at `offset` with the expected ordinal, judged by its header and head.
    fn check(&mut self, offset: u32) -> Result<Frame> {
        let frame = self.header_at(offset)?;
        if frame.header.ordinal != self.ordinal {
            return Err(Error::NotDense {
                what: "frame ordinal",
                given: frame.header.ordinal.into(),
                expected: self.ordinal.into(),
            });
        }
        Ok(frame)
    }

    fn header_at(&mut self, offset: u32) -> Result<Frame> {
        let (seed, limit) = (self.seed, self.window.limit);
        let need = bytes_to_check(self.window.fill(offset, FRAME_HEADER));
        let frame = parse(self.window.fill(offset, need), seed, offset)?;
        if u64::from(frame.offset) + u64::from(frame.length) > u64::from(limit) {
            let reason = "runs past the end of the segment";
            return Err(Error::malformed("frame", offset.into(), reason));
        }
        Ok(frame)
    }

    /// Step over a frame whose header is valid; its records may not be.
    fn take(&mut self, frame: Frame) -> Found {
        self.offset = frame.end();
        self.ordinal = frame.header.ordinal + 1;
        self.durable = self.durable.max(frame.header.durable);
        if frame.header.kind.is_data()
            && let Err(error) = check_batch(&frame, self.payload(&frame))
        {
            return Found::Bad(Bad {
                offset: frame.offset,
                end: frame.end(),
                reason: self.explain(reason_of(error)),
                frame: Some(frame),
                frames: 1,
            });
        }
        Found::Frame(frame)
    }

    /// Find the next valid frame behind damage.
    fn resync(&mut self, reason: String) -> Option<Found> {
        let reason = self.explain(reason);
        let Some(frame) = self.search() else {
            self.ended = reason;
            return None;
        };
        let bad = Bad {
            offset: self.offset,
            end: frame.offset,
            reason,
            frame: None,
            frames: frame.header.ordinal - self.ordinal,
        };
        self.offset = frame.offset;
        self.ordinal = frame.header.ordinal;
        Some(Found::Bad(bad))
    }

    fn search(&mut self) -> Option<Frame> {
        let limit = self.window.limit as usize;
        let mut offset = (self.offset as usize).next_multiple_of(FRAME_ALIGN);
        while offset + FRAME_HEADER <= limit {
            let window = self
                .window
                .fill(offset as u32, (limit - offset).min(WINDOW_BYTES));
            let steps = (window.len() - FRAME_HEADER) / FRAME_ALIGN + 1;
            let hit = (0..steps).find(|step| plausible(&window[step * FRAME_ALIGN..]));
            let Some(step) = hit else {
                offset += steps * FRAME_ALIGN;
                continue;
            };
            offset += step * FRAME_ALIGN;
            if let Ok(frame) = self.header_at(offset as u32)
                && frame.header.ordinal >= self.ordinal
            {
                return Some(frame);
            }
            offset += FRAME_ALIGN;
        }
        None
    }

    fn explain(&self, reason: String) -> String {
        match &self.window.unreadable {
            Some(error) => format!("{reason} ({error})"),
            None => reason,
        }
    }
}

/// What the error says, without naming the frame once more.
fn reason_of(error: Error) -> String {
    match error {
        Error::Malformed {
            what: "frame",
            reason,
            ..
        } => reason,
        other => other.to_string(),
    }
}

fn check_batch(frame: &Frame, payload: &[u8]) -> Result<()> {
    let view = BatchView::parse(payload)?;
    if view.head().head_len() != frame.head as usize {
        let reason = "the head's length does not match its batch";
        return Err(Error::malformed("frame", frame.offset.into(), reason));
    }
    if frame.header.count == 0 || frame.header.count > view.count() {
        let reason = "record count does not match the batch";
        return Err(Error::malformed("frame", frame.offset.into(), reason));
    }
    Ok(())
}

/// A piece of the file in memory. What the device does not give back reads as zeros.
struct Window {
    file: Arc<dyn VfsFile>,
    limit: u32,
    bytes: AlignedBuf,
    at: u32,
    unreadable: Option<String>,
}

impl Window {
    fn new(file: Arc<dyn VfsFile>, limit: u32) -> Self {
        Self {
            file,
            limit,
            bytes: AlignedBuf::new(0),
            at: 0,
            unreadable: None,
        }
    }

    /// `len` bytes at `offset`, or as many as there are below the limit.
    fn fill(&mut self, offset: u32, len: usize) -> &[u8] {
        let left = self.limit.saturating_sub(offset) as usize;
        let want = len.min(left);
        let start = offset.wrapping_sub(self.at) as usize;
        if offset >= self.at && start + want <= self.bytes.len() {
            return &self.bytes[start..start + want];
        }
        self.bytes.clear();
        self.bytes.resize(want.max(WINDOW_BYTES).min(left));
        self.at = offset;
        let whole = self
            .file
            .read_exact_at(self.bytes.as_mut_slice(), offset.into());
        if whole.is_err() {
            self.read_blocks();
        }
        &self.bytes[..want]
    }

    /// Read block by block what cannot be read at once.
    fn read_blocks(&mut self) {
        let base = u64::from(self.at);
        for (i, block) in self
            .bytes
            .as_mut_slice()
            .chunks_mut(BLOCK_BYTES)
            .enumerate()
        {
            let offset = base + (i * BLOCK_BYTES) as u64;
            if let Err(error) = self.file.read_exact_at(block, offset) {
                block.fill(0);
                self.unreadable.get_or_insert_with(|| error.to_string());
            }
        }
    }
}
