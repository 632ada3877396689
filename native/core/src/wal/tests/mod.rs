//! Tests of the log as a whole, on the in-memory file system.

#![allow(clippy::unwrap_used)]

mod backup;
mod basic;
mod bitflip;
mod bound;
mod checkpoint;
mod concurrency;
mod crash;
mod damage;
mod descriptors;
mod directory;
mod driver;
mod faults;
mod flights;
mod follower;
mod growing;
mod lookups;
mod model;
mod nulls;
mod oracle;
mod producers;
mod reading;
mod refuse;
mod reopening;
mod replicas;
mod rollbacks;
mod salvage;
mod scrub;
mod space;
mod table_model;
mod table_store;
mod tables;
mod verify;

use std::path::Path;
use std::sync::Arc;

use crate::batch::BatchView;
use crate::error::Result;
use crate::vfs::{MemoryVfs, Vfs};
use crate::wal::read::batches::BatchRef;
use crate::wal::{NewLog, NewRecord, OpenReport, Options, Position, Store, StreamView, View, open};

/// Where the tests' node lives.
pub const DIR: &str = "/data";

/// How thoroughly to search: seeds of the random crash policies, one unless `BRAIDLOG_CRASH_SEEDS` says.
pub fn seeds() -> u64 {
    let given = std::env::var("BRAIDLOG_CRASH_SEEDS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(1).max(1)
}

/// Small segments, so that a short test grows the first one, rolls and recycles.
pub fn options() -> Options {
    Options {
        segment_bytes: 64 << 10,
        begin_bytes: 12 << 10,
        wal_bytes_max: Some(1 << 20),
        entropy: 42,
        ..Options::default()
    }
}

pub fn open_at(vfs: &MemoryVfs) -> Result<(Store, OpenReport)> {
    open(
        Arc::new(vfs.clone()) as Arc<dyn Vfs>,
        Path::new(DIR),
        options(),
    )
}

pub fn create(store: &Store, name: &str) -> u32 {
    let id = u128::from(crc32c::crc32c(name.as_bytes())) + 1;
    let log = NewLog {
        id,
        explicit_commit: false,
        created: 0,
        name: name.into(),
        options: Vec::new(),
    };
    store.create_log(log).unwrap()
}

pub fn record(value: &[u8]) -> NewRecord<'_> {
    NewRecord {
        value: Some(value),
        key: None,
        timestamp: 7,
        headers: &[],
    }
}

pub fn append(store: &Store, stream: u32, value: &[u8]) -> Result<u64> {
    let ticket = store.append(stream, record(value), None)?;
    store.wait(ticket.group)?;
    Ok(ticket.llsn)
}

/// All readable values of a stream with their LLSNs.
pub fn contents(view: &View, stream: u32) -> Result<Vec<(u64, Vec<u8>)>> {
    let stream = view.stream(stream)?;
    let first = stream.range().first;
    values_of(view, &stream, first, 4096)
}

/// The readable values of a stream from `first` on, read backwards, in rising order: each step begins where the one before it did.
pub fn values_back(
    view: &View,
    stream: &StreamView,
    first: u64,
    bytes_max: usize,
) -> Result<Vec<(u64, Vec<u8>)>> {
    let mut next = stream.range().end;
    let mut steps = Vec::new();
    while next > first {
        let step = view.read_back(stream, first, next, bytes_max)?;
        assert_eq!(step.last().map(BatchRef::next), Some(next));
        assert!(step.windows(2).all(|two| two[0].next() == two[1].first()));
        next = step[0].first();
        steps.push(step);
    }
    let mut found = Vec::new();
    for batch in steps.into_iter().rev().flatten() {
        let decoded = BatchView::parse(batch.bytes())?;
        for i in batch.begin..batch.end {
            found.push((
                batch.llsn + u64::from(i),
                decoded.record(i).unwrap().value.unwrap().to_vec(),
            ));
        }
    }
    Ok(found)
}

/// The readable values of a stream from `next` on, read `bytes_max` at a time.
pub fn values_of(
    view: &View,
    stream: &StreamView,
    mut next: u64,
    bytes_max: usize,
) -> Result<Vec<(u64, Vec<u8>)>> {
    let end = stream.range().end;
    let mut found = Vec::new();
    let mut position = Position::default();
    while next < end {
        for batch in view.read(stream, next, end, bytes_max, &mut position)? {
            let decoded = BatchView::parse(batch.bytes())?;
            for i in batch.begin..batch.end {
                found.push((
                    batch.llsn + u64::from(i),
                    decoded.record(i).unwrap().value.unwrap().to_vec(),
                ));
            }
            next = batch.next();
        }
    }
    Ok(found)
}
