//! Threads that append, wait, read, trim, clean and follow at once; in the end every record is there
//! exactly once, and what was seen on the way was right.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::scope;
use std::time::Duration;

use super::{DIR, append, create, options};
use crate::batch::BatchView;
use crate::error::Error;
use crate::vfs::{MemoryVfs, RealVfs, SyncMethod, Vfs};
use crate::wal::{
    Cancel, Follower, Options, Position, ProducerId, Store, StreamView, View, Waited, open,
};

const THREADS: u64 = 3;

fn value(thread: u64, number: u64) -> Vec<u8> {
    let mut value = vec![thread as u8; 16 + (number as usize * 37) % 900];
    value[8..16].copy_from_slice(&number.to_le_bytes());
    value
}

fn number_of(value: &[u8]) -> (u8, u64) {
    let number = u64::from_le_bytes(std::array::from_fn(|i| value[8 + i]));
    assert_eq!(value, self::value(value[0].into(), number), "other bytes");
    (value[0], number)
}

/// Append numbered records in groups, each by one of the streams; some are sent again.
fn produce(store: &Store, streams: &[u32], thread: u64, count: u64) {
    let id = ProducerId {
        id: thread + 1,
        epoch: 0,
    };
    for number in 1..=count {
        for stream in streams {
            let value = value(thread, number);
            let mut tries = 0;
            let ticket = loop {
                tries += 1;
                assert!(tries < 20_000, "nobody frees space");
                match store.append(*stream, super::record(&value), Some((id, number))) {
                    Err(Error::LogFull { .. }) => std::thread::sleep(Duration::from_millis(1)),
                    other => break other.unwrap(),
                }
            };
            if number % 5 == 0 {
                let again = store.append(*stream, super::record(&value), Some((id, number)));
                assert_eq!(again.unwrap().llsn, ticket.llsn);
            }
            if number % 3 == 0 {
                store.wait(ticket.group).unwrap();
            }
        }
    }
}

/// Read from where the stream begins until `done`, each record once and in order; falls behind at times.
fn consume(view: &View, stream: &StreamView, done: &AtomicBool) -> u64 {
    let (mut next, mut seen) = (1, 0);
    let mut last = [0; THREADS as usize];
    let mut position = Position::default();
    loop {
        match stream.wait(next, Duration::from_millis(20), None) {
            Waited::Ready => {}
            _ if done.load(Ordering::Acquire) && stream.range().end <= next => return seen,
            _ => continue,
        }
        match view.read(stream, next, u64::MAX, 20_000, &mut position) {
            Ok(batches) => {
                for batch in batches {
                    assert_eq!(batch.first(), next);
                    let decoded = BatchView::parse(batch.bytes()).unwrap();
                    for i in batch.begin..batch.end {
                        let (thread, number) = number_of(decoded.record(i).unwrap().value.unwrap());
                        let last = &mut last[usize::from(thread)];
                        assert!(number > *last, "out of order, or twice");
                        *last = number;
                        seen += 1;
                    }
                    next = batch.next();
                }
            }
            Err(Error::Trimmed { first, .. }) => next = first,
            Err(error) => panic!("reading {next}: {error}"),
        }
    }
}

/// Random lookups; what is in range is found.
fn look_up(view: &View, stream: &StreamView, done: &AtomicBool) {
    let mut random = 1u64;
    while !done.load(Ordering::Acquire) {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let range = stream.range();
        if range.first == range.end {
            continue;
        }
        let llsn = range.first + (random >> 33) % (range.end - range.first);
        match view.get(stream, llsn) {
            Ok(record) => _ = number_of(&record.value.unwrap()),
            Err(Error::Trimmed { first, .. }) => assert!(first > llsn),
            Err(error) => panic!("{llsn}: {error}"),
        }
    }
}

/// Trim one stream, and copy forward what the other pins.
fn trim(store: &Store, trimmed: u32, done: &AtomicBool) {
    while !done.load(Ordering::Acquire) {
        let range = store.view().stream(trimmed).unwrap().range();
        let first = range.end.saturating_sub(40).max(1);
        assert!(store.trim(trimmed, first).unwrap() >= first);
        store.clean(2, 0.9).unwrap();
        store.prepare_slot().unwrap();
        std::thread::yield_now();
    }
}

/// A follower never goes back and always serves what it shows.
fn follow(vfs: &Arc<dyn Vfs>, dir: &Path, options: &Options, stream: u32, done: &AtomicBool) {
    let mut follower = Follower::open(Arc::clone(vfs), dir, options).unwrap();
    let mut end = 0;
    while !done.load(Ordering::Acquire) {
        follower.refresh().unwrap();
        let view = follower.view().stream(stream).unwrap();
        let range = view.range();
        assert!(range.end >= end, "went back from {end} to {}", range.end);
        end = range.end;
        if range.first < range.end {
            // The slot may have been recycled since the refresh; the next one knows.
            let mut tries = 0;
            while let Err(error) = follower.view().get(&view, range.end - 1) {
                assert!(tries < 50, "{error}");
                tries += 1;
                follower.refresh().unwrap();
                if follower.view().stream(stream).unwrap().range().first >= range.end {
                    break;
                }
            }
        }
    }
}

