//! Sealing a group: what was gathered becomes one write, and perhaps a checkpoint with it.

use std::mem;
use std::sync::Arc;

use crate::error::Result;
use crate::limits::BLOCK_BYTES;
use crate::wal::placing::appender::Appender;
use crate::wal::placing::group::{Effect, Group};
use crate::wal::read::stream::range_of;
use crate::wal::segments::checkpoint::{self, Mark};

/// Checkpoints in a segment, at least: what an open folds is a small part of it.
const CHECKPOINT_STEPS: u32 = 32;

/// Bytes of log for each byte of state in a checkpoint, at least.
const CHECKPOINT_RATIO: usize = 16;

impl Appender {
    /// Close the open batches and take everything gathered as one group.
    pub fn seal(&mut self) -> Result<Group> {
        let streams: Vec<u32> = self.open.keys().copied().collect();
        for stream in streams {
            self.close_batch(stream)?;
        }
        let mut parts = mem::take(&mut self.parts);
        if let Some(last) = parts.last_mut() {
            // The last block may be partly filled. The next part begins with a copy of it, because a device
            // writes whole blocks.
            last.end = self.active.offset;
            let block =
                (self.active.offset as usize) / BLOCK_BYTES * BLOCK_BYTES - last.start as usize;
            self.active.tail = last.buf[block..].to_vec();
        }
        // Zeros up to the end of the block: they are no frame, so a reader or a recovery stops there.
        for part in &mut parts {
            part.pad();
        }
        let bytes = parts.iter().map(|part| part.buf.len()).sum();
        let effects = mem::take(&mut self.touched)
            .into_iter()
            .map(|stream| self.effect(stream))
            .collect();
        let number = self.group;
        // What is placed from here on belongs to the next group.
        self.group += 1;
        // Encoded now, as of the last frame of this group; written once the group is durable.
        let checkpoint = if self.is_checkpoint_due() {
            Some(self.checkpoint()?)
        } else {
            None
        };
        Ok(Group {
            number,
            checkpoint,
            parts: parts.into_iter().map(Arc::new).collect(),
            effects,
            bytes,
        })
    }

    /// Whether so much was placed since the state was written last that an open should not fold it again.
    fn is_checkpoint_due(&self) -> bool {
        let active = &self.active;
        let step = (active.segment.bytes / CHECKPOINT_STEPS) as usize;
        // A large state is not to be written over and over.
        let step = step.max(self.state_bytes * CHECKPOINT_RATIO);
        // A checkpoint does not hold the orders: while a stream is in one, an open folds from the preamble and
        // would not use it.
        (active.offset - active.checkpoint) as usize >= step && self.orders.is_idle()
    }

    /// The state as of the last placed frame. To be written once everything placed is durable. It does not
    /// have the orders: while a stream is in one, an open folds the frames from the preamble on.
    pub(crate) fn checkpoint(&mut self) -> Result<Vec<u8>> {
        let active = &mut self.active;
        let (seed, offset) = (active.segment.seed, active.offset);
        let mark = Mark {
            seed,
            offset,
            ordinal: active.ordinal,
            last: active.last,
        };
        active.checkpoint = offset;
        let index = active.segment.encode_index(offset)?;
        Ok(checkpoint::encode(mark, &self.state.encode(), &index))
    }

    pub(crate) fn effect(&self, number: u32) -> Effect {
        match self.state.streams.get(&number) {
            None => Effect::Gone(number),
            Some(stream) => Effect::Range(number, range_of(stream)),
        }
    }
}
