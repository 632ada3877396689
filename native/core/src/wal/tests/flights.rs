//! Several groups in flight: a later one is durable, an earlier one is not.

use std::path::Path;
use std::sync::Arc;
use std::thread::scope;
use std::time::Duration;

use super::driver::{kept, open_with, record, with_columns};
use super::faults::Opening;
use super::{DIR, contents, create, options};
use crate::vfs::{CrashPolicy, FaultVfs, Gate, MemoryVfs, OpKind, Operation, Rule, Vfs};
use crate::wal::{Follower, Options, Store, open};

fn eager() -> Options {
    Options {
        sync_depth: 3,
        gather_bytes: 1,
        ..options()
    }
}

fn open_over(vfs: &FaultVfs, entropy: u64) -> Store {
    let options = Options { entropy, ..eager() };
    let vfs = Arc::new(vfs.clone()) as Arc<dyn Vfs>;
    open(vfs, Path::new(DIR), options).unwrap().0
}

fn durable_writes(vfs: &MemoryVfs) -> usize {
    let trace = vfs.trace();
    let durable =
        |operation: &&Operation| matches!(operation, Operation::Write { durable: true, .. });
    trace.operations().iter().filter(durable).count()
}

fn submit(store: &Store, stream: u32, tag: u64, len: usize) -> u64 {
    let kept = kept(tag, len);
    store.append(stream, record(&kept), None).unwrap().group
}

/// What a crash leaves when the first of three groups hangs and the others are written. `closed`: the
/// log was closed in good order and opened again before.
fn first_lost(closed: bool, acknowledged: u64, lens: [usize; 3]) -> (MemoryVfs, u32) {
    let memory = MemoryVfs::new();
    let vfs = FaultVfs::new(Arc::new(memory.clone()));
    let mut store = open_over(&vfs, 1);
    let stream = create(&store, "a");
    for tag in 1..=acknowledged {
        store.wait(submit(&store, stream, tag, 100)).unwrap();
    }
    if closed {
        store.close().unwrap();
        drop(store);
        store = open_over(&vfs, 2);
    }
    let gate = Gate::new();
    vfs.add(Rule::hang(OpKind::WriteDurable, &gate).on("slot-").once());
    let written = durable_writes(&memory);
    let shared = &store;
    let image = scope(|scope| {
        let _opening = Opening(&gate);
        let mut writers = Vec::new();
        for (i, len) in lens.into_iter().enumerate() {
            let group = submit(&store, stream, 1000 + i as u64, len);
            writers.push(scope.spawn(move || shared.wait(group)));
            gate.wait_for(1);
            while durable_writes(&memory) < written + i {
                std::thread::yield_now();
            }
        }
        // Time for the later groups to be acknowledged out of order.
        std::thread::sleep(Duration::from_millis(10));
        assert!(writers.iter().all(|writer| !writer.is_finished()));
        let latest = submit(shared, stream, 5000, 10);
        assert!((latest - 3..latest).all(|group| !shared.is_durable(group).unwrap()));
        let seen = contents(store.view(), stream).unwrap();
        assert_eq!(seen.len() as u64, acknowledged, "seen before it is durable");
        let image = memory
            .trace()
            .crash(memory.operations(), CrashPolicy::DropUnsynced);
        gate.open();
        for writer in writers {
            writer.join().unwrap().unwrap();
        }
        image
    });
    let all = contents(store.view(), stream).unwrap();
    assert_eq!(all.len() as u64, acknowledged + 3);
    (image, stream)
}

#[test]
fn a_later_group_does_not_survive_the_loss_of_an_earlier_one() {
    for closed in [false, true] {
        for (acknowledged, lens) in [(0, [100; 3]), (3, [100, 5000, 100]), (40, [9000, 10, 4000])] {
            let (image, stream) = first_lost(closed, acknowledged, lens);
            let text = format!("closed {closed}, {acknowledged} acknowledged, {lens:?}");
            let (store, report) = open_with(&image, &eager(), 7).unwrap();
            let acked = contents(store.view(), stream).unwrap();
            assert_eq!(acked.len() as u64, acknowledged, "{text}");
            let torn = report.torn.unwrap_or_else(|| panic!("{text}: not torn"));
            assert!(torn.erased > 0 && !report.clean, "{text}: {torn:?}");
            // What goes on has the length of what was lost, so that its place would be free for the
            // ones behind.
            store.wait(submit(&store, stream, 1, lens[0])).unwrap();
            let expected = contents(store.view(), stream).unwrap();
            drop(store);
            let (store, _) = open_with(&image.snapshot(), &eager(), 8).unwrap();
            let found = contents(store.view(), stream).unwrap();
            assert_eq!(found.len() as u64, acknowledged + 1, "{text}");
            assert!(found == expected, "{text}");
        }
    }
}

/// The open that cuts the tail may be cut itself, anywhere.
#[test]
fn erasing_what_was_lost_may_be_interrupted() {
    let (image, stream) = first_lost(true, 3, [100, 5000, 9000]);
    let recovered = image.snapshot();
    drop(open_with(&recovered, &eager(), 7).unwrap());
    let trace = recovered.trace();
    for (cut, policy, again) in trace.crashes(12) {
        let (store, _) = open_with(&again, &eager(), 8)
            .unwrap_or_else(|error| panic!("cut {cut} {policy:?}: {error}"));
        assert_eq!(contents(store.view(), stream).unwrap().len(), 3);
        store.wait(submit(&store, stream, 1, 100)).unwrap();
        drop(store);
        let (store, _) = open_with(&again.snapshot(), &eager(), 9).unwrap();
        assert_eq!(
            contents(store.view(), stream).unwrap().len(),
            4,
            "{cut} {policy:?}"
        );
    }
}

