//! Groups: what one sync makes durable.
//!
//! A group is a list of parts, each a run of whole blocks in one segment. More than one part means
//! that the log rolled to a new segment in the middle of the group.

use std::sync::Arc;

use crate::limits::BLOCK_BYTES;
use crate::vfs::PooledBuf;
use crate::wal::frame::FRAME_HEADER;
use crate::wal::segments::Segment;
use crate::wal::view::Range;

/// Where a batch stands inside a part, for readers that have caught up.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// Stream.
    pub stream: u32,
    /// First LLSN.
    pub llsn: u64,
    /// Records.
    pub count: u32,
    /// Offset of the payload in the part's buffer.
    pub at: u32,
    /// Payload bytes.
    pub len: u32,
}

/// A contiguous write into one segment.
pub struct Part {
    /// The segment.
    pub segment: Arc<Segment>,
    /// Offset of the buffer's first byte, a multiple of the block.
    pub start: u32,
    /// Bytes, padded to whole blocks once sealed.
    pub buf: PooledBuf,
    /// Offset behind the last frame.
    pub end: u32,
    /// Batches inside.
    pub batches: Vec<Placed>,
    /// This part opens a new segment and seals this one at this offset.
    pub seals: Option<(Arc<Segment>, u32)>,
    /// Whether this part opens its segment.
    pub opens: bool,
}

impl Part {
    /// Remember the batch whose frame begins at `at` in the buffer.
    pub fn note(&mut self, stream: u32, llsn: u64, count: u32, at: usize, len: usize) {
        let at = (at + FRAME_HEADER) as u32;
        self.batches.push(Placed {
            stream,
            llsn,
            count,
            at,
            len: len as u32,
        });
    }

    /// Pad to whole blocks.
    pub fn pad(&mut self) {
        let len = self.buf.len().next_multiple_of(BLOCK_BYTES);
        self.buf.resize(len);
    }
}

/// What a reader may see once a group is durable.
pub enum Effect {
    /// A stream's new range.
    Range(u32, Range),
    /// The stream is gone.
    Gone(u32),
}

/// A sealed group.
pub struct Group {
    /// Number, from 1.
    pub number: u64,
    /// Writes, in order.
    pub parts: Vec<Arc<Part>>,
    /// What becomes visible.
    pub effects: Vec<Effect>,
    /// Bytes to write.
    pub bytes: usize,
    /// Content of the checkpoint file once the group is durable.
    pub checkpoint: Option<Vec<u8>>,
}

impl Group {
    /// Whether the group opens a segment; nothing else may be in flight then.
    pub fn rolls(&self) -> bool {
        self.parts.iter().any(|part| part.opens)
    }
}
