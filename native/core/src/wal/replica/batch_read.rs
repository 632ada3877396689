//! Reading a stream as whole encoded batches: what other replicas and clients are sent.
//!
//! # Theory of operation
//!
//! Unlike a reader of records, this one also sees what is not committed, and what is not durable yet. What is
//! on its way to the disk is found in the parts of the groups in flight and of the one that gathers, under the
//! lock; everything below is durable and read like any record. Of a batch that a rollback cut in the middle
//! the records that are left are encoded again.

use std::ops::Range;
use std::sync::Arc;

use crate::batch::{BatchBuilder, BatchView, parse_head};
use crate::error::{Error, Result};
use crate::wal::read::batches::{BatchRef, Position};
use crate::wal::read::view::View;
use crate::wal::recover::follow::Follower;
use crate::wal::segments::part::{Part, Placed};
use crate::wal::write::store::{Inner, Store};

/// Rollbacks that may overtake one read.
const ATTEMPTS: usize = 16;

/// A whole batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedBatch {
    /// LLSN of its first record.
    pub llsn: u64,
    /// Its records.
    pub count: u32,
    /// As encoded.
    pub bytes: Vec<u8>,
}

/// What was on its way to the disk at one moment.
struct Tail {
    low: u64,
    next: u64,
    /// Everything of the stream below is durable.
    begin: u64,
    batches: Vec<EncodedBatch>,
    rollbacks: u64,
}

impl Store {
    /// Batches of a stream that hold any of the LLSNs `begin..end`, about `bytes_max` bytes, at least one batch.
    /// The first may begin below `begin` and the last end above `end`: batches are given whole.
    ///
    /// Fails with [`Error::Trimmed`] below the first LLSN, [`Error::BeyondEnd`] above the next one,
    /// [`Error::Corruption`] where bytes are not what was written.
    pub fn read_encoded(
        &self,
        stream: u32,
        begin: u64,
        end: u64,
        bytes_max: usize,
    ) -> Result<Vec<EncodedBatch>> {
        for _ in 0..ATTEMPTS {
            let tail = self.tail(stream, begin, end, bytes_max)?;
            let rollbacks = tail.rollbacks;
            match self.read_behind(stream, begin, end, bytes_max, tail) {
                // A rollback came between the look under the lock and the read without it: both are done again.
                Err(_) if self.guard()?.appender.rollbacks != rollbacks => {}
                other => return other,
            }
        }
        let reason =
            "the stream was rolled back at each of several attempts to read it; read again";
        Err(Error::InvalidArgument(reason.into()))
    }

    fn tail(&self, stream: u32, begin: u64, end: u64, bytes_max: usize) -> Result<Tail> {
        let mut inner = self.guard()?;
        // What is in the open batch has numbers but no encoding yet.
        inner.appender.close_batch(stream)?;
        let state = inner.appender.state.stream(stream)?;
        let (low, next) = (state.low, state.next);
        if begin < low {
            return Err(Error::Trimmed {
                position: begin,
                first: low,
            });
        }
        if begin > next {
            let position = begin;
            return Err(Error::BeyondEnd { position, next });
        }
        let placed = unsynced(&inner, stream, next);
        let first = placed.first().map_or(next, |(placed, _)| placed.llsn);
        let mut batches = Vec::new();
        let mut bytes = 0;
        for (placed, part) in placed {
            let placed_end = placed.llsn + u64::from(placed.count);
            if placed_end <= begin || placed.llsn >= end {
                continue;
            }
            if bytes >= bytes_max && !batches.is_empty() {
                break;
            }
            let at = placed.at as usize;
            let encoded = &part.buf[at..at + placed.len as usize];
            bytes += encoded.len();
            batches.push(whole(encoded, placed.llsn, placed.count)?);
        }
        Ok(Tail {
            low,
            next,
            begin: first,
            batches,
            rollbacks: inner.appender.rollbacks,
        })
    }

    fn read_behind(
        &self,
        stream: u32,
        begin: u64,
        end: u64,
        bytes_max: usize,
        tail: Tail,
    ) -> Result<Vec<EncodedBatch>> {
        debug_assert!(tail.low <= begin && tail.begin <= tail.next);
        let mut found = durable(&self.view, stream, begin..end, tail.begin, bytes_max)?;
        let mut bytes: usize = found.iter().map(|batch| batch.bytes.len()).sum();
        for batch in tail.batches {
            if bytes >= bytes_max && !found.is_empty() {
                break;
            }
            bytes += batch.bytes.len();
            found.push(batch);
        }
        Ok(found)
    }
}

