//! Tasks that overlap.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::vfs::{FaultVfs, Gate, OpKind, Rule};

/// Two ranges that share runs, each with more slices than it should have.
fn two_ranges(vfs: Arc<dyn Vfs>) -> World {
    let mut world = World::create(vfs, TINY).unwrap();
    world.flushed("abcdefghijklmnopqr", &[1; 20]);
    assert!(world.tree.reshape().unwrap());
    assert_eq!(world.tree.stats().ranges, 2);
    for round in 2..5 {
        world.flushed("acegikmoqrpnljhfdb", &[round; 9]);
    }
    world.check();
    world
}

/// Scenario 26: two merges and a flush end in any order, and recency stays what it was.
#[test]
fn merges_and_a_flush_end_in_any_order() {
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let mut world = two_ranges(Arc::new(MemoryVfs::untraced()));
        let tree = Arc::clone(&world.tree);
        let mut tasks = [tree.pick(), tree.pick()];
        assert!(
            tree.pick().is_none(),
            "nobody else works on a range that is merged"
        );
        assert!(!tree.reshape().unwrap());
        for task in tasks.iter_mut().flatten() {
            task.run(None).unwrap();
        }
        for what in order {
            match what {
                2 => world.flushed("aqbr", b"flushed meanwhile"),
                _ => tasks[what].take().unwrap().install().unwrap(),
            }
            world.check();
        }
        drop(tasks);
        world = world.reopen();
        world.check_whole();
        world.settle();
        world.check_whole();
    }
}

/// Scenario 20: whoever drops a tree need not wait for its tasks, and they leave nothing behind.
#[test]
fn a_task_of_a_dropped_tree_discards_what_it_wrote() {
    let world = two_ranges(Arc::new(MemoryVfs::untraced()));
    let files = world.files();
    let mut task = world.tree.pick().unwrap();
    task.run(None).unwrap();
    assert!(world.files().len() > files.len());
    world.tree.abandon();
    assert!(matches!(task.install(), Err(Error::Closed)));
    assert_eq!(world.files(), files);
    assert!(matches!(world.tree.merge(None), Err(Error::Closed)));
    assert!(matches!(world.tree.flush(), Err(Error::Closed)));
    assert_eq!(world.files(), files);
    world.check();
}

#[test]
fn a_task_that_is_given_up_leaves_nothing() {
    let world = two_ranges(Arc::new(MemoryVfs::untraced()));
    let files = world.files();
    let task = world.tree.pick().unwrap();
    let error = task.install().unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "it has not run");
    let mut task = world.tree.pick().unwrap();
    task.run(None).unwrap();
    task.run(None).unwrap();
    drop(task);
    assert_eq!(world.files(), files);
    // An error of the filter is one of the merge.
    let mut count = 0;
    let mut filter = |_: &Entry<'_>, _| {
        count += 1;
        if count == 5 {
            Err(Error::Closed)
        } else {
            Ok(true)
        }
    };
    assert!(world.tree.merge(Some(&mut filter)).is_err());
    assert_eq!(world.files(), files);
    world.settle();
    world.check_whole();
}

/// Scenario 19, and the reading side of 50: readers and a writer in threads of their own.
#[test]
fn readers_wait_for_nobody() {
    let disk = MemoryVfs::untraced();
    let faults = FaultVfs::new(Arc::new(disk));
    let mut world = two_ranges(Arc::new(faults.clone()));
    let gate = Gate::new();
    faults.add(Rule::hang(OpKind::Sync, &gate));
    world.apply(&[(b"c".to_vec(), Some(vec![9]))]);
    std::thread::scope(|scope| {
        let tree = Arc::clone(&world.tree);
        let flush = scope.spawn(move || tree.flush());
        gate.wait_for(1);
        // The flush holds the committer, and everything is read and applied meanwhile.
        world.check();
        world.apply(&[(b"d".to_vec(), None), (b"c".to_vec(), Some(vec![8]))]);
        world.check();
        gate.open();
        assert!(flush.join().unwrap().unwrap());
    });
    world.check();
    assert!(world.tree.flush().unwrap());
    world.check_whole();
}

