//! The first segment of a log: its file begins short and grows, and whatever is cut or lost meanwhile is noticed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::driver::{Driver, open_with};
use super::{DIR, options};
use crate::error::Error;
use crate::vfs::{CrashPolicy, FaultVfs, MemoryVfs, Vfs};
use crate::wal::tools::inspect::edits;
use crate::wal::tools::verify::{Finding, Severity, verify};
use crate::wal::{Follower, Options, open, open_tables};

/// A log whose file begins with half of its length.
fn half() -> Options {
    Options {
        begin_bytes: 32 << 10,
        ..options()
    }
}

fn slot() -> PathBuf {
    Path::new(DIR).join("wal/slot-000001.wal")
}

fn length(vfs: &MemoryVfs) -> usize {
    vfs.read(&slot(), 1 << 20).unwrap().len() >> 10
}

/// What the manifest says of the file.
fn listed(vfs: &MemoryVfs) -> usize {
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let (_, files, _) = open_tables(&shared, Path::new(DIR)).unwrap();
    files.filled_bytes(1).unwrap() as usize >> 10
}

#[test]
fn the_file_grows_with_the_log_and_others_read_it_meanwhile() {
    let mut driver = Driver::new(options());
    let stream = driver.create("a", false);
    let shared: Arc<dyn Vfs> = Arc::new(driver.vfs.clone());
    let mut follower = Follower::open(shared, Path::new(DIR), &options()).unwrap();
    let mut lengths = vec![length(&driver.vfs)];
    while driver.store.stats().newest_segment == 1 {
        driver.push(stream, 1000).unwrap();
        driver.sync();
        let length = length(&driver.vfs);
        assert_eq!(listed(&driver.vfs), length);
        if lengths.last() != Some(&length) {
            lengths.push(length);
        }
        follower.refresh().unwrap();
        driver.history.check(follower.view(), "follower");
    }
    assert_eq!(lengths, [12, 48, 64]);
    driver.check("writer");
    driver.reopen();
    driver.check("opened again");
}

#[test]
fn housekeeping_makes_the_file_longer_before_an_append_waits_for_it() {
    let mut driver = Driver::new(half());
    let stream = driver.create("a", false);
    driver.push(stream, 500).unwrap();
    driver.sync();
    assert!(!driver.store.prepare_slot().unwrap());
    driver.push(stream, 15_000).unwrap();
    driver.sync();
    assert_eq!(length(&driver.vfs), 32);
    assert!(driver.store.prepare_slot().unwrap(), "half full");
    assert_eq!(length(&driver.vfs), 64);
    assert!(!driver.store.would_wait(stream, 20_000));
    assert!(!driver.store.prepare_slot().unwrap());
    assert_eq!(driver.store.stats().free_slots, 0);
}

#[test]
fn provisioning_makes_the_file_whole_before_it_makes_slots() {
    let driver = Driver::new(options());
    assert_eq!(driver.store.provision(1).unwrap(), 1);
    assert_eq!(length(&driver.vfs), 64);
    assert_eq!(driver.store.stats().free_slots, 1);
}

#[test]
fn one_append_may_need_more_than_one_step() {
    let mut driver = Driver::new(Options {
        segment_bytes: 1 << 20,
        wal_bytes_max: Some(8 << 20),
        ..options()
    });
    let stream = driver.create("a", false);
    driver.push(stream, 200 << 10).unwrap();
    driver.sync();
    assert_eq!(length(&driver.vfs), 768);
    driver.check("large");
}

#[test]
fn a_change_of_state_makes_the_file_longer_too() {
    let mut driver = Driver::new(options());
    let stream = driver.create("a", false);
    for turn in 0..200 {
        driver.set_cursor(stream, &format!("reader {}", turn % 3), 1);
    }
    driver.sync();
    assert_eq!(length(&driver.vfs), 48);
    driver.reopen();
    driver.check("opened again");
}

#[test]
fn a_log_that_cannot_grow_refuses_and_goes_on_when_it_can() {
    let vfs = FaultVfs::new(Arc::new(MemoryVfs::new()));
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let (store, _) = open(shared, Path::new(DIR), half()).unwrap();
    let stream = super::create(&store, "a");
    vfs.set_free_bytes(Some(8 << 10));
    let refused = (0..100).find_map(|_| super::append(&store, stream, &[7; 1000]).err());
    assert!(matches!(refused, Some(Error::Io { .. })), "{refused:?}");
    let kept = super::contents(store.view(), stream).unwrap().len();
    assert!(kept > 2, "the file that is there is used");
    // Room for state is left where records find none.
    store.trim(stream, 2).unwrap();
    vfs.set_free_bytes(None);
    super::append(&store, stream, &[7; 1000]).unwrap();
    assert_eq!(super::contents(store.view(), stream).unwrap().len(), kept);
    store.close().unwrap();
}

/// A log whose first segment has a file of 48 KiB, and its writer was killed.
fn killed_at_48() -> Driver {
    let mut driver = Driver::new(options());
    let stream = driver.create("a", false);
    for _ in 0..12 {
        driver.push(stream, 1000).unwrap();
        driver.sync();
    }
    assert_eq!(length(&driver.vfs), 48);
    driver
}

#[test]
fn a_file_that_lost_bytes_is_refused_and_one_that_was_growing_is_not() {
    for (bytes, fine) in [(44, false), (48, true), (52, true), (64, true), (68, false)] {
        let driver = killed_at_48();
        let image = driver
            .vfs
            .trace()
            .crash(driver.vfs.operations(), CrashPolicy::KeepAll);
        image.truncate_file(&slot(), bytes << 10).unwrap();
        let shared: Arc<dyn Vfs> = Arc::new(image.clone());
        let report = verify(&shared, Path::new(DIR), &mut |_, _| true).unwrap();
        let bad = |finding: &Finding| finding.severity == Severity::Corruption;
        assert_eq!(
            report.findings.iter().any(bad),
            !fine,
            "{bytes}: {report:?}"
        );
        match open_with(&image, &options(), 7) {
            Ok((store, _)) => {
                assert!(fine, "{bytes}");
                driver.history.check(store.view(), "opened again");
                let stream = store.with_state(|state| *state.streams.keys().next().unwrap());
                for _ in 0..40 {
                    super::append(&store, stream, &[7; 1000]).unwrap();
                }
                assert_eq!(length(&image), 64);
            }
            Err(Error::Missing { path, .. }) => assert!(!fine && path == slot(), "{bytes}"),
            Err(error) => panic!("{bytes}: {error}"),
        }
    }
}

#[test]
fn only_while_the_file_is_short_does_the_manifest_say_what_older_builds_refuse() {
    let short = |vfs: &MemoryVfs| {
        let edits = edits(vfs, Path::new(DIR)).unwrap();
        edits.rows.iter().any(|row| row.operation == "fill-slot")
    };
    let mut driver = Driver::new(options());
    let stream = driver.create("a", false);
    driver.reopen();
    assert!(short(&driver.vfs));
    for _ in 0..60 {
        driver.push(stream, 1000).unwrap();
        driver.sync();
    }
    assert_eq!(listed(&driver.vfs), 64);
    driver.reopen();
    // The file list of that open, which has no need to tell.
    driver.push(stream, 1000).unwrap();
    driver.sync();
    assert!(!short(&driver.vfs));
}