impl Follower {
    /// Like [`Store::read_encoded`], of what is durable as of the last refresh.
    pub fn read_encoded(
        &self,
        stream: u32,
        begin: u64,
        end: u64,
        bytes_max: usize,
    ) -> Result<Vec<EncodedBatch>> {
        let range = self.view().stream(stream)?.range();
        if begin < range.first {
            return Err(Error::Trimmed {
                position: begin,
                first: range.first,
            });
        }
        if begin > range.durable {
            let (position, next) = (begin, range.durable);
            return Err(Error::BeyondEnd { position, next });
        }
        durable(self.view(), stream, begin..end, range.durable, bytes_max)
    }
}

/// Whole batches that hold any of `range`, from below `below`, up to where the stream is durable.
fn durable(
    view: &View,
    stream: u32,
    range: Range<u64>,
    below: u64,
    bytes_max: usize,
) -> Result<Vec<EncodedBatch>> {
    let stream = view.stream(stream)?;
    let (mut found, mut bytes, mut from) = (Vec::new(), 0_usize, range.start);
    let mut position = Position::default();
    while from < range.end.min(below) && (found.is_empty() || bytes < bytes_max) {
        let left = bytes_max.saturating_sub(bytes);
        // Up to where the stream is durable, so that only a rollback cuts a batch.
        let read = view.read_below(&stream, from, below, left, &mut position)?;
        let Some(last) = read.last() else { break };
        from = last.next();
        for batch in read.iter().filter(|batch| batch.first() < range.end) {
            if bytes >= bytes_max && !found.is_empty() {
                return Ok(found);
            }
            bytes += batch.bytes().len();
            found.push(whole_of(batch)?);
        }
    }
    Ok(found)
}

/// The stream's batches that are not durable yet, in order, without what was rolled back.
fn unsynced(inner: &Inner, stream: u32, next: u64) -> Vec<(Placed, &Part)> {
    let in_flight = inner.flights.iter().flat_map(|flight| &flight.group.parts);
    let parts = in_flight.map(Arc::as_ref).chain(&inner.appender.parts);
    let mut found: Vec<(Placed, &Part)> = Vec::new();
    for part in parts {
        for placed in part.batches.iter().filter(|placed| placed.stream == stream) {
            // A batch at a number that was given before comes after a rollback, which took the older one back.
            cut(&mut found, placed.llsn);
            found.push((*placed, part));
        }
    }
    cut(&mut found, next);
    found
}

fn cut(found: &mut Vec<(Placed, &Part)>, from: u64) {
    while found.last().is_some_and(|(last, _)| last.llsn >= from) {
        found.pop();
    }
    if let Some((last, _)) = found.last_mut() {
        last.count = u64::from(last.count).min(from - last.llsn) as u32;
    }
}

fn whole_of(batch: &BatchRef) -> Result<EncodedBatch> {
    whole(batch.bytes(), batch.llsn, batch.end)
}

/// A batch with its first `count` records.
fn whole(encoded: &[u8], llsn: u64, count: u32) -> Result<EncodedBatch> {
    let head = parse_head(encoded)?;
    head.check_there(llsn)?;
    let bytes = if head.count() == count {
        encoded.to_vec()
    } else {
        first_records(encoded, count)?
    };
    Ok(EncodedBatch { llsn, count, bytes })
}

fn first_records(encoded: &[u8], count: u32) -> Result<Vec<u8>> {
    let view = BatchView::parse_verified(encoded)?;
    let (from, compression) = (view.head().producer(), view.head().compression());
    let mut builder = BatchBuilder::new();
    if from.id != 0 {
        builder.set_producer(from.id, from.epoch, from.base_sequence);
    }
    for record in view.iter().take(count as usize) {
        let headers: Vec<_> = record.headers.collect();
        builder.push(record.value, record.key, record.timestamp, &headers)?;
    }
    let mut bytes = Vec::with_capacity(builder.encoded_len_max());
    builder.encode_into(compression, &mut bytes)?;
    Ok(bytes)
}
