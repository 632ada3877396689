//! Failing file operations, each once and each for good until it is repaired.
//!
//! Scenarios 16 (fail each of data write, rename, commit and rotation), 17 (a run is complete and its
//! commit fails), 25 (a read error in a merge), 38 (an error while a run is opened), 49 (a removal fails)
//! and invariant 34 (a failed write of the manifest makes nothing impossible for good).

use super::crash::changes;
use super::*;
use crate::vfs::{Fault, FaultVfs, Landed, OpKind, Rule};

const KINDS: [OpKind; 9] = [
    OpKind::Create,
    OpKind::Open,
    OpKind::Read,
    OpKind::Write,
    OpKind::Sync,
    OpKind::Rename,
    OpKind::Remove,
    OpKind::SyncDir,
    OpKind::List,
];

const LANDED: [Landed; 3] = [Landed::Nothing, Landed::Prefix(20), Landed::All];

fn faulty() -> (FaultVfs, World) {
    let faults = FaultVfs::new(Arc::new(MemoryVfs::untraced()));
    let world = World::create(Arc::new(faults.clone()), TINY).unwrap();
    faults.reset_counts();
    (faults, world)
}

/// Do it; after a failure check that nothing is lost, repair, and do it again. How often it failed.
fn insist(faults: &FaultVfs, world: &World, act: impl Fn(&Tree) -> Result<bool>) -> usize {
    let Err(first) = act(&world.tree) else {
        return 0;
    };
    // A device that does not give back what was written has lost it, says a run.
    assert!(!matches!(first, Error::InvalidArgument(_)), "{first}");
    world.tree.state().view.version.check().unwrap();
    if act(&world.tree).is_err() {
        faults.clear();
        act(&world.tree).unwrap();
    }
    world.check_version();
    1
}

fn run(faults: &FaultVfs, mut world: World) -> usize {
    let mut failed = 0;
    for (round, piece) in changes()[..60].chunks(10).enumerate() {
        world.apply(piece);
        failed += insist(faults, &world, Tree::flush);
        failed += insist(faults, &world, |tree| tree.merge(None));
        failed += insist(faults, &world, Tree::reshape);
        if round == 3 {
            world.tree.raise_floor(30);
            failed += insist(faults, &world, |tree| tree.compact(None));
        }
        if round == 4 {
            let World {
                vfs,
                tree,
                options,
                log,
            } = world;
            drop(tree);
            let open = || World::open(Arc::clone(&vfs), options, &log);
            world = open().unwrap_or_else(|error| {
                // Clean, with the name of what failed, and nothing removed.
                assert!(
                    matches!(
                        error,
                        Error::Io { .. } | Error::Failed { .. } | Error::Corruption { .. }
                    ),
                    "{error}"
                );
                failed += 1;
                open().unwrap_or_else(|_| {
                    faults.clear();
                    open().unwrap()
                })
            });
        }
    }
    faults.clear();
    world.tree.settle().unwrap();
    world.check();
    let world = world.reopen();
    world.check_whole();
    failed
}

/// How often each kind of operation happens without faults.
fn count(kind: OpKind) -> u64 {
    let (faults, world) = faulty();
    assert_eq!(run(&faults, world), 0);
    faults.count(kind)
}

fn every_failure(once: bool) {
    for kind in KINDS {
        let mut failed = 0;
        for nth in 0..count(kind) {
            for landed in LANDED {
                let (faults, world) = faulty();
                let rule = Rule::fail(kind, Fault::Io).after(nth).landing(landed);
                faults.add(if once { rule.once() } else { rule });
                failed += run(&faults, world);
            }
        }
        let matters = kind != OpKind::Remove;
        assert!(failed > 0 || !matters, "{kind:?}");
    }
}

#[test]
fn each_operation_fails_once() {
    every_failure(true);
}

#[test]
fn each_operation_fails_until_it_is_repaired() {
    every_failure(false);
}