#[test]
fn a_segment_that_was_never_listed_shares_its_salt_with_no_successor() {
    let vfs = MemoryVfs::new();
    let mut salts = std::collections::BTreeSet::new();
    for lap in 0..4 {
        let (store, _) = super::open_at(&vfs).unwrap();
        if lap == 0 {
            super::create(&store, "a");
        }
        let mut inner = store.inner.lock();
        inner.appender.slots_ready = 1;
        inner.appender.roll().unwrap();
        let seed = inner.appender.active.segment.seed;
        assert_eq!(seed.segment, 2);
        assert!(salts.insert(seed.salt), "lap {lap}");
        drop(inner);
    }
}

#[test]
fn what_an_earlier_lap_left_behind_is_no_torn_tail() {
    let vfs = MemoryVfs::new();
    let path = std::path::Path::new(super::DIR);
    let shared: std::sync::Arc<dyn crate::vfs::Vfs> = std::sync::Arc::new(vfs.clone());
    let mut slots = std::collections::BTreeMap::new();
    for lap in 0..60 {
        let (store, report) = super::open_at(&vfs).unwrap();
        assert_eq!(report.torn, None, "lap {lap}");
        let stream = if lap == 0 {
            super::create(&store, "a")
        } else {
            1
        };
        let mut llsn = 0;
        // Frames of one size: an earlier lap has the same ordinals at the same offsets.
        for _ in 0..9 {
            llsn = super::append(&store, stream, &[7; 2000]).unwrap();
        }
        store.trim(stream, llsn).unwrap();
        let segment = store.inner.lock().appender.active.segment.clone();
        let laps: &mut std::collections::BTreeSet<u64> =
            slots.entry(segment.path().to_owned()).or_default();
        laps.insert(segment.number);
        drop(store);
        let seen = crate::wal::inspect::condition(&shared, path).unwrap();
        assert_eq!(seen.recovery, "not closed", "lap {lap}");
    }
    assert!(slots.values().any(|laps| laps.len() > 2), "{slots:?}");
}

/// Frames that were placed while a group was in flight are not durable when it retires.
#[test]
fn what_is_gathered_when_a_group_retires_is_not_durable() {
    let memory = MemoryVfs::new();
    let vfs = FaultVfs::new(Arc::new(memory.clone()));
    let store = open_over(&vfs, 1);
    let stream = create(&store, "a");
    let gate = Gate::new();
    vfs.add(Rule::hang(OpKind::WriteDurable, &gate).on("slot-").once());
    let group = submit(&store, stream, 1, 100);
    scope(|scope| {
        let _opening = Opening(&gate);
        let writer = scope.spawn(|| store.wait(group));
        gate.wait_for(1);
        with_columns(&[kept(2, 5000), kept(3, 5000)], |columns| {
            store
                .append_columns(stream, columns, 0..columns.len, 6000, None)
                .unwrap();
        });
        gate.open();
        writer.join().unwrap().unwrap();
    });
    let shared = Arc::new(memory.clone());
    let follower = Follower::open(shared, Path::new(DIR), &eager()).unwrap();
    assert_eq!(contents(follower.view(), stream).unwrap().len(), 1);
    let image = memory
        .trace()
        .crash(memory.operations(), CrashPolicy::KeepAll);
    let (store, _) = open_with(&image, &eager(), 2).unwrap();
    assert_eq!(contents(store.view(), stream).unwrap().len(), 1);
}

/// A segment whose opening was cut is opened again, by the same number in the same slot: what the first
/// attempt wrote there never counts.
#[test]
fn a_segment_opened_again_does_not_read_its_first_attempt() {
    let run = |vfs: &MemoryVfs, lap: u64, len: usize, both: bool| {
        let (store, _) = open_with(vfs, &eager(), lap).unwrap();
        let streams = store.with_state(|state| state.streams.len());
        let (a, b) = if streams == 0 {
            let both = (create(&store, "a"), create(&store, "b"));
            store.provision(4 * (64 << 10)).unwrap();
            for tag in 1..=5 {
                store.wait(submit(&store, both.0, tag, 11_000)).unwrap();
            }
            both
        } else {
            (1, 2)
        };
        vfs.mark(lap);
        let mut group = submit(&store, a, 100 + lap, len);
        if both {
            group = submit(&store, b, 200 + lap, 100);
        }
        store.wait(group).unwrap();
        assert_eq!(store.stats().segments, 2);
        store.stats().durable_offset
    };
    // A length that ends the first frame of the new segment with a block, so that no padding of the
    // second attempt covers what follows.
    let end = run(&MemoryVfs::new(), 1, 9000, false);
    let len = 9000 + (end.next_multiple_of(4096) - end) as usize;
    let first = MemoryVfs::new();
    run(&first, 1, len, true);
    let trace = first.trace();
    let opened = trace.operations().iter().rposition(|operation| {
        matches!(
            operation,
            Operation::Write {
                durable: true,
                offset: 0,
                ..
            }
        )
    });
    let image = trace.crash(opened.unwrap() + 1, CrashPolicy::DropUnsynced);
    assert_eq!(run(&image, 2, len, false) % 4096, 0);
    let image = image
        .trace()
        .crash(image.operations(), CrashPolicy::KeepAll);
    let (store, _) = open_with(&image, &eager(), 3).unwrap();
    assert_eq!(contents(store.view(), 1).unwrap().len(), 6);
    assert_eq!(contents(store.view(), 2).unwrap().len(), 0);
}
