//! What an open may leave out: writes before there is a change, and bytes that no write has reached.

use std::path::Path;
use std::sync::Arc;
use std::thread::scope;

use super::driver::{Driver, kept, open_with, record};
use super::{DIR, contents, create, options};
use crate::vfs::{CrashPolicy, Fault, FaultVfs, MemoryVfs, OpKind, Rule, Vfs};
use crate::wal::recover::fold::begin;
use crate::wal::{Options, Watermark, open, open_tables};

/// Every file but those that each writer writes for others to see.
fn content(vfs: &MemoryVfs) -> Vec<(String, Vec<u8>)> {
    let kept = |path: &String| {
        let passing = path.ends_with("LOCK") || path.ends_with("WATERMARK");
        !passing && !path.ends_with('/')
    };
    let paths = vfs.paths().into_iter().filter(kept);
    paths
        .filter_map(|path| {
            let bytes = vfs.read(Path::new(&path), 1 << 20).ok()?;
            Some((path, bytes))
        })
        .collect()
}

fn closed() -> (MemoryVfs, Driver) {
    let mut driver = Driver::new(options());
    let stream = driver.create("a", false);
    for _ in 0..30 {
        driver.push(stream, 3000).unwrap();
        driver.sync();
    }
    driver.store.close().unwrap();
    (driver.vfs.snapshot(), driver)
}

#[test]
fn a_closed_log_that_is_only_read_is_not_written_to() {
    let (vfs, driver) = closed();
    let before = content(&vfs);
    assert!(before.len() > 3);
    for how in ["closed", "killed"] {
        let (store, report) = open_with(&vfs, &options(), 5).unwrap();
        assert!(report.clean, "{how}");
        driver.history.check(store.view(), how);
        if how == "closed" {
            store.close().unwrap();
        }
        drop(store);
        assert!(content(&vfs) == before, "{how}");
    }
}

/// The close stops counting before the first byte of the next writer can.
#[test]
fn the_first_write_ends_the_close() {
    let (vfs, driver) = closed();
    let next = driver.history.get(1).next();
    let (store, _) = open_with(&vfs, &options(), 5).unwrap();
    super::append(&store, 1, &[7; 5000]).unwrap();
    drop(store);
    let trace = vfs.trace();
    let mut counted = [0, 0];
    for (cut, policy, image) in trace.crashes(3) {
        let text = format!("{cut} {policy:?}");
        let (store, report) =
            open_with(&image, &options(), 6).unwrap_or_else(|error| panic!("{text}: {error}"));
        let found = contents(store.view(), 1).unwrap().len() as u64;
        let longer = found == next;
        assert!(longer || found == next - 1, "{text}: {found}");
        assert!(!longer || !report.clean, "{text}: closed behind a write");
        counted[usize::from(report.clean)] += 1;
        super::append(&store, 1, &[8; 10]).unwrap();
        store.close().unwrap();
        drop(store);
        let (store, report) = open_with(&image, &options(), 7).unwrap();
        assert!(report.clean, "{text}");
        let again = contents(store.view(), 1).unwrap().len() as u64;
        assert_eq!(again, found + 1, "{text}");
    }
    assert!(counted[0] > 3 && counted[1] > 3, "{counted:?}");
}

/// Without room for a new manifest file the ballast gives some.
#[test]
fn a_full_disk_does_not_keep_a_closed_log_closed() {
    let (vfs, _) = closed();
    let full = FaultVfs::new(Arc::new(vfs.clone()));
    let (store, _) = open(Arc::new(full.clone()), Path::new(DIR), options()).unwrap();
    full.add(
        Rule::fail(OpKind::Write, Fault::NoSpace)
            .on("MANIFEST-")
            .once(),
    );
    super::append(&store, 1, &[7; 100]).unwrap();
    store.close().unwrap();
}

/// Behind the reach that a crash leaves in the watermark stands nothing of the lap, with several writes in
/// flight too.
#[test]
fn no_write_ends_beyond_the_reach() {
    let vfs = MemoryVfs::new();
    let eager = Options {
        sync_depth: 3,
        gather_bytes: 1,
        ..options()
    };
    let (store, _) = open_with(&vfs, &eager, 1).unwrap();
    let streams = ["a", "b", "c"].map(|name| create(&store, name));
    scope(|scope| {
        for stream in streams {
            let store = &store;
            scope.spawn(move || {
                for tag in 0..25 {
                    let kept = kept(tag, 100 + tag as usize * 97 % 3000);
                    let ticket = store.append(stream, record(&kept), None).unwrap();
                    store.wait(ticket.group).unwrap();
                }
            });
        }
    });
    drop(store);
    let trace = vfs.trace();
    let (mut bounded, mut behind) = (0, 0);
    for (cut, policy, image) in trace.crashes(2) {
        let Some(mark) = Watermark::read(&image, Path::new(DIR)).unwrap() else {
            continue;
        };
        let shared: Arc<dyn Vfs> = Arc::new(image.clone());
        let Ok((_, _, segments)) = open_tables(&shared, Path::new(DIR)) else {
            continue;
        };
        let newest = segments.last().unwrap();
        if mark.seed() != newest.seed {
            continue;
        }
        let file = newest.reader(&image).unwrap();
        let (_, mut walk) = begin(&image, Path::new(DIR), file, newest).unwrap();
        while walk.next_frame().unwrap().is_some() {}
        let ghosts = walk.ghosts(newest.bytes).unwrap();
        let end = ghosts.iter().map(|(_, end, _)| *end).max();
        let end = end.unwrap_or(walk.offset);
        assert!(end <= mark.reach, "{cut} {policy:?}: {end} {mark:?}");
        bounded += usize::from(mark.reach < newest.bytes);
        behind += usize::from(!ghosts.is_empty());
        if matches!(policy, CrashPolicy::KeepAll) {
            open_with(&image, &eager, 3).unwrap();
        }
    }
    assert!(bounded > 50 && behind > 0, "{bounded} {behind}");
}
