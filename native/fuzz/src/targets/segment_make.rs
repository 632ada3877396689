//! Valid node directories with random parameters.

use std::path::Path;
use std::sync::Arc;

use braidlog_core::batch::Compression;
use braidlog_core::error::Result;
use braidlog_core::limits::SEGMENT_BYTES_MIN;
#[cfg(test)]
use braidlog_core::vfs::CrashPolicy;
use braidlog_core::vfs::{MemoryVfs, Vfs};
use braidlog_core::wal::{
    CommitContext, Cursor, NewLog, NewRecord, Options, ProducerId, Store, open, parse_frame,
};

use super::frame_bytes::frames;
use super::manifest_make::{DIR, mount, unmount};
use super::segment_bytes::run_of;
use crate::input::Input;
use crate::rng::Rng;

/// Options of every open: the smallest segments, little memory, no randomness.
pub fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES_MIN,
        wal_bytes_max: Some(1 << 20),
        recent_bytes_max: 0,
        index_bytes_max: 1 << 20,
        entropy: 42,
        ..Options::default()
    }
}

/// What crashes in its first open leave of a node directory.
#[cfg(test)]
pub fn unfinished() -> Result<Vec<Input>> {
    let vfs = MemoryVfs::new();
    vfs.create_dir_all(Path::new(DIR))?;
    drop(open_at(&vfs, 1)?);
    let trace = vfs.trace();
    let crash = |operation| unmount(&trace.crash(operation, CrashPolicy::DropUnsynced));
    (0..=vfs.operations()).map(crash).collect()
}

/// A node directory after random use.
pub fn node(rng: &mut Rng) -> Result<Input> {
    let vfs = mount(&Input::default())?;
    let (store, _) = open_at(&vfs, rng.u64())?;
    for stream in 0..rng.within(1..=3) {
        let log = NewLog {
            id: u128::from(rng.u64()),
            explicit_commit: rng.one_in(3),
            created: 5,
            name: format!("log {stream}"),
            options: Vec::new(),
        };
        store.create_log(log)?;
    }
    // Either mostly records of some size, so that segments roll, or mostly changes.
    let (records, value_max) = *rng.pick(&[(60, 60), (60, 60), (120, 3000)]);
    for _ in 0..rng.within(1..=records) {
        // What does not apply is left out.
        let _ = act(&store, value_max, rng);
    }
    store.sync()?;
    if rng.one_in(2) {
        store.close()?;
    }
    drop(store);
    let mut input = unmount(&vfs)?;
    for (name, bytes) in &mut input.files {
        if name.starts_with("wal/slot-") {
            clear_behind(bytes);
        }
    }
    Ok(input)
}

/// Clear what an earlier lap left behind the frames of a slot: whoever makes checksums right would
/// bring it back to life.
fn clear_behind(slot: &mut [u8]) {
    let run = run_of(slot);
    let mut end = run.at;
    for (ordinal, range) in frames(slot, &run).into_iter().enumerate() {
        match parse_frame(&slot[range.clone()], run.seed, range.start as u32) {
            Ok(frame) if frame.header.ordinal as usize == ordinal => end = range.end,
            _ => break,
        }
    }
    slot[end..].fill(0);
}

fn open_at(vfs: &MemoryVfs, entropy: u64) -> Result<(Store, braidlog_core::wal::OpenReport)> {
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let options = Options {
        entropy,
        ..options()
    };
    open(shared, Path::new(DIR), options)
}

fn act(store: &Store, value_max: usize, rng: &mut Rng) -> Result<()> {
    let stream = 1 + rng.below(3) as u32;
    let state = store.state();
    let found = state.stream(stream)?;
    match rng.below(20) {
        0 => {
            let first = found.low + rng.below((found.committed - found.low + 1) as usize) as u64;
            store.trim(stream, first)?;
        }
        1 => {
            let room = (found.next - found.committed + 1) as usize;
            let from = found.committed + rng.below(room) as u64;
            store.rollback(stream, found.epoch, from)?;
        }
        2 | 3 => {
            let length = rng.below((found.next - found.committed + 1) as usize) as u64;
            let glsn_begin = (found.context.glsn_begin + found.context.length).max(1);
            let context = CommitContext {
                version: found.context.version + 1,
                glsn_begin,
                llsn_begin: found.committed,
                length,
                high_watermark: glsn_begin + length,
            };
            store.commit(stream, found.epoch, context)?;
        }
        4 => {
            store.raise_epoch(stream, found.epoch + rng.below(3) as u64)?;
        }
        5 => {
            let cursor = Cursor {
                position: found.low,
                pin: false,
                touched: 1,
                lease: 0,
            };
            store.set_cursor(stream, "reader", cursor)?;
        }
        6 => {
            let kinds = [Compression::None, Compression::Lz4, Compression::Zstd];
            store.set_compression(stream, *rng.pick(&kinds));
        }
        7 if rng.one_in(3) => {
            store.clean(1, 1.0)?;
        }
        8 if rng.one_in(8) => {
            let log = state.logs.values().find(|log| log.stream == stream);
            store.delete_log(log.map_or(0, |log| log.log.id))?;
        }
        _ => append(store, stream, value_max, rng)?,
    }
    Ok(())
}

fn append(store: &Store, stream: u32, value_max: usize, rng: &mut Rng) -> Result<()> {
    let producer = ProducerId { id: 7, epoch: 0 };
    let idempotent = rng.one_in(4);
    let mut ticket = None;
    for _ in 0..rng.within(1..=4) {
        let len = rng.below(value_max);
        let value = rng.bytes(len);
        let key = rng.bytes(4);
        let record = NewRecord {
            value: Some(value.as_slice()).filter(|_| !rng.one_in(9)),
            key: rng.one_in(2).then_some(key.as_slice()),
            timestamp: rng.time_below(1000),
            headers: &[],
        };
        let sequenced = idempotent.then(|| {
            let next = |found: &braidlog_core::wal::State| {
                let found = found.streams.get(&stream);
                found.map_or(1, |found| found.producers.next_sequence(producer.id))
            };
            (producer, store.with_state(next))
        });
        ticket = Some(store.append(stream, record, sequenced)?);
    }
    match ticket {
        Some(ticket) => store.wait(ticket.group),
        None => Ok(()),
    }
}
