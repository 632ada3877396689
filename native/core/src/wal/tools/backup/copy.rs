//! Reading the records of a cut.

use super::part;
use crate::error::{Error, Result};
use crate::wal::read::batches::Position;
use crate::wal::recover::follow::Follower;

impl Follower {
    /// Append positions `begin..end` of an embedded log to a part, about `bytes_max` bytes and at least one batch;
    /// returns where to go on.
    ///
    /// Unlike a read for replicas, it copies declared holes.
    ///
    /// Fails with [`Error::Trimmed`] below the first position, [`Error::BeyondEnd`] above the next one,
    /// [`Error::Corruption`] where bytes are not what was written, or were recycled since the last refresh.
    pub fn copy_part(
        &self,
        stream: u32,
        begin: u64,
        end: u64,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> Result<u64> {
        let stream = self.view().stream(stream)?;
        let range = stream.range();
        if begin < range.first {
            return Err(Error::Trimmed {
                position: begin,
                first: range.first,
            });
        }
        if end > range.durable {
            return Err(Error::BeyondEnd {
                position: end - 1,
                next: range.durable,
            });
        }
        let (mut next, mut position, full) = (begin, Position::default(), out.len() + bytes_max);
        while next < end && (next == begin || out.len() < full) {
            let left = full.saturating_sub(out.len());
            let read = self
                .view()
                .read_below(&stream, next, end, left, &mut position)?;
            for batch in &read {
                let (first, count) = (batch.first(), batch.end - batch.begin);
                part::put(out, (first, first), batch.begin, count, batch.bytes())?;
                next = batch.next();
            }
            if read.is_empty() {
                break;
            }
        }
        Ok(next)
    }
}
