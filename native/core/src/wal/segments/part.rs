//! Parts: bytes that are written at once, a run of whole blocks in one segment.

use std::sync::Arc;

use crate::limits::BLOCK_BYTES;
use crate::vfs::PooledBuf;
use crate::wal::format::frame::FRAME_HEADER;
use crate::wal::segments::segment::Segment;

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
