//! Failing file operations, each once and each for good until it is repaired.
//!
//! Scenario 16 (fail each of write, rename, commit, rotation), and the invariant that the failure
//! of a metadata write never makes later, unrelated operations impossible for good.

use std::thread;

use super::*;
use crate::vfs::{CrashPolicy, Fault, FaultVfs, Gate, Landed, OpKind, Rule};

const TINY: Options = Options {
    rotate_bytes: 1 << 20,
    rotate_edits: 5,
    snapshot_edit_bytes: 100,
};

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

struct Node {
    disk: MemoryVfs,
    faults: FaultVfs,
}

impl Node {
    fn new() -> Self {
        let disk = MemoryVfs::new();
        disk.create_dir_all(Path::new(DIR)).unwrap();
        disk.settle();
        let faults = FaultVfs::new(Arc::new(disk.clone()));
        Self { disk, faults }
    }

    fn vfs(&self) -> Arc<dyn Vfs> {
        Arc::new(self.faults.clone())
    }

    fn create(&self) -> Result<Manifest<WalFiles>> {
        Manifest::create(self.vfs(), Path::new(DIR), ID, TINY)
    }

    fn open(&self) -> Result<Manifest<WalFiles>> {
        Ok(Manifest::open(self.vfs(), Path::new(DIR), ID, TINY)?.0)
    }

    /// What each crash at this moment would leave.
    fn after_crashes(&self) -> Vec<WalFiles> {
        let trace = self.disk.trace();
        CrashPolicy::all(3)
            .map(|policy| {
                let image: Arc<dyn Vfs> = Arc::new(trace.crash(trace.len(), policy));
                WalFiles::clone(open(&image).unwrap().0.version())
            })
            .collect()
    }
}

/// Run the workload with reopenings; on each failure check what may be assumed, then repair if
/// the fault is not over, and repeat the edit. Returns how many commits failed, and in how many
/// of these the outcome was unknown.
fn run(node: &Node, mut manifest: Manifest<WalFiles>) -> (usize, usize) {
    let (mut failed, mut unknown) = (0, 0);
    for (done, edit) in workload().iter().enumerate() {
        if done % 13 == 12 {
            let before = manifest.version().clone();
            drop(manifest);
            manifest = node.open().unwrap_or_else(|_| {
                node.faults.clear();
                node.open().unwrap()
            });
            assert_eq!(*manifest.version(), before);
        }
        let before = manifest.version().clone();
        let Err(error) = manifest.commit(edit) else {
            continue;
        };
        failed += 1;
        assert_eq!(*manifest.version(), before);
        match error {
            // Certainly not written.
            Error::Failed { .. } => {
                node.after_crashes()
                    .iter()
                    .for_each(|found| assert_eq!(*found, *before));
            }
            // Written or not.
            Error::Io { .. } => {
                unknown += 1;
                assert!(manifest.check_settled().is_err());
                for found in node.after_crashes() {
                    assert!(found == *before || found.same_but_origin(edit, &before));
                }
            }
            error => panic!("{error}"),
        }
        if manifest.settle().is_err() {
            assert!(manifest.check_settled().is_err());
            let again = manifest.commit(edit);
            assert!(matches!(again, Err(Error::Failed { .. })));
            node.faults.clear();
            manifest.settle().unwrap();
        }
        manifest.check_settled().unwrap();
        // Known not to have happened.
        node.after_crashes()
            .iter()
            .for_each(|found| assert_eq!(*found, *before));
        if manifest.commit(edit).is_err() {
            node.faults.clear();
            manifest.commit(edit).unwrap();
        }
    }
    let last = manifest.version().clone();
    node.after_crashes()
        .iter()
        .for_each(|found| assert_eq!(*found, *last));
    (failed, unknown)
}

impl WalFiles {
    /// Whether this is `before` with `edit` applied.
    fn same_but_origin(&self, edit: &[WalOperation], before: &Self) -> bool {
        use crate::manifest::{Context, Version};
        let created_by = self.newest().map_or(0, |segment| segment.created_by);
        let mut after = before.clone();
        after
            .apply(
                Context {
                    edit: created_by,
                    snapshot: false,
                },
                edit,
            )
            .unwrap();
        *self == after
    }
}

/// How often each kind of operation happens without faults.
fn count(kind: OpKind) -> u64 {
    let node = Node::new();
    let manifest = node.create().unwrap();
    node.faults.reset_counts();
    assert_eq!(run(&node, manifest), (0, 0));
    node.faults.count(kind)
}