fn everything_at_once(vfs: &Arc<dyn Vfs>, dir: &Path, count: u64) {
    let options = Options {
        wal_bytes_max: Some(2 << 20),
        sync_depth: 3,
        gather_bytes: 4 << 10,
        unsynced_bytes_max: 128 << 10,
        recent_bytes_max: 64 << 10,
        index_bytes_max: 8 << 10,
        lookup_bytes_max: 16 << 10,
        sync_method: SyncMethod::Fdatasync,
        ..options()
    };
    let (store, _) = open(Arc::clone(vfs), dir, options.clone()).unwrap();
    let (kept, trimmed) = (create(&store, "kept"), create(&store, "trimmed"));
    let (done, waited) = (AtomicBool::new(false), AtomicU64::new(0));
    let (kept_view, trimmed_view) = (
        store.view().stream(kept).unwrap(),
        store.view().stream(trimmed).unwrap(),
    );
    let cancel = Cancel::default();
    scope(|scope| {
        let producers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || produce(store, &[kept, trimmed], thread, count))
            })
            .collect();
        for target in [2, count, THREADS * count] {
            let (view, waited) = (&kept_view, &waited);
            scope.spawn(move || {
                assert_eq!(
                    view.wait(target, Duration::from_secs(120), None),
                    Waited::Ready
                );
                assert!(view.range().end > target);
                waited.fetch_add(1, Ordering::Relaxed);
            });
        }
        let never =
            scope.spawn(|| kept_view.wait(1 << 40, Duration::from_secs(120), Some(&cancel)));
        let reader = scope.spawn(|| consume(store.view(), &kept_view, &done));
        scope.spawn(|| consume(store.view(), &trimmed_view, &done));
        scope.spawn(|| look_up(store.view(), &kept_view, &done));
        scope.spawn(|| look_up(store.view(), &trimmed_view, &done));
        scope.spawn(|| trim(&store, trimmed, &done));
        scope.spawn(|| follow(vfs, dir, &options, kept, &done));
        for producer in producers {
            producer.join().unwrap();
        }
        store.sync().unwrap();
        done.store(true, Ordering::Release);
        cancel.cancel(&kept_view);
        assert_eq!(never.join().unwrap(), Waited::Cancelled);
        assert_eq!(reader.join().unwrap(), THREADS * count);
    });
    assert_eq!(waited.load(Ordering::Relaxed), 3);
    store.close().unwrap();
    drop(store);
    let (store, report) = open(Arc::clone(vfs), dir, options).unwrap();
    assert!(report.clean);
    let view = store.view().stream(kept).unwrap();
    assert_eq!(view.range().end, THREADS * count + 1);
    assert_eq!(
        consume(store.view(), &view, &AtomicBool::new(true)),
        THREADS * count
    );
    append(&store, trimmed, &value(0, count + 1)).unwrap();
}

#[test]
fn everything_at_once_in_memory() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::untraced());
    everything_at_once(&vfs, Path::new(DIR), 150 * super::seeds());
}

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn everything_at_once_on_a_disk() {
    let name = format!("braidlog-wal-{}", std::process::id());
    let dir = Directory(std::env::temp_dir().join(name));
    let vfs: Arc<dyn Vfs> = Arc::new(RealVfs);
    everything_at_once(&vfs, &dir.0.join("data"), 60 * super::seeds());
}

/// Deadlines and cancels of waiters, and that closing ends them all.
#[test]
fn waiters_end_at_their_deadline_or_when_told() {
    let vfs = MemoryVfs::untraced();
    let (store, _) = super::open_at(&vfs).unwrap();
    let stream = create(&store, "a");
    let view = store.view().stream(stream).unwrap();
    assert_eq!(
        view.wait(1, Duration::from_millis(5), None),
        Waited::TimedOut
    );
    let cancel = Cancel::default();
    cancel.cancel(&view);
    assert_eq!(
        view.wait(1, Duration::from_secs(60), Some(&cancel)),
        Waited::Cancelled
    );
    append(&store, stream, b"x").unwrap();
    assert_eq!(view.wait(1, Duration::ZERO, Some(&cancel)), Waited::Ready);
    scope(|scope| {
        let ended: Vec<_> = (0..20)
            .map(|i| {
                let view = &view;
                scope.spawn(move || view.wait(2 + i, Duration::from_secs(60), None))
            })
            .collect();
        append(&store, stream, b"x").unwrap();
        store.close().unwrap();
        for (i, ended) in ended.into_iter().enumerate() {
            let expected = if i == 0 {
                Waited::Ready
            } else {
                Waited::Cancelled
            };
            assert_eq!(ended.join().unwrap(), expected);
        }
    });
}