/// Scenario 17: what was written for an edit that did not happen is removed once that is certain.
#[test]
fn a_run_whose_commit_failed_is_removed_when_that_is_certain() {
    let (faults, mut world) = faulty();
    world.flushed("abc", b"one");
    world.apply(&[(b"d".to_vec(), Some(vec![7]))]);
    faults.add(Rule::fail(OpKind::Sync, Fault::Io).on("MANIFEST"));
    world.tree.flush().unwrap_err();
    // Whether the edit happened is not known: after a crash now it may turn up.
    let files = world.files();
    assert_eq!(files.len(), 2);
    world.tree.settle().unwrap_err();
    assert_eq!(world.files(), files);
    faults.clear();
    world.tree.settle().unwrap();
    assert_eq!(world.files().len(), 1);
    assert!(world.tree.flush().unwrap());
    world.check_whole();
    assert!(world.files().last() > files.last(), "under another number");
}

/// Scenario 16, and invariant 34: what cannot be flushed stays in memory, and is read from there.
#[test]
fn a_full_disk_loses_nothing() {
    for free in (0..3000).step_by(40) {
        let (faults, mut world) = faulty();
        world.flushed("abc", &[1; 60]);
        faults.set_free_bytes(Some(free));
        for piece in changes()[..40].chunks(10) {
            let changes = piece.to_vec();
            world.apply(&changes);
            let flushed = world.tree.flush().is_ok();
            let merged = world.tree.merge(None).is_ok();
            assert!(flushed || world.tree.memory_bytes() > 0);
            let _ = merged;
            world.check();
        }
        faults.set_free_bytes(None);
        world.tree.flush().unwrap();
        world.settle();
        world.tree.settle().unwrap();
        world.check_whole();
    }
}

/// Scenario 25: a merge that cannot read its inputs leaves them as they are.
#[test]
fn a_read_error_fails_a_merge_alone() {
    let (faults, mut world) = faulty();
    for round in 0..4 {
        world.flushed("abcdefgh", &[round; 9]);
    }
    let files = world.files();
    faults.add(Rule::fail(OpKind::Read, Fault::Io).on(".run"));
    world.tree.merge(None).unwrap_err();
    faults.clear();
    assert_eq!(world.files(), files);
    world.check_whole();
    assert!(world.tree.merge(None).unwrap());
    world.check_whole();
    assert!(world.files().len() < files.len());
}

/// Scenario 49: a file that cannot be removed is removed later.
#[test]
fn a_failed_removal_is_repeated() {
    let (faults, mut world) = faulty();
    for round in 0..4 {
        world.flushed("abcdefgh", &[round; 9]);
    }
    faults.add(Rule::fail(OpKind::Remove, Fault::Io).on(".run"));
    assert!(world.tree.merge(None).unwrap());
    let left = world.tree.stats().obsolete;
    assert!(left > 1);
    world.check();
    faults.clear();
    world.tree.settle().unwrap();
    assert_eq!(world.tree.stats().obsolete, 0);
    world.check_whole();
}

#[test]
fn a_failed_creation_can_be_repeated_or_opened() {
    for kind in KINDS.into_iter().chain([OpKind::CreateDir]) {
        for nth in 0..12 {
            for landed in LANDED {
                let faults = FaultVfs::new(Arc::new(MemoryVfs::untraced()));
                let rule = Rule::fail(kind, Fault::Io).after(nth).once();
                faults.add(rule.landing(landed));
                let vfs: Arc<dyn Vfs> = Arc::new(faults.clone());
                let create = || World::create(Arc::clone(&vfs), TINY);
                let world = create().or_else(|_| {
                    faults.clear();
                    create()
                });
                let world = match world {
                    // The first attempt came to its end, only its answer was lost.
                    Err(Error::AlreadyExists { .. }) => World::open(Arc::clone(&vfs), TINY, &[]),
                    world => world,
                };
                faults.clear();
                let mut world = world.unwrap().reopen();
                world.flushed("ab", b"payload");
                world.check_whole();
            }
        }
    }
}
