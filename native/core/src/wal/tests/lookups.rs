//! Lookups in large batches: what they keep is never stale, and what they read is verified.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

use super::driver::{kept, with_columns};
use super::oracle::Kept;
use super::{DIR, create, options};
use crate::batch::OwnedRecord;
use crate::error::Error;
use crate::index::{FrameEntry, NATIVE, SegmentIndex};
use crate::limits::PAGE_BYTES;
use crate::vfs::MemoryVfs;
use crate::wal::{
    CommitContext, FIRST_FRAME, FRAME_HEADER, Frame, Kind, NewLog, Options, Range, Store, Walk,
    open,
};

/// Nothing in memory but what lookups keep: nothing, too little for one batch, enough.
const BOUNDS: [usize; 3] = [0, 24 << 10, 16 << 20];

fn from_files(lookup_bytes_max: usize) -> Options {
    Options {
        segment_bytes: 256 << 10,
        wal_bytes_max: Some(3 << 20),
        recent_bytes_max: 0,
        lookup_bytes_max,
        ..options()
    }
}

/// A store and the dumb model of one log in it: what was appended, by LLSN from 1.
struct Fixture {
    vfs: MemoryVfs,
    store: Store,
    stream: u32,
    records: Vec<Kept>,
}

impl Fixture {
    fn new(lookup_bytes_max: usize, explicit_commit: bool) -> Self {
        let vfs = MemoryVfs::untraced();
        let (store, _) = open(
            Arc::new(vfs.clone()),
            Path::new(DIR),
            from_files(lookup_bytes_max),
        )
        .unwrap();
        let log = NewLog {
            id: 1,
            explicit_commit,
            created: 0,
            name: "a".into(),
            options: Vec::new(),
        };
        let stream = store.create_log(log).unwrap();
        Self {
            vfs,
            store,
            stream,
            records: Vec::new(),
        }
    }

    /// Append records of which the lengths are others on each lap.
    fn append(&mut self, lap: usize, count: usize) {
        let tag = self.records.len() as u64 + 1 + lap as u64 * 1_000_000;
        let records: Vec<_> = (0..count)
            .map(|i| kept(tag + i as u64, 8 + (i * 7 + lap * 13) % (11 + lap % 5)))
            .collect();
        submit(&self.store, self.stream, &records);
        self.records.extend(records);
    }

    fn range(&self) -> Range {
        self.store.view().stream(self.stream).unwrap().range()
    }

    fn get(&self, llsn: u64) -> Result<OwnedRecord, Error> {
        let view = self.store.view();
        let stream = view.stream(self.stream)?;
        view.get(&stream, llsn)
    }

    fn check(&self, step: usize, context: &str) {
        let range = self.range();
        for llsn in (range.first..range.end).step_by(step) {
            let expected = &self.records[llsn as usize - 1];
            let found = self.get(llsn);
            let found = found.unwrap_or_else(|error| panic!("{context}: {llsn}: {error}"));
            assert_eq!(found.timestamp, expected.timestamp, "{context}: {llsn}");
            assert_eq!(found.value.unwrap(), *expected.value, "{context}: {llsn}");
        }
    }
}

/// Append records as one batch, and wait until it is durable.
fn submit(store: &Store, stream: u32, records: &[Kept]) {
    let ticket = with_columns(records, |columns| {
        store.append_columns(stream, columns, 0..columns.len, 1 << 20, None)
    });
    store.wait(ticket.unwrap().group).unwrap();
}

#[test]
fn lookups_are_right_while_slots_are_used_again() {
    for bound in BOUNDS {
        let mut log = Fixture::new(bound, false);
        let mut slots = Vec::new();
        for lap in 0..30 {
            log.append(lap, 3000);
            let context = format!("bound {bound}, lap {lap}");
            log.check(61, &context);
            log.check(97, &context);
            let next = log.range().end;
            log.store
                .trim(log.stream, next.saturating_sub(7000).max(1))
                .unwrap();
            log.store.reclaim().unwrap();
            slots.push(log.store.view().segments().last().unwrap().slot());
        }
        slots.dedup();
        assert!(slots[1..].contains(&slots[0]), "{slots:?}");
    }
}

#[test]
fn lookups_end_where_a_rollback_cut_the_batch() {
    for bound in BOUNDS {
        let mut log = Fixture::new(bound, true);
        let filler = create(&log.store, "filler");
        for lap in 0..8 {
            let begin = log.records.len() as u64 + 1;
            let context = format!("bound {bound}, lap {lap}");
            log.append(lap, 2000);
            commit(&log, begin, 900);
            log.check(31, &context);
            if lap % 2 == 1 {
                // So that the batch that is cut lies in an older segment.
                let records: Vec<_> = (1..=20).map(|tag| kept(tag, 10_000)).collect();
                submit(&log.store, filler, &records);
            }
            let cut = begin + 1000;
            log.store.rollback(log.stream, 0, cut).unwrap();
            log.records.truncate(cut as usize - 1);
            log.append(lap + 1, 1500);
            commit(&log, begin + 900, 1600);
            assert_eq!(log.range().end, log.records.len() as u64 + 1);
            log.check(31, &context);
        }
        log.check(7, "in the end");
    }
}

fn commit(log: &Fixture, llsn_begin: u64, length: u64) {
    let context = CommitContext {
        version: llsn_begin,
        glsn_begin: llsn_begin,
        llsn_begin,
        length,
        high_watermark: llsn_begin + length,
    };
    let group = log.store.commit(log.stream, 0, context).unwrap();
    log.store.wait(group).unwrap();
}

