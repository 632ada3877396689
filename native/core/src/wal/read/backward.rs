//! Reading backwards: the batches that end at a position, from memory or from segment files, verified.
//!
//! Frames can be walked forwards only, so a step back begins at a sample of the number index that lies about as
//! many bytes before the position as are wanted, and walks forwards from there to the position. Samples are
//! starts of frames: no batch is read twice.

use crate::error::{Error, Result};
use crate::index::StreamIndex;
use crate::wal::read::batches::{BatchRef, Position};
use crate::wal::read::stream::StreamView;
use crate::wal::read::view::View;

impl View {
    /// Read verified batches of `stream` that end at LLSN `to` and begin at `from` or above, in rising order:
    /// about `bytes_max` bytes of a segment, at least one batch. Returns nothing only if `from` is not below `to`.
    ///
    /// Fails with [`Error::Trimmed`] below the first position, [`Error::BeyondEnd`] above the end,
    /// [`Error::Corruption`] where the bytes before `to` are not what was written: what lies between damage and
    /// `to` is returned first.
    pub fn read_back(
        &self,
        stream: &StreamView,
        from: u64,
        to: u64,
        bytes_max: usize,
    ) -> Result<Vec<BatchRef>> {
        let range = stream.range();
        if from < range.first {
            return Err(Error::Trimmed {
                position: from,
                first: range.first,
            });
        }
        if to > range.end {
            return Err(Error::BeyondEnd {
                position: to,
                next: range.end,
            });
        }
        if from >= to {
            return Ok(Vec::new());
        }
        if let Some(found) = recent_back(stream, from, to, bytes_max) {
            return Ok(found);
        }
        // Damage is met on the way to `to` by a walk that begins before it: shorter walks get past it.
        for bytes in [bytes_max, 0] {
            let found = self.retrying(stream, from, || {
                self.read_files_back(stream, from, to, bytes)
            });
            if !matches!(found, Err(Error::Corruption { .. })) {
                return found;
            }
        }
        self.retrying(stream, from, || self.read_batch_before(stream, from, to))
    }

    fn read_files_back(
        &self,
        stream: &StreamView,
        from: u64,
        to: u64,
        bytes_max: usize,
    ) -> Result<Vec<BatchRef>> {
        let place = self.locate(stream, to - 1)?;
        let low = from.max(place.begin);
        let begin = place.segment.with_index(&*self.vfs, &self.dir, |index| {
            let entry = index.stream(stream.number, place.lane);
            entry.and_then(|entry| begin_of(entry, low, to, bytes_max))
        })?;
        // The index changed since the place was found: any walk from the lowest position meets the batch.
        let mut next = begin.unwrap_or(to - 1);
        let (mut found, mut position) = (Vec::new(), Position::default());
        while next < to {
            let more = self.read_files(stream, next, to, bytes_max, &mut position)?;
            next = more.last().map_or(to, BatchRef::next);
            found.extend(more);
        }
        Ok(found)
    }

    /// The one batch that holds the record before `to`.
    fn read_batch_before(&self, stream: &StreamView, from: u64, to: u64) -> Result<Vec<BatchRef>> {
        let low = from.max(self.locate(stream, to - 1)?.begin);
        let mut found = self.read_files(stream, to - 1, to, 1, &mut Position::default())?;
        if let Some(batch) = found.first_mut() {
            batch.begin = low.saturating_sub(batch.llsn).min(batch.begin.into()) as u32;
        }
        Ok(found)
    }
}

/// First LLSN of the frame from which a walk to `to` meets about `bytes_max` bytes; not below `low`.
fn begin_of(entry: &StreamIndex, low: u64, to: u64, bytes_max: usize) -> Option<u64> {
    let mut at = entry.floor(to - 1)?;
    let last = at.offset;
    while at.llsn > low && ((last.saturating_sub(at.offset)) as usize) < bytes_max {
        match entry.floor(at.llsn - 1) {
            Some(before) => at = before,
            None => break,
        }
    }
    Some(at.llsn.max(low))
}

fn recent_back(stream: &StreamView, from: u64, to: u64, bytes_max: usize) -> Option<Vec<BatchRef>> {
    let mut found: Vec<BatchRef> = Vec::new();
    let (mut end, mut bytes) = (to, 0);
    while end > from && bytes < bytes_max {
        let Some(recent) = stream.recent(end - 1) else {
            break;
        };
        let batch = BatchRef::of_recent(recent).clip(from, end)?;
        end = batch.first();
        bytes += batch.bytes().len();
        found.push(batch);
    }
    found.reverse();
    (!found.is_empty()).then_some(found)
}
