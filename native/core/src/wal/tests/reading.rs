//! Reading what was cut, moved or only partly committed, from files and from memory.

use std::path::Path;
use std::sync::Arc;

use super::driver::{Driver, record};
use super::faults::Opening;
use super::{DIR, options, values_of};
use crate::batch::BatchView;
use crate::vfs::{FaultVfs, Gate, MemoryVfs, OpKind, Rule, Vfs};
use crate::wal::{CommitContext, NewLog, Options, Position, Store, open};

fn from_files() -> Options {
    Options {
        recent_bytes_max: 0,
        ..options()
    }
}

/// A stream of replicas with twenty records, and one to fill segments with.
fn twenty() -> (Driver, u32, u32) {
    let mut driver = Driver::new(from_files());
    let (ordered, filler) = (
        driver.create("ordered", true),
        driver.create("filler", false),
    );
    for _ in 0..20 {
        driver.push(ordered, 100).unwrap();
    }
    (driver, ordered, filler)
}

/// Fill the rest of the active segment and more.
fn roll(driver: &mut Driver, filler: u32) {
    for _ in 0..6 {
        driver.push(filler, 12_000).unwrap();
        driver.sync();
    }
}

#[test]
fn a_rollback_in_the_active_segment_cuts_what_older_ones_hold() {
    let (mut driver, ordered, filler) = twenty();
    driver.commit(ordered, 10);
    driver.sync();
    roll(&mut driver, filler);
    driver.roll_back(ordered, 13);
    for _ in 0..10 {
        driver.push(ordered, 100).unwrap();
    }
    driver.commit(ordered, 12);
    driver.sync();
    driver.check("active");
    driver
        .history
        .check_points(driver.store.view(), 1, "active");
    driver.reopen();
    driver
        .history
        .check_points(driver.store.view(), 1, "reopened");
    roll(&mut driver, filler);
    driver.check("sealed");
}

#[test]
fn the_cleaner_does_not_bring_back_what_was_rolled_back() {
    let (mut driver, ordered, filler) = twenty();
    driver.commit(ordered, 10);
    driver.sync();
    roll(&mut driver, filler);
    driver.roll_back(ordered, 13);
    for _ in 0..10 {
        driver.push(ordered, 100).unwrap();
    }
    driver.commit(ordered, 12);
    driver.sync();
    let next = driver.history.get(filler).next();
    driver.trim(filler, next);
    assert!(driver.clean(1).moved_bytes > 0);
    driver.check("moved");
    driver.history.check_points(driver.store.view(), 1, "moved");
    roll(&mut driver, filler);
    driver.check("sealed");
    driver.reopen();
}

/// A rollback is forgotten with the segment that it is in, as soon as nothing alive is in there. What it took back may still
/// stand in an older one.
#[test]
fn the_cleaner_leaves_what_a_dropped_segment_took_back() {
    let (mut driver, ordered, filler) = twenty();
    driver.commit(ordered, 12);
    driver.sync();
    roll(&mut driver, filler);
    driver.roll_back(ordered, 13);
    driver.sync();
    roll(&mut driver, filler);
    driver.trim(ordered, 12);
    let before = driver.store.view().segments().len();
    let next = driver.history.get(filler).next();
    driver.trim(filler, next);
    let left = driver.store.view().segments();
    assert_eq!((left.len(), left[0].number), (2, 1), "of {before}");

    driver.clean(1);
    for _ in 0..10 {
        driver.push(ordered, 100).unwrap();
    }
    driver.commit(ordered, 10);
    driver.sync();
    driver.check("active");
    roll(&mut driver, filler);
    driver.check("sealed");
    driver
        .history
        .check_points(driver.store.view(), 1, "sealed");
    driver.reopen();
}