#[test]
fn threads_that_apply_flush_merge_and_read() {
    let mut world = World::memory();
    let is_over = AtomicBool::new(false);
    let log: Vec<Change> = (0..6000_u32)
        .map(|n| {
            (
                vec![b'a' + (n * 11 % 23) as u8],
                Some(n.to_le_bytes().to_vec()),
            )
        })
        .collect();
    let tree = Arc::clone(&world.tree);
    std::thread::scope(|scope| {
        for merger in 0..3 {
            let (tree, is_over) = (&tree, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    match merger {
                        0 => drop(tree.flush().unwrap()),
                        _ => drop((tree.merge(None).unwrap(), tree.reshape().unwrap())),
                    }
                }
            });
        }
        scope.spawn(|| {
            loop {
                let is_last = is_over.load(Ordering::Relaxed);
                let snapshot = tree.snapshot();
                let at = snapshot.position();
                for key in b'a'..=b'w' {
                    let hit = snapshot.get(&[key], at).unwrap();
                    let found = hit.as_ref().map(|hit| (hit.position(), hit.payload()));
                    assert_eq!(found, visible(&log, &[key], at));
                }
                if is_last {
                    return;
                }
            }
        });
        for piece in log.chunks(7) {
            world.apply(piece);
            tree.raise_floor(tree.applied().saturating_sub(100));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    tree.settle().unwrap();
    drop(tree);
    world.check();
    world.reopen().check_whole();
}

/// What a snapshot reads stays there: files go when the last one that needs them is gone.
#[test]
fn files_stay_while_a_snapshot_reads_them() {
    let world = two_ranges(Arc::new(MemoryVfs::untraced()));
    let snapshot = world.tree.snapshot();
    let mut scan = snapshot.versions(None, None, Direction::Forward);
    assert!(scan.advance().unwrap());
    let before = world.files();
    while world.tree.compact(None).unwrap() {}
    assert!(world.files().is_superset(&before));
    check_answers(&snapshot, &world.log, snapshot.position());
    drop(snapshot);
    while scan.advance().unwrap() {}
    world.tree.settle().unwrap();
    assert!(world.files().is_superset(&before), "the scan reads on");
    drop(scan);
    world.tree.settle().unwrap();
    world.check_whole();
}

#[test]
fn holds_keep_the_floor_down() {
    let mut world = World::memory();
    for round in 0..5 {
        world.flushed("aab", &[round]);
    }
    let (tree, at) = (Arc::clone(&world.tree), 6);
    let hold = tree.hold(at).unwrap();
    assert!(matches!(
        tree.hold(16),
        Err(Error::BeyondEnd {
            position: 16,
            next: 16
        })
    ));
    tree.raise_floor(15);
    while tree.compact(None).unwrap() {}
    assert_eq!((tree.floor(), hold.position()), (at, at));
    world.check();
    assert!(matches!(
        tree.hold(at - 1),
        Err(Error::Trimmed {
            position: 5,
            first: 6
        })
    ));
    assert!(matches!(
        tree.snapshot().get(b"a", 5),
        Err(Error::Trimmed {
            position: 5,
            first: 6
        })
    ));
    let more: Vec<Hold> = (1..HOLDS_MAX).map(|_| tree.hold(9).unwrap()).collect();
    assert!(matches!(tree.hold(9), Err(Error::TooLarge { .. })));
    drop((hold, more));
    world.flushed("c", b"");
    while tree.compact(None).unwrap() {}
    assert_eq!(tree.floor(), 15);
    world.check();
    // Where it is read from goes with the tree.
    drop(tree);
    let world = world.reopen();
    assert_eq!(world.tree.floor(), 15);
    world.check_whole();
}

/// An index drops what the primary tree has replaced.
#[test]
fn a_filter_drops_what_it_knows_better() {
    let mut world = World::memory();
    for round in 0..5 {
        world.flushed("abcd", &[round]);
    }
    world.tree.raise_floor(20);
    let mut floors = BTreeSet::new();
    let mut filter = |entry: &Entry<'_>, floor| {
        floors.insert(floor);
        Ok(entry.key != b"b")
    };
    while world.tree.compact(Some(&mut filter)).unwrap() {}
    assert_eq!(floors, BTreeSet::from([20]));
    let snapshot = world.tree.snapshot();
    assert!(snapshot.get(b"b", 20).unwrap().is_none());
    assert_eq!(snapshot.get(b"c", 20).unwrap().unwrap().position(), 19);
}

#[test]
fn a_failed_filter_or_closed_tree_changes_nothing() {
    let mut world = two_ranges(Arc::new(FaultVfs::new(Arc::new(MemoryVfs::untraced()))));
    world.apply(&[(b"a".to_vec(), None)]);
    world.tree.close().unwrap();
    world.tree.close().unwrap();
    assert!(matches!(world.tree.flush(), Err(Error::Closed)));
    assert!(matches!(world.tree.merge(None), Err(Error::Closed)));
    world.check();
    let world = world.reopen();
    world.check_whole();
}
