//! Crashes at every operation, under every policy of what an unsynced write may leave behind.
//!
//! Scenarios 41 (every sync boundary of create, flush, merge, split, rotation and removal), 34 (loss of
//! the unsynced tail of the manifest), 23 (between a durable merge and the removal of its inputs, and
//! between that and the next edit) and 40 (positions from 0 on).

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::vfs::CrashPolicy;

/// Keys in an order that meets all ranges, with deletions.
pub fn changes() -> Vec<Change> {
    let change = |n: u32| {
        let key = vec![b'a' + (n * 7 % 13) as u8, b'0' + (n % 4) as u8];
        let payload = (n % 5 != 3).then(|| vec![n as u8; 9 + (n % 7) as usize]);
        (key, payload)
    };
    (0..90).map(change).collect()
}

/// What is done to the tree behind each piece of ten changes. Marks the flushed position whenever it is
/// promised.
fn work(world: &mut World, vfs: &MemoryVfs) {
    let changes = changes();
    for (round, piece) in changes.chunks(10).enumerate() {
        world.apply(piece);
        if round != 4 {
            world.tree.flush().unwrap();
        }
        vfs.mark(world.tree.flushed());
        world.tree.merge(None).unwrap();
        world.tree.reshape().unwrap();
        world.tree.raise_floor((round * 8) as u64);
        if round == 6 {
            while world.tree.compact(None).unwrap() {}
        }
        if round == 7 {
            world.tree.close().unwrap();
            let log = std::mem::take(&mut world.log);
            *world = World::open(Arc::clone(&world.vfs), world.options, &log).unwrap();
        }
        vfs.mark(world.tree.flushed());
    }
}

/// A directory whose parents are durable, and a tree that did all of its work in it.
fn record() -> MemoryVfs {
    let vfs = MemoryVfs::new();
    vfs.create_dir_all(Path::new(DIR).parent().unwrap())
        .unwrap();
    vfs.settle();
    let mut world = World::create(Arc::new(vfs.clone()), TINY).unwrap();
    vfs.mark(0);
    work(&mut world, &vfs);
    world.check_whole();
    let version = Arc::clone(&world.tree.state().view.version);
    assert!(version.ranges().len() > 2 && version.next_number() > 15);
    vfs
}

/// Open what the crash left, apply the log, and go on. The flushed position that was found.
fn check(image: &MemoryVfs, promised: Option<u64>) -> u64 {
    let vfs: Arc<dyn Vfs> = Arc::new(image.clone());
    let follower = TreeFollower::open(&vfs, Path::new(DIR), ID, TINY, &cache());
    let opened = World::open(Arc::clone(&vfs), TINY, &changes());
    let mut world = match (opened, promised) {
        (Ok(world), _) => world,
        // The creation did not finish, and can be repeated.
        (Err(Error::NotFound { .. } | Error::Missing { .. }), None) => {
            assert!(follower.is_err());
            let world = World::create(Arc::clone(&vfs), TINY).unwrap();
            drop(world);
            World::open(vfs, TINY, &changes()).unwrap()
        }
        (Err(error), _) => panic!("{error}"),
    };
    let found = world.tree.flushed();
    assert!(
        promised.is_none_or(|promised| found >= promised),
        "a flush is lost"
    );
    if let Ok(follower) = follower {
        let snapshot = follower.snapshot();
        assert_eq!(snapshot.position(), found, "reader and writer see the same");
        check_answers(&snapshot, &world.log, found);
    }
    world.check_whole();
    // It is as good as one that never crashed.
    world.apply(&[(b"behind".to_vec(), Some(vec![1; 30]))]);
    world.tree.flush().unwrap();
    world.settle();
    let world = world.reopen();
    world.check_whole();
    found
}

#[test]
fn every_crash_leaves_a_tree_that_the_log_completes() {
    let vfs = record();
    let trace = vfs.trace();
    let mut unpromised = 0;
    for (cut, policy, image) in trace.crashes(1) {
        let promised = trace.marks_before(cut).last();
        let result = catch_unwind(AssertUnwindSafe(|| check(&image, promised)));
        let found = result.unwrap_or_else(|_| panic!("cut {cut} of {}, {policy:?}", trace.len()));
        unpromised += usize::from(promised.is_some_and(|promised| found > promised));
    }
    assert!(
        unpromised > 0,
        "no crash kept a flush that was not promised yet"
    );
}

/// Recovery is repeatable: a crash while a crash is recovered from changes nothing.
#[test]
fn crashes_during_recovery() {
    let trace = record().trace();
    for cut in (0..=trace.len()).step_by(23) {
        let Some(promised) = trace.marks_before(cut).last() else {
            continue;
        };
        let image = trace.crash(cut, CrashPolicy::Torn { seed: cut as u64 });
        drop(Tree::open(Arc::new(image.clone()), Path::new(DIR), ID, TINY, &cache()).unwrap());
        for (again, policy, second) in image.trace().crashes(1) {
            let result = catch_unwind(AssertUnwindSafe(|| check(&second, Some(promised))));
            result.unwrap_or_else(|_| panic!("cut {cut}, then {again}, {policy:?}"));
        }
    }
}

/// A name is not given again to another run, also not where the edit that listed the first one is lost.
#[test]
fn numbers_of_lost_runs_are_not_given_again() {
    let trace = record().trace();
    let mut met = 0;
    for cut in 0..=trace.len() {
        if trace.marks_before(cut).next().is_none() {
            continue;
        }
        let image = trace.crash(cut, CrashPolicy::KeepAll);
        let names = image.list(Path::new(DIR)).unwrap();
        let highest = names
            .iter()
            .filter_map(|name| parse_file_name(name.strip_suffix(".tmp").unwrap_or(name)))
            .max();
        let mut world = World::open(Arc::new(image.clone()), TINY, &changes()).unwrap();
        let before = world.files();
        let mut world = {
            world.apply(&[(b"k".to_vec(), Some(vec![1]))]);
            world.reopen()
        };
        world.apply(&[(b"k".to_vec(), Some(vec![2]))]);
        world.tree.flush().unwrap();
        let new = world.files().last().copied();
        assert!(new > highest, "cut {cut}: {new:?} after {highest:?}");
        met += usize::from(highest > before.last().copied());
    }
    assert!(met > 10, "runs without an edit were there {met} times");
}