fn every_failure(once: bool) {
    for kind in KINDS {
        let (mut failed, mut unknown) = (0, 0);
        for nth in 0..count(kind) {
            for landed in LANDED {
                let node = Node::new();
                let manifest = node.create().unwrap();
                let rule = Rule::fail(kind, Fault::Io).after(nth).landing(landed);
                node.faults.add(if once { rule.once() } else { rule });
                let (more, of_these) = run(&node, manifest);
                failed += more;
                unknown += of_these;
            }
        }
        match kind {
            OpKind::Write | OpKind::Sync => assert!(unknown > 0),
            OpKind::Create | OpKind::Rename | OpKind::SyncDir => {
                assert!(failed > 0 && unknown == 0, "{kind:?}");
            }
            // Met by an open only, or of no consequence.
            _ => assert_eq!(failed, 0, "{kind:?}"),
        }
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

#[test]
fn a_failed_creation_can_be_repeated_or_opened() {
    for kind in KINDS {
        for nth in 0..6 {
            for landed in LANDED {
                let node = Node::new();
                node.faults.add(
                    Rule::fail(kind, Fault::Io)
                        .after(nth)
                        .once()
                        .landing(landed),
                );
                let first = node.create();
                node.faults.clear();
                let mut manifest = match (first, node.open()) {
                    (Ok(manifest), _) | (_, Ok(manifest)) => manifest,
                    (Err(_), Err(Error::NotFound { .. } | Error::Missing { .. })) => {
                        node.create().unwrap()
                    }
                    (_, Err(error)) => panic!("{kind:?} {nth}: {error}"),
                };
                let _ = manifest.commit(&[add(1)]);
            }
        }
    }
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    for free in 0..400 {
        let node = Node::new();
        let mut manifest = node.create().unwrap();
        node.faults.set_free_bytes(Some(free * 3));
        let refused = workload()
            .iter()
            .position(|edit| manifest.commit(edit).is_err());
        let Some(refused) = refused else { continue };
        let before = manifest.version().clone();
        assert!(manifest.commit(&workload()[refused]).is_err());
        node.faults.set_free_bytes(None);
        for edit in &workload()[refused..] {
            manifest.commit(edit).unwrap();
        }
        assert_ne!(*manifest.version(), before);
        let last = manifest.version().clone();
        assert_eq!(*node.open().unwrap().version(), last);
        assert_eq!(
            node.disk.list(Path::new(DIR)).unwrap().len(),
            2,
            "failed attempts are removed"
        );
    }
}

/// Nothing is collected while an edit of unknown outcome may list what the version does not.
#[test]
fn no_collection_while_the_outcome_is_unknown() {
    use crate::manifest::tests::collect_wal_orphans;
    let node = Node::new();
    let vfs = node.vfs();
    let mut manifest = node.create().unwrap();
    overwrite(&vfs, "wal/slot-000001.wal", b"slot");
    node.faults.add(Rule::fail(OpKind::Sync, Fault::Io));
    assert!(manifest.commit(&[add(1)]).is_err());
    let refused = collect_wal_orphans(&manifest);
    assert!(matches!(refused, Err(Error::Failed { .. })));
    assert_eq!(read(&vfs, "wal/slot-000001.wal"), b"slot");
    node.faults.clear();
    manifest.settle().unwrap();
    let orphans = collect_wal_orphans(&manifest).unwrap();
    assert_eq!(orphans.files, [Path::new("wal/slot-000001.wal")]);
}

/// Scenario 49: a file that cannot be removed now is removed by a later collection.
#[test]
fn failing_removals_are_repeated() {
    use crate::manifest::tests::collect_wal_orphans;
    for kind in [
        OpKind::Remove,
        OpKind::Rename,
        OpKind::SyncDir,
        OpKind::List,
    ] {
        for nth in 0..3 {
            let node = Node::new();
            let vfs = node.vfs();
            let manifest = node.create().unwrap();
            for slot in 1..=3 {
                overwrite(&vfs, &format!("wal/slot-{slot:06}.wal"), b"slot");
            }
            node.faults
                .add(Rule::fail(kind, Fault::Io).after(nth).once());
            assert!(collect_wal_orphans(&manifest).is_err(), "{kind:?} {nth}");
            collect_wal_orphans(&manifest).unwrap();
            assert_eq!(vfs.list(Path::new("/node/wal")).unwrap().len(), 0);
            assert_eq!(vfs.list(Path::new("/node/trash")).unwrap().len(), 0);
        }
    }
}

#[test]
fn a_follower_that_is_overtaken_by_a_rotation_looks_again() {
    let node = Node::new();
    let plain: Arc<dyn Vfs> = Arc::new(node.disk.clone());
    let mut manifest = Manifest::<WalFiles>::create(plain, Path::new(DIR), ID, TINY).unwrap();
    manifest.commit(&[add(1)]).unwrap();
    let gate = Gate::new();
    node.faults
        .add(Rule::hang(OpKind::Open, &gate).on("MANIFEST-000001"));
    let vfs = node.vfs();
    let follower = thread::spawn(move || {
        Manifest::<WalFiles>::open_read_only(vfs, Path::new(DIR), ID).unwrap()
    });
    gate.wait_for(1);
    for slot in 2..=20 {
        manifest.commit(&[add(slot)]).unwrap();
    }
    assert!(manifest.file_number() > Some(3));
    gate.open();
    assert_eq!(follower.join().unwrap().version(), manifest.version());
}
