//! Room: what may be appended, decided before anything has a number.
//!
//! Space is counted in segments that may exist and in slots that do. Records leave alone a few
//! segments and the tail of each, so that trims, cleaning and recovery find room when records do not.

use std::ops::Range;

use crate::batch::ColumnsRef;
use crate::error::{Error, Result};
use crate::limits::{BATCH_BYTES_MAX, BLOCK_BYTES};
use crate::wal::format::frame::{Kind, frame_len};
use crate::wal::format::header::FIRST_FRAME;
use crate::wal::placing::appender::{Appender, NewRecord, OpenBatch, Sequenced};
use crate::wal::placing::bound;
use crate::wal::placing::bound::RESERVE_SEGMENTS;

/// Bytes at the end of each segment that only state may use: room for a thousand trims or so.
fn tail_reserve(segment_bytes: u32) -> u32 {
    (segment_bytes / 64).min(64 << 10)
}

/// Bytes at the end of a segment that a frame of this kind must leave alone.
pub(crate) fn kept(kind: Kind, segment_bytes: u32) -> usize {
    if kind.is_data() {
        tail_reserve(segment_bytes) as usize
    } else {
        0
    }
}

impl Appender {
    /// Largest preamble: a quarter of a segment.
    pub fn preamble_bytes_max(&self) -> usize {
        self.sizes.segment_bytes as usize / 4
    }

    /// Largest batch: within its own limit and a quarter of a segment, so that little is lost where
    /// one does not fit behind another.
    pub fn batch_bytes_max(&self) -> usize {
        BATCH_BYTES_MAX.min(self.sizes.segment_bytes as usize / 4)
    }

    /// Refuse a batch that is larger than `max`.
    pub fn check_batch_len(size: usize, max: usize) -> Result<()> {
        if size > max {
            return Err(Error::TooLarge {
                what: "record batch",
                size: size as u64,
                max: max as u64,
            });
        }
        Ok(())
    }

    /// Whether a change that found no room may find some once there is another slot, or more of the active
    /// segment's file.
    pub fn lacks_slot(&self) -> bool {
        self.active.segment.is_short()
            || self.slots_ready == 0 && self.segments_used < self.sizes.segments_limit
    }

    /// Allow changes that have to find room one more reserve, beyond the bound, if theirs is used up. That ends:
    /// a tail is settled once, and a trim frees space.
    pub(crate) fn renew_reserve(&mut self) {
        let renewed = bound::limit(self.sizes.segments_max, self.segments_used);
        self.sizes.segments_limit = self.sizes.segments_limit.max(renewed);
    }

    /// Take segments back that are slots again, and with them what the reserve had beyond the bound.
    pub(crate) fn freed(&mut self, segments: u64) {
        self.segments_used -= segments;
        self.slots_ready += segments;
        let within = bound::limit(self.sizes.segments_max, self.segments_used);
        self.sizes.segments_limit = self.sizes.segments_limit.min(within);
    }

    /// Whether `bytes` of records surely fit; false if they would with more slots, or more of the active segment's file.
    ///
    /// Fails with [`Error::LogFull`] if they do not fit within the bound either.
    pub fn has_room(&self, bytes: usize) -> Result<bool> {
        self.fits(Kind::Batch, bytes, RESERVE_SEGMENTS)
    }

