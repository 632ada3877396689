//! Followers with a memory level of their own.

use super::*;
use crate::vfs::{Fault, FaultVfs, Landed, OpKind, Rule};

fn follow(vfs: &Arc<dyn Vfs>, cache: &Arc<RunCache>) -> TreeFollower {
    TreeFollower::open(vfs, Path::new(DIR), ID, TINY, cache).unwrap()
}

/// Apply what the log has behind the follower, some at a time.
fn catch_up(follower: &TreeFollower, log: &[Change], step: usize) {
    let applied = follower.tree().applied() as usize;
    let mut position = applied as u64;
    for changes in log[applied..].chunks(step) {
        let mut piece = Piece::new();
        for (key, payload) in changes {
            position += 1;
            let payload = payload.as_deref();
            let entry = Entry {
                key,
                position,
                payload,
            };
            piece.push(&entry).unwrap();
        }
        follower.tree().apply(piece, position).unwrap();
    }
}

fn check(follower: &TreeFollower, log: &[Change]) {
    let snapshot = follower.snapshot();
    assert_eq!(snapshot.position(), log.len() as u64);
    for at in snapshot.floor()..=snapshot.position() {
        check_answers(&snapshot, log, at);
    }
    let version = &snapshot.state.view.version;
    let positions = snapshot.state.active.positions();
    let (first, _) = positions.unwrap_or((u64::MAX, 0));
    assert!(
        first > version.flushed(),
        "memory has what is above the flushed position only"
    );
}

/// Whatever the writer flushes and merges between two looks, and wherever a flush ends among the follower's chunks.
#[test]
fn memory_has_what_the_runs_have_not() {
    for step in [1, 3, 7, 100] {
        let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::untraced());
        let mut world = World::create(Arc::clone(&vfs), TINY).unwrap();
        let mut follower = follow(&vfs, &cache());
        for (round, piece) in super::crash::changes().chunks(7).enumerate() {
            world.apply(piece);
            if round % 3 == 1 {
                // The flush ends before what the follower has in one chunk.
                let (early, log) = (world.log.clone(), &mut world.log);
                catch_up(&follower, &early, step);
                log.truncate(early.len());
                world.tree.flush().unwrap();
            }
            if round % 4 == 3 {
                world.settle();
            }
            if round % 5 == 4 {
                world.tree.raise_floor(world.tree.flushed() / 2);
            }
            if round % 2 == 0 {
                follower.refresh().unwrap();
                catch_up(&follower, &world.log, step);
                check(&follower, &world.log);
            }
        }
        world.tree.flush().unwrap();
        follower.refresh().unwrap();
        check(&follower, &world.log);
        assert_eq!(follower.tree().memory_bytes(), 0);
    }
}

#[test]
fn nothing_but_applying_and_reading_is_done_by_a_follower() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::untraced());
    let mut world = World::create(Arc::clone(&vfs), TINY).unwrap();
    world.flushed("abc", b"1");
    world.flushed("abc", b"2");
    let before = world.files();
    world.apply(&[(b"d".to_vec(), Some(vec![3]))]);
    let follower = follow(&vfs, &cache());
    catch_up(&follower, &world.log, 1);
    assert!(matches!(follower.tree().flush(), Err(Error::Closed)));
    assert!(matches!(follower.tree().compact(None), Err(Error::Closed)));
    assert!(matches!(follower.tree().settle(), Err(Error::Closed)));
    assert_eq!(world.files(), before);
    check(&follower, &world.log);
    world.check();
}

/// A flush that a follower saw and that is lost with its sync: what it had comes from the log again.
#[test]
fn an_edit_that_goes_away_again_is_no_gap() {
    let faults = FaultVfs::new(Arc::new(MemoryVfs::untraced()));
    let vfs: Arc<dyn Vfs> = Arc::new(faults.clone());
    let mut world = World::create(Arc::clone(&vfs), TINY).unwrap();
    world.flushed("abc", b"1");
    world.apply(&[(b"a".to_vec(), Some(vec![2])), (b"d".to_vec(), None)]);
    let mut follower = follow(&vfs, &cache());
    catch_up(&follower, &world.log, 1);
    let rule = Rule::fail(OpKind::Sync, Fault::Io).on("MANIFEST-");
    faults.add(rule.landing(Landed::All).once());
    world.tree.flush().unwrap_err();
    follower.refresh().unwrap();
    let seen = follower.snapshot().state.view.version.flushed();
    world.tree.settle().unwrap();
    follower.refresh().unwrap();
    let left = follower.snapshot().state.view.version.flushed();
    assert_eq!(
        (seen, left),
        (5, 3),
        "the follower saw the edit, and it is gone"
    );
    catch_up(&follower, &world.log, 1);
    check(&follower, &world.log);
    world.check();
}

/// What is open stays readable when it is removed, up to a bound.
#[test]
fn files_that_are_kept_open_are_read_to_the_end() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::untraced());
    let mut world = World::create(Arc::clone(&vfs), TINY).unwrap();
    for round in 0..8 {
        world.flushed("abcdef", &[round; 30]);
    }
    let cache = Arc::new(RunCache::new(0, 1));
    let follower = follow(&vfs, &cache);
    let snapshot = follower.snapshot();
    let log = world.log.clone();
    world.tree.raise_floor(log.len() as u64);
    while world.tree.compact(None).unwrap() {}
    assert!(world.files().len() < 8);
    check_answers(&snapshot, &log, log.len() as u64);
    // Once they are let go of, others are kept.
    drop((snapshot, follower));
    let follower = follow(&vfs, &cache);
    let (snapshot, before) = (follower.snapshot(), world.files());
    world.flushed("xyz", b"more");
    while world.tree.compact(None).unwrap() {}
    assert!(before.is_disjoint(&world.files()));
    check_answers(&snapshot, &log, log.len() as u64);
}
