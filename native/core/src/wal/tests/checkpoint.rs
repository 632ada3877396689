//! The checkpoint file: an open goes by it, and is the same without it.

use std::path::Path;
use std::sync::Arc;

use super::driver::{Driver, open_with};
use super::{DIR, contents, options};
use crate::error::Error;
use crate::index::SegmentIndex;
use crate::vfs::{Access, MemoryVfs, Vfs};
use crate::wal::tools::verify::verify;
use crate::wal::{CHECKPOINT, Checkpoint, Follower, Mark, OpenReport, State};

fn path() -> std::path::PathBuf {
    Path::new(DIR).join(CHECKPOINT)
}

fn held(vfs: &MemoryVfs) -> Vec<u8> {
    vfs.read(&path(), 1 << 20).unwrap()
}

/// A log with commits, cuts, cursors and copies, some way into a segment and not closed.
fn busy() -> Driver {
    busy_with(false)
}

fn busy_with(orders: bool) -> Driver {
    let mut driver = Driver::new(options());
    driver.orders = orders;
    let (plain, ordered) = (
        driver.create("plain", false),
        driver.create("ordered", true),
    );
    for round in 0..40 {
        driver.produce(plain, 3, 300 + round).unwrap();
        driver.push(ordered, 700).unwrap();
        driver.push(ordered, 100).unwrap();
        driver.commit(ordered, 1);
        driver.sync();
        if round % 5 == 0 {
            driver.roll_back(ordered, driver.history.get(ordered).committed);
            driver.raise_epoch(ordered, round as u64 + 1);
            driver.set_cursor(plain, "c", round as u64 + 1);
            driver.sync();
        }
        if round == 20 {
            driver.trim(plain, 10);
            driver.clean(1);
        }
    }
    while !(40_000..56_000).contains(&driver.store.stats().durable_offset) {
        driver.push(plain, 700).unwrap();
        driver.sync();
    }
    driver
}

fn opened(vfs: &MemoryVfs) -> (State, OpenReport, Vec<(u32, Vec<u8>)>) {
    let (store, report) = open_with(&vfs.snapshot(), &options(), 9).unwrap();
    let index = |segment: &Arc<crate::wal::Segment>| {
        let end = segment.sealed().map_or(1 << 16, |sealed| sealed.end);
        (end, segment.encode_index(end).unwrap_or_default())
    };
    let indexes = store.view().segments().iter().map(index).collect();
    (store.state(), report, indexes)
}

#[test]
fn an_open_goes_by_it_and_finds_the_same_without_it() {
    let driver = busy();
    let vfs = driver.vfs.snapshot();
    let (with, report, index) = opened(&vfs);
    vfs.remove(&path()).unwrap();
    let (without, scanned, rebuilt) = opened(&vfs);
    assert!(with == without && index == rebuilt);
    assert!(
        report.scanned_bytes * 4 < scanned.scanned_bytes,
        "{report:?} {scanned:?}"
    );
}

/// It does not have the order: an open has to see the frames that say it.
#[test]
fn there_is_none_while_a_stream_is_in_order() {
    let driver = busy_with(true);
    driver.store.close().unwrap();
    assert!(Checkpoint::decode(&held(&driver.vfs)).is_none());
}

#[test]
fn after_a_close_there_is_next_to_nothing_to_fold() {
    let driver = busy();
    driver.store.close().unwrap();
    let (_, report, _) = opened(&driver.vfs);
    assert!(report.clean && report.scanned_bytes < 256, "{report:?}");
}

/// Whatever stands in the file: the log is the same, and nothing fails.
#[test]
fn a_damaged_one_is_none() {
    let driver = busy();
    let vfs = driver.vfs.snapshot();
    let whole = held(&vfs);
    let (expected, ..) = opened(&vfs);
    let known = Checkpoint::decode(&whole).unwrap();
    assert_eq!(known.encode(), whole[..known.encode().len()]);
    for at in (0..known.encode().len()).step_by(7) {
        let harmed = vfs.snapshot();
        harmed.flip_bit(&path(), at as u64, 5).unwrap();
        assert!(Checkpoint::decode(&held(&harmed)).is_none(), "{at}");
        assert!(opened(&harmed).0 == expected, "{at}");
    }
    for len in [0, 20, 47, 48, whole.len() as u64 - 1] {
        let harmed = vfs.snapshot();
        harmed.truncate_file(&path(), len).unwrap();
        assert!(opened(&harmed).0 == expected, "{len}");
    }
    // Longer than any that was written.
    let harmed = vfs.snapshot();
    let file = harmed.open(&path(), Access::Write).unwrap();
    file.write_all_at(&vec![7; 70_000], 100_000).unwrap();
    assert!(opened(&harmed).0 == expected);
}

