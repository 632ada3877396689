//! The bound on a log's size: kept by the directory, changed by an open, lowered below what is in use.

use std::path::Path;
use std::sync::Arc;

use super::driver::{Driver, open_with};
use super::{DIR, options};
use crate::error::Error;
use crate::limits::WAL_BYTES_DEFAULT;
use crate::vfs::{CrashPolicy, MemoryVfs, Vfs};
use crate::wal::tools::salvage;
use crate::wal::write::options::Options;

const SEGMENT: u64 = 64 << 10;

fn bounded(bytes: Option<u64>) -> Options {
    Options {
        wal_bytes_max: bytes,
        ..options()
    }
}

/// The bound after an open with `given`, in segments.
fn opened(vfs: &MemoryVfs, given: Option<u64>) -> u64 {
    let (store, _) = open_with(vfs, &bounded(given), 1).unwrap();
    let segments = store.stats().segments_max;
    store.close().unwrap();
    segments
}

#[test]
fn the_directory_keeps_the_bound_until_an_open_names_another() {
    let vfs = MemoryVfs::new();
    assert_eq!(opened(&vfs, Some(9 * SEGMENT)), 9);
    assert_eq!(opened(&vfs, None), 9);
    assert_eq!(opened(&vfs, Some(12 * SEGMENT + 5)), 12);
    let crashed = vfs
        .trace()
        .crash(vfs.operations(), CrashPolicy::DropUnsynced);
    assert_eq!(opened(&crashed, None), 12);
    let refused = open_with(&vfs, &bounded(Some(3 * SEGMENT)), 1);
    assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    assert_eq!(opened(&vfs, None), 12);
    assert_eq!(opened(&MemoryVfs::new(), None), WAL_BYTES_DEFAULT / SEGMENT);
    // Nothing is begun for a bound that is refused.
    let empty = MemoryVfs::new();
    assert!(open_with(&empty, &bounded(Some(1)), 1).is_err());
    assert!(
        empty.paths().iter().all(|path| !path.starts_with(DIR)),
        "{:?}",
        empty.paths()
    );
}

#[test]
fn a_repaired_directory_keeps_the_bound() {
    let mut driver = Driver::new(bounded(Some(9 * SEGMENT)));
    let stream = driver.create("a", false);
    driver.push(stream, 100).unwrap();
    driver.store.close().unwrap();
    let shared = Arc::new(driver.vfs.clone()) as Arc<dyn Vfs>;
    let (from, to) = (Path::new(DIR), Path::new("/repaired"));
    let options = salvage::Options {
        keep: salvage::Keep::Most,
        entropy: 1,
        holder: String::new(),
    };
    salvage::salvage(
        &shared,
        from,
        to,
        &options,
        &|_| Ok(Vec::new()),
        &mut |_, _| true,
    )
    .unwrap();
    let (store, _) = crate::wal::open(shared, to, bounded(None)).unwrap();
    assert_eq!(store.stats().segments_max, 9);
}

#[test]
fn a_bound_below_what_is_in_use_still_lets_trim_and_close() {
    for filled in [8000, 500] {
        let mut driver = Driver::new(bounded(Some(14 * SEGMENT)));
        let stream = driver.create("a", false);
        while driver.push(stream, filled).is_ok() {
            driver.sync();
        }
        // So that not even a trim fits behind it.
        while driver.store.stats().durable_offset < SEGMENT - 200 {
            driver.store.raise_epoch(stream, 0).unwrap();
            driver.store.sync().unwrap();
        }
        driver.store.close().unwrap();
        for bound in [4, 9, 13, 14] {
            let vfs = driver.vfs.snapshot();
            let (store, _) = open_with(&vfs, &bounded(Some(bound * SEGMENT)), 7).unwrap();
            let mut driver = Driver::resume(
                vfs,
                store,
                driver.history.clone(),
                bounded(Some(bound * SEGMENT)),
            );
            let used = driver.store.stats().segments;
            assert!(used >= 12, "{used}");
            let refused = driver.push(stream, 100);
            assert!(matches!(refused, Err(Error::LogFull { .. })), "{refused:?}");
            driver.reopen();
            // Nothing is freed by the first, all but the newest by the second.
            driver.trim(stream, 2);
            assert!(driver.store.stats().segments <= used + 2);
            driver.trim(stream, driver.history.get(stream).next() - 1);
            assert!(driver.store.stats().segments < 4);
            driver.push(stream, 100).unwrap();
            driver.reopen();
        }
    }
}