#[test]
fn a_reader_goes_on_in_the_middle_of_a_batch() {
    let mut driver = Driver::new(from_files());
    let ordered = driver.create("ordered", true);
    for _ in 0..20 {
        driver.push(ordered, 100).unwrap();
    }
    driver.sync();
    let view = Arc::clone(driver.store.view());
    let stream = view.stream(ordered).unwrap();
    let (mut position, mut next) = (Position::default(), 1);
    for count in [3, 1, 7, 9] {
        driver.commit(ordered, count);
        driver.sync();
        for batch in view
            .read(&stream, next, u64::MAX, 1 << 20, &mut position)
            .unwrap()
        {
            assert_eq!(batch.first(), next);
            next = batch.next();
        }
        assert_eq!(next, driver.history.get(ordered).committed);
    }
}

#[test]
fn a_batch_in_memory_ends_where_a_rollback_cut_it() {
    for wait_between in [false, true] {
        let mut driver = Driver::new(options());
        let ordered = driver.create("ordered", true);
        for _ in 0..20 {
            driver.push(ordered, 100).unwrap();
        }
        if wait_between {
            driver.sync();
        }
        driver.roll_back(ordered, 13);
        driver.push(ordered, 50).unwrap();
        driver.push(ordered, 50).unwrap();
        driver.commit(ordered, 14);
        driver.sync();
        driver.check("in memory");
        driver
            .history
            .check_points(driver.store.view(), 1, "in memory");
    }
}

/// A group that was in flight when the rollback was submitted becomes readable after it.
#[test]
fn a_rollback_while_its_records_are_in_flight_is_seen_by_readers() {
    let memory = MemoryVfs::new();
    let vfs = FaultVfs::new(Arc::new(memory));
    let (store, _) = open(
        Arc::new(vfs.clone()) as Arc<dyn Vfs>,
        Path::new(DIR),
        options(),
    )
    .unwrap();
    let log = NewLog {
        id: 1,
        explicit_commit: true,
        created: 0,
        name: "ordered".into(),
        options: Vec::new(),
    };
    let stream = store.create_log(log).unwrap();
    let push = |tag: u64| {
        let kept = super::driver::kept(tag, 100);
        store.append(stream, record(&kept), None).unwrap().group
    };
    let first = (1..=20).map(push).last().unwrap();
    let gate = Gate::new();
    vfs.add(Rule::hang(OpKind::WriteDurable, &gate).on("slot-").once());
    std::thread::scope(|scope| {
        let _opening = Opening(&gate);
        let writer = scope.spawn(|| store.wait(first));
        gate.wait_for(1);
        store.rollback(stream, 0, 13).unwrap();
        push(100);
        gate.open();
        writer.join().unwrap().unwrap();
    });
    let context = CommitContext {
        version: 1,
        glsn_begin: 1,
        llsn_begin: 1,
        length: 13,
        high_watermark: 13,
    };
    store
        .wait(store.commit(stream, 0, context).unwrap())
        .unwrap();
    let view = store.view().stream(stream).unwrap();
    let found = values_of(store.view(), &view, 1, 1 << 20).unwrap();
    assert_eq!(found.len(), 13);
    assert_eq!(found[12].1, *super::driver::kept(100, 100).value);
    let by_position = store.view().get(&view, 13).unwrap().value;
    assert_eq!(by_position.unwrap(), *super::driver::kept(100, 100).value);
    assert_eq!(batches(&store, stream), [12, 1]);
}

/// Copies are placed, then written: until then their origin is read.
#[test]
fn records_are_read_while_their_copies_are_in_flight() {
    let memory = MemoryVfs::new();
    let vfs = FaultVfs::new(Arc::new(memory));
    let (store, _) = open(Arc::new(vfs.clone()), Path::new(DIR), from_files()).unwrap();
    let (slow, fast) = (super::create(&store, "slow"), super::create(&store, "fast"));
    let mut last = 0;
    for tag in 1..=20 {
        super::append(&store, slow, &super::driver::kept(tag, 100).value).unwrap();
        last = super::append(&store, fast, &[1; 9000]).unwrap();
    }
    store.trim(fast, last).unwrap();
    let gate = Gate::new();
    vfs.add(Rule::hang(OpKind::WriteDurable, &gate).on("slot-").once());
    let (found, one) = std::thread::scope(|scope| {
        let _opening = Opening(&gate);
        let cleaner = scope.spawn(|| store.clean(1, 0.9));
        gate.wait_for(1);
        let view = store.view().stream(slow).unwrap();
        let found = (
            values_of(store.view(), &view, 1, 1 << 20),
            store.view().get(&view, 2),
        );
        gate.open();
        assert!(cleaner.join().unwrap().unwrap().moved_bytes > 0);
        found
    });
    assert_eq!(found.unwrap(), super::contents(store.view(), slow).unwrap());
    assert_eq!(
        one.unwrap().value.unwrap(),
        *super::driver::kept(2, 100).value
    );
}