/// One whose frame is not there, which only somebody's hands can bring about.
#[test]
fn one_that_its_segment_does_not_bear_out_is_none() {
    let driver = busy();
    let vfs = driver.vfs.snapshot();
    let (expected, before, _) = opened(&vfs);
    let known = Checkpoint::decode(&held(&vfs)).unwrap();
    let changes: [fn(&mut Mark); 4] = [
        |mark| mark.ordinal += 1,
        |mark| mark.last += 8,
        |mark| mark.offset += 8,
        |mark| mark.seed.salt ^= 1,
    ];
    for change in changes {
        let mut forged = known.clone();
        change(&mut forged.mark);
        let harmed = vfs.snapshot();
        harmed.replace(&path(), &forged.encode()).unwrap();
        let (state, report, _) = opened(&harmed);
        assert!(state == expected, "{forged:?}");
        assert!(report.scanned_bytes > before.scanned_bytes, "{report:?}");
    }
}

/// Damage before it is none of the open's business: like in an older segment, who reads it finds it.
#[test]
fn damage_before_it_is_found_by_who_reads_it() {
    let driver = busy();
    let vfs = driver.vfs.snapshot();
    let known = Checkpoint::decode(&held(&vfs)).unwrap();
    let (store, _) = open_with(&vfs.snapshot(), &options(), 9).unwrap();
    let newest = store.view().segments().last().unwrap().path().to_owned();
    let damaged = vfs.snapshot();
    damaged
        .flip_bit(&newest, u64::from(known.mark.last) - 100, 0)
        .unwrap();
    let (store, _) = open_with(&damaged.snapshot(), &options(), 9).unwrap();
    let read = |number| contents(store.view(), number);
    let found = [1, 2].map(read);
    assert!(
        found
            .iter()
            .any(|found| matches!(found, Err(Error::Corruption { .. }))),
        "{found:?}"
    );
    // Without it the open meets the damage, and does not take it for the end.
    damaged.remove(&path()).unwrap();
    let refused = open_with(&damaged, &options(), 9).map(|_| ()).unwrap_err();
    assert!(matches!(refused, Error::Corruption { .. }), "{refused}");
}

/// One whose checksum is right, and which is not what the log adds up to.
#[test]
fn verification_finds_one_that_is_wrong() {
    let driver = busy();
    driver.store.close().unwrap();
    let vfs = driver.vfs.snapshot();
    let damaged = |vfs: &MemoryVfs| {
        let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
        let report = verify(&shared, Path::new(DIR), &mut |_, _| true).unwrap();
        let paths = report.damage().map(|finding| finding.path.clone());
        paths.collect::<Vec<_>>()
    };
    assert!(damaged(&vfs).is_empty());
    let known = Checkpoint::decode(&held(&vfs)).unwrap();
    let (mut state, mut index) = (known.clone(), known);
    state.state.next_stream += 1;
    index.index = SegmentIndex::default();
    for wrong in [state, index] {
        vfs.replace(&path(), &wrong.encode()).unwrap();
        assert_eq!(damaged(&vfs), [path()]);
    }
}

#[test]
fn a_follower_goes_by_it() {
    let driver = busy();
    let vfs: Arc<dyn Vfs> = Arc::new(driver.vfs.clone());
    let mut follower = Follower::open(vfs, Path::new(DIR), &options()).unwrap();
    driver.history.check(follower.view(), "beside the writer");
    let mut driver = driver;
    for _ in 0..60 {
        driver.push(1, 900).unwrap();
        driver.sync();
        follower.refresh().unwrap();
        driver.history.check(follower.view(), "followed");
    }
}