    /// Whether `bytes` of frames of that kind surely fit with `reserve` segments left alone. What is in
    /// open batches was admitted and keeps its room.
    pub(crate) fn fits(&self, kind: Kind, bytes: usize, reserve: u64) -> Result<bool> {
        // Records in open batches have their numbers already: their room must not be given away again.
        let open: usize = self
            .open
            .values()
            .map(|open| frame_len(open.builder.encoded_len_max()))
            .sum();
        // A part that begins on a fresh block skips up to one block.
        let need = (open + bytes + BLOCK_BYTES) as u64;
        // Changes that free space or settle what is there may use the reserve, and the one that was added for
        // them. Records stay within the bound that the user set.
        let max = if reserve < RESERVE_SEGMENTS {
            self.sizes.segments_limit - reserve
        } else {
            self.sizes.segments_max - reserve
        };
        let (segment, filled) = (self.active.segment.bytes, self.active.segment.filled());
        // Records leave the tail of each segment to changes.
        let taken = self.active.offset as usize + kept(kind, segment);
        let left = |bytes: u32| (bytes as usize).saturating_sub(taken) as u64;
        if need <= left(segment) && self.segments_used <= max {
            // It fits into the segment, but perhaps not into its file as long as that is short. The file is made
            // longer before the record is placed: once a record has a number it must not wait for the disk.
            return Ok(need <= left(filled));
        }
        // What each further segment can lose at worst: its header, the largest preamble, the tail, and at its
        // end the space that was too small for one more frame of the largest size.
        let lost = FIRST_FRAME as usize
            + self.preamble_bytes_max()
            + frame_len(self.batch_bytes_max())
            + kept(Kind::Batch, segment)
            + BLOCK_BYTES;
        let usable = u64::from(self.sizes.segment_bytes).saturating_sub(lost as u64);
        // All segments that the bound still allows would not do: only a trim or a greater bound helps.
        if need > max.saturating_sub(self.segments_used) * usable {
            return Err(self.full());
        }
        // The log leaves a segment only when its file is whole. A slot that does not exist yet is made without
        // the lock, so the caller does that and asks again.
        Ok(filled == segment && need <= self.slots_ready * usable)
    }

    /// Refuse, before anything has a number, what could not be written.
    pub(crate) fn reserve(&self, kind: Kind, bytes: usize, reserve: u64) -> Result<()> {
        if self.fits(kind, bytes, reserve)? {
            Ok(())
        } else {
            // More could be made, but not under the lock that the caller holds.
            Err(self.full())
        }
    }

    /// Refuse, before it is there, state that no preamble would hold.
    pub(crate) fn reserve_state(&mut self, growth: usize) -> Result<()> {
        let max = self.preamble_bytes_max();
        if growth > 0 && self.state_bytes + growth > max {
            // `state_bytes` only grows by estimates; a count of all that there is costs too much for each
            // change. So it is counted when the estimate reaches the bound.
            let orders = self.orders.encoded_len();
            self.state_bytes = self.state.encoded_len() + self.open_growth() + orders;
            if self.state_bytes + growth > max {
                let (size, max) = ((self.state_bytes + growth) as u64, max as u64);
                return Err(Error::StateFull { size, max });
            }
        }
        self.state_bytes += growth;
        Ok(())
    }

    /// Bytes that the producers of the open batches will add when these are placed, at most.
    fn open_growth(&self) -> usize {
        let growth = |(stream, open): (&u32, &OpenBatch)| {
            let producers = &self.state.streams.get(stream)?.producers;
            let (id, sequence) = open.producer?;
            Some(producers.growth(id, sequence, open.llsn))
        };
        self.open.iter().filter_map(growth).sum()
    }

    /// Bytes by which an append makes the state longer, at most: nothing if it goes on in the sequence of
    /// the open batch, for which they are reserved.
    pub(super) fn producer_growth(
        &self,
        stream: u32,
        producer: Option<Sequenced>,
        llsn: u64,
    ) -> usize {
        let open = self.open.get(&stream);
        if open.is_some_and(|open| open.continues(producer)) {
            return 0;
        }
        let stream = self.state.streams.get(&stream);
        producer.zip(stream).map_or(0, |((id, sequence), stream)| {
            stream.producers.growth(id, sequence, llsn)
        })
    }

    pub(crate) fn full(&self) -> Error {
        let bytes = u64::from(self.sizes.segment_bytes);
        Error::LogFull {
            used: self.segments_used * bytes,
            max: self.sizes.segments_max * bytes,
        }
    }
}

/// Bytes a lone record takes at most, with its frame.
pub fn record_bytes(record: &NewRecord<'_>) -> usize {
    let len = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    let headers: usize = record
        .headers
        .iter()
        .map(|(name, value)| name.len() + len(*value) + 16)
        .sum();
    512 + len(record.value) + len(record.key) + headers
}

/// Bytes that rows of columns take at most as batches of about `target` bytes, with their frames.
pub fn columns_bytes(columns: &ColumnsRef<'_>, rows: &Range<usize>, target: usize) -> usize {
    let total = columns.encoded_len_max(rows);
    let batches = total / target.max(1) + 2;
    // Batches are cut by records, so each may stay a good deal below the target.
    total + batches * 1024 + total / 64
}