/// The slot file and the first batch in it, of which timestamps and offsets take several pages.
fn large(log: &mut Fixture) -> (PathBuf, Frame) {
    log.append(0, 3000);
    let segment = log.store.view().segments()[0].clone();
    let file = segment.reader(&log.vfs).unwrap();
    let mut walk = Walk::new(file, segment.seed, FIRST_FRAME, 0, segment.bytes);
    loop {
        let frame = walk.next_frame().unwrap().unwrap();
        if frame.header.kind == Kind::Batch {
            assert!(frame.length as usize > 12 * PAGE_BYTES);
            return (segment.path().to_owned(), frame);
        }
    }
}

fn flip(vfs: &MemoryVfs, path: &Path, offset: u32) {
    vfs.flip_bit(path, offset.into(), 3).unwrap();
}

/// A kept head is asked whether it holds the record, as one that was just read is.
#[test]
fn a_lookup_that_begins_too_early_goes_on_to_the_right_batch() {
    for bound in BOUNDS {
        let mut log = Fixture::new(bound, false);
        let (_, frame) = large(&mut log);
        log.append(1, 2000);
        log.check(17, "before");
        let end = log.range().end;
        let entry = FrameEntry {
            llsn: 1,
            count: end as u32 - 1,
            offset: frame.offset,
            bytes: frame.length,
            timestamp_min: 0,
            timestamp_max: 1000,
        };
        let mut index = SegmentIndex::default();
        index.note(log.stream, NATIVE, entry).unwrap();
        log.store.view().segments()[0].set_index(index);
        log.check(17, "too early");
    }
}

fn refused(log: &Fixture, llsn: u64) {
    let error = log.get(llsn).unwrap_err();
    assert!(matches!(error, Error::Corruption { .. }), "{llsn}: {error}");
}

/// A page is verified whenever it is read: the ones with data each time, the others once.
#[test]
fn a_page_that_is_not_kept_is_verified() {
    let mut log = Fixture::new(16 << 20, false);
    let (path, frame) = large(&mut log);
    let body = frame.offset + FRAME_HEADER as u32 + frame.head;
    let page = |page: usize| body + (page * PAGE_BYTES) as u32;
    // Record 2 has its timestamp in page 0, its offsets in page 5, its value behind those.
    let values = (12 * frame.header.count as usize + 4) / PAGE_BYTES;
    log.check(3000, "before");
    let found = log.get(3).unwrap();
    for offset in [frame.offset + 20, page(0) + 100, page(5) + 3000] {
        flip(&log.vfs, &path, offset);
        assert_eq!(log.get(3).unwrap(), found, "kept");
    }
    flip(&log.vfs, &path, page(values) + 10);
    refused(&log, 3);
    flip(&log.vfs, &path, page(values) + 10);
    assert_eq!(log.get(3).unwrap(), found);
    // Its timestamp is in page 2, which no lookup has read.
    flip(&log.vfs, &path, page(2) + 10);
    refused(&log, 1100);
    for offset in [page(0) + 100, page(2) + 10, page(5) + 3000] {
        flip(&log.vfs, &path, offset);
    }
    log.check(1, "mended");
    // What goes through the file sees what is in the file.
    let segment = log.store.view().segments()[0].clone();
    let file = segment.reader(&log.vfs).unwrap();
    let mut walk = Walk::new(file, segment.seed, FIRST_FRAME, 0, segment.bytes);
    while let Ok(Some(found)) = walk.next_frame() {
        assert!(found.offset != frame.offset);
    }
}

#[test]
fn a_damaged_batch_is_refused_by_who_keeps_nothing_of_it() {
    for bound in BOUNDS {
        for at in [0, 20, 48, 60, 140, 400] {
            let mut log = Fixture::new(bound, false);
            let (path, frame) = large(&mut log);
            flip(&log.vfs, &path, frame.offset + at);
            refused(&log, 3);
            refused(&log, 3);
        }
    }
}

/// Threads look up at random while another appends, trims and lets slots be used again.
#[test]
fn threads_that_look_up_find_what_was_written() {
    for bound in BOUNDS {
        let log = Fixture::new(bound, false);
        let (store, stream) = (&log.store, log.stream);
        let done = AtomicBool::new(false);
        let write = |lap: u64| {
            let records: Vec<_> = (1..=1000u64)
                .map(|i| kept(lap * 1000 + i, 8 + (i + lap) as usize % 40))
                .collect();
            submit(store, stream, &records);
        };
        write(0);
        scope(|scope| {
            for thread in 1..=4u64 {
                let done = &done;
                scope.spawn(move || {
                    let view = store.view().stream(stream).unwrap();
                    let mut random = thread;
                    while !done.load(Ordering::Acquire) {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        let range = view.range();
                        let llsn = range.first + (random >> 33) % (range.end - range.first);
                        let (lap, i) = ((llsn - 1) / 1000, (llsn - 1) % 1000 + 1);
                        match store.view().get(&view, llsn) {
                            Ok(record) => {
                                let expected = kept(llsn, 8 + (i + lap) as usize % 40);
                                assert_eq!(record.value.unwrap(), *expected.value, "{llsn}");
                                assert_eq!(record.timestamp, expected.timestamp, "{llsn}");
                            }
                            Err(Error::Trimmed { first, .. }) => assert!(first > llsn),
                            Err(error) => panic!("{llsn}: {error}"),
                        }
                    }
                });
            }
            for lap in 1..60 * super::seeds() {
                write(lap);
                let end = store.view().stream(stream).unwrap().range().end;
                store.trim(stream, end.saturating_sub(9000).max(1)).unwrap();
                store.reclaim().unwrap();
                store.prepare_slot().unwrap();
            }
            done.store(true, Ordering::Release);
        });
    }
}
