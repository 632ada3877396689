//! Which entries a scan takes together. That they are the right ones is what `world` checks of every scan.

use super::world::in_stretches;
use super::*;

fn key(n: usize) -> Vec<u8> {
    format!("key {n:03}").into_bytes()
}

/// A tree with large pages, with a flushed version of each of so many keys.
fn flushed(count: usize, page_bytes: usize) -> World {
    let run = RunOptions {
        page_bytes,
        ..TINY.run
    };
    let options = TreeOptions { run, ..TINY };
    let mut world = World::create(Arc::new(MemoryVfs::untraced()), options).unwrap();
    let changes: Vec<Change> = (0..count)
        .map(|n| (key(n), Some(b"old".to_vec())))
        .collect();
    world.apply(&changes);
    assert!(world.tree.flush().unwrap());
    world
}

/// How many entries each stretch of a scan has.
fn lengths(world: &World, at: u64, max: usize) -> Vec<Option<usize>> {
    let snapshot = world.tree.snapshot();
    let scan = snapshot.entries(None, None, Direction::Forward, at, Tombstones::Hidden);
    in_stretches(scan.unwrap(), max).1
}

#[test]
fn a_run_alone_gives_whole_pages() {
    let world = flushed(100, 8 << 10);
    assert_eq!(lengths(&world, 100, usize::MAX), [Some(100)]);
    assert_eq!(lengths(&world, 100, 40), [Some(40), Some(40), Some(20)]);
    let pages = lengths(&flushed(100, 256), 100, usize::MAX);
    assert!(pages.len() > 5 && pages.len() < 20, "{pages:?}");
    assert_eq!(pages.iter().flatten().sum::<usize>(), 100);
    world.check();
}

#[test]
fn a_few_changes_cut_what_a_large_run_gives() {
    let mut world = flushed(100, 8 << 10);
    let _hold = world.tree.hold(100).unwrap();
    let cut = [Some(50), None, Some(19), Some(29)];
    world.apply(&[(key(50), Some(b"new".to_vec())), (key(70), None)]);
    assert_eq!(lengths(&world, 102, usize::MAX), cut);
    assert_eq!(
        lengths(&world, 100, usize::MAX),
        [Some(50), Some(20), Some(30)],
        "what is newer cuts as well, and is not seen"
    );
    world.check();
    // The same from two runs.
    assert!(world.tree.flush().unwrap());
    let cut = [Some(50), Some(1), Some(19), Some(29)];
    assert_eq!(lengths(&world, 102, usize::MAX), cut);
    world.check();
    // And from one that has two versions of a key, and a tombstone.
    while world.tree.compact(None).unwrap() {}
    assert_eq!(
        lengths(&world, 102, usize::MAX),
        [Some(51), Some(19), Some(29)]
    );
    assert_eq!(
        lengths(&world, 100, usize::MAX),
        [Some(50), Some(20), Some(30)]
    );
    world.check();
}

#[test]
fn versions_of_a_key_over_two_pages_give_one_entry() {
    let mut world = flushed(3, 64);
    let _hold = world.tree.hold(3).unwrap();
    let again: Vec<Change> = (0..9).map(|n| (key(1), Some(vec![n; 9]))).collect();
    world.apply(&again);
    assert!(world.tree.flush().unwrap());
    while world.tree.compact(None).unwrap() {}
    for at in 3..=12 {
        let found: usize = lengths(&world, at, usize::MAX).iter().flatten().sum();
        assert_eq!(found, 3, "at {at}");
    }
    world.check();
}

#[test]
fn a_scan_in_reverse_and_one_of_tombstones_go_one_by_one() {
    let world = flushed(10, 8 << 10);
    let snapshot = world.tree.snapshot();
    for (direction, tombstones) in [
        (Direction::Reverse, Tombstones::Hidden),
        (Direction::Forward, Tombstones::Shown),
    ] {
        let scan = snapshot.entries(None, None, direction, 10, tombstones);
        let (found, lengths) = in_stretches(scan.unwrap(), usize::MAX);
        assert_eq!((found.len(), lengths), (10, vec![None; 10]));
    }
}