/// A commit run follows the records that it belongs to, in whatever order the cleaner meets them.
#[test]
fn commit_runs_are_copied_with_their_records() {
    let mut driver = Driver::new(from_files());
    let (ordered, filler) = (
        driver.create("ordered", true),
        driver.create("filler", false),
    );
    for round in 0..12 {
        for _ in 0..6 {
            driver.push(ordered, 300).unwrap();
            driver.commit(ordered, 1);
            driver.sync();
        }
        roll(&mut driver, filler);
        let next = driver.history.get(filler).next();
        driver.trim(filler, next);
        driver.clean(1 + round % 3);
        driver.check("cleaned");
    }
    driver.reopen();
    let expected = driver.history.get(ordered).committed;
    let (view, dir) = (driver.store.view(), Path::new(DIR));
    for llsn in 1..expected {
        let segments = view.segments();
        let glsn = segments.iter().find_map(|segment| {
            let glsn_of = |index: &crate::index::SegmentIndex| {
                let mut lanes = index.lanes(ordered);
                lanes.find_map(|(_, lane)| lane.glsn_of(llsn))
            };
            segment.with_index(&*view.vfs, dir, glsn_of).unwrap()
        });
        // The driver leaves three GLSNs to others before each commit.
        assert_eq!(glsn, Some(4 * llsn), "LLSN {llsn}");
    }
}

/// Records wanted of each batch of a stream.
fn batches(store: &Store, stream: u32) -> Vec<u32> {
    let stream = store.view().stream(stream).unwrap();
    let mut position = Position::default();
    let read = store
        .view()
        .read(&stream, 1, u64::MAX, 1 << 20, &mut position);
    let counts = read.unwrap().into_iter().map(|batch| {
        assert!(BatchView::parse(batch.bytes()).is_ok());
        batch.end - batch.begin
    });
    counts.collect()
}

/// A record and its commit may lie in different segments: that of the commit stays as long as the record.
#[test]
fn a_segment_stays_while_it_holds_the_commit_of_a_live_record() {
    let mut driver = Driver::new(from_files());
    let (ordered, filler) = (
        driver.create("ordered", true),
        driver.create("filler", false),
    );
    (0..4).for_each(|_| _ = driver.push(ordered, 100).unwrap());
    roll(&mut driver, filler);
    driver.commit(ordered, 4);
    roll(&mut driver, filler);
    roll(&mut driver, filler);
    let all = driver.store.view().segments().len();
    driver.trim(filler, driver.history.get(filler).next());
    let runs = |driver: &Driver| driver.store.commit_runs(ordered, 1, 9).unwrap();
    let [run] = runs(&driver)[..] else {
        panic!("{:?}", runs(&driver))
    };
    assert_eq!((run.llsn_begin, run.length), (1, 4));
    let left: Vec<u64> = driver
        .store
        .view()
        .segments()
        .iter()
        .map(|s| s.number)
        .collect();
    assert_eq!(
        (left[..2].to_vec(), left.len()),
        (vec![1, 2], 3),
        "of {all}"
    );
    driver.reopen();
    assert_eq!(runs(&driver), [run]);
    driver.trim(ordered, 5);
    assert_eq!(driver.store.view().segments().len(), 1);
}
