//! Orphans: found by name, collected in two steps, never by guesswork.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::*;
use crate::manifest::tests::collect_wal_orphans;
use crate::manifest::{collect, find_wal_orphans};

fn version() -> WalFiles {
    let vfs = memory();
    let mut manifest = create(&vfs);
    manifest
        .commit(&[add(1), add(2), segment(1, 1), seal(1), segment(2, 2)])
        .unwrap();
    WalFiles::clone(manifest.version())
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn only_own_names_that_nothing_refers_to() {
    let data = names(&[
        "CHECKPOINT",
        "CURRENT",
        "CURRENT.tmp",
        "FAULTS",
        "FAULTS.tmp",
        "IDENTITY",
        "IDENTITY.tmp",
        "LOCK",
        "MANIFEST-000003",
        "MANIFEST-000004",
        "MANIFEST-000005",
        "MANIFEST-5",
        "WATERMARK",
        "lost+found",
        "notes.tmp",
        "trash",
        "wal",
    ]);
    let wal = names(&[
        "000000000001.idx",
        "000000000002.idx",
        "000000000003.idx",
        "000000000003.idx.tmp",
        "slot-000001.wal",
        "slot-000002.wal",
        "slot-000003.wal",
        "slot-000004.wal",
        "slot-000005.wal.tmp",
        "slot-1.wal",
    ]);
    // Scenario 49: what a running task writes is in use, under its temporary name too.
    let running = ["wal/slot-000004.wal", "wal/000000000003.idx.tmp"].map(PathBuf::from);
    let found = find_wal_orphans(&data, &wal, 4, &version(), &BTreeSet::from(running));
    let expected = [
        "CURRENT.tmp",
        "FAULTS.tmp",
        "IDENTITY.tmp",
        "MANIFEST-000003",
        "MANIFEST-000005",
        "wal/000000000002.idx",
        "wal/000000000003.idx",
        "wal/slot-000003.wal",
        "wal/slot-000005.wal.tmp",
    ];
    assert_eq!(found.files, expected.map(PathBuf::from));
    let foreign = ["MANIFEST-5", "lost+found", "notes.tmp", "wal/slot-1.wal"];
    assert_eq!(found.foreign, foreign.map(PathBuf::from));
}

/// A node's directory with one orphan of each kind, everything durable.
fn node() -> (MemoryVfs, BTreeSet<String>) {
    let vfs = MemoryVfs::new();
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    vfs.create_dir_all(Path::new("/node/wal")).unwrap();
    let mut manifest = create(&shared);
    manifest.commit(&[add(1), segment(1, 1), seal(1)]).unwrap();
    for name in [
        "LOCK",
        "notes",
        "wal/slot-000001.wal",
        "wal/000000000001.idx",
    ] {
        overwrite(&shared, name, b"in use");
    }
    let keep = files(&vfs);
    for name in [
        "IDENTITY.tmp",
        "wal/slot-000002.wal",
        "wal/000000000002.idx.tmp",
    ] {
        overwrite(&shared, name, b"orphan");
    }
    vfs.settle();
    (vfs, keep)
}

/// Paths of files, without the manifest's own, which a reopening replaces.
fn files(vfs: &MemoryVfs) -> BTreeSet<String> {
    let own = |path: &String| path.contains("MANIFEST") || path.ends_with('/');
    vfs.paths().into_iter().filter(|path| !own(path)).collect()
}

fn open_and_collect(vfs: &MemoryVfs) {
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let (manifest, _) = open(&shared).unwrap();
    collect_wal_orphans(&manifest).unwrap();
}

#[test]
fn a_collection_is_complete_and_repeatable() {
    let (vfs, keep) = node();
    open_and_collect(&vfs);
    assert_eq!(files(&vfs), keep);
    open_and_collect(&vfs);
    assert_eq!(files(&vfs), keep);
    // Files that are gone meanwhile are fine.
    collect(
        &vfs,
        Path::new(DIR),
        &[PathBuf::from("wal/slot-000099.wal")],
    )
    .unwrap();
    assert_eq!(files(&vfs), keep);
}

/// Scenarios 8 and 23: whatever the crash left, the next collection ends in the same state.
#[test]
fn a_collection_may_crash_anywhere_and_again() {
    let (vfs, keep) = node();
    open_and_collect(&vfs);
    for (_, policy, image) in vfs.trace().crashes(3) {
        open_and_collect(&image);
        assert_eq!(files(&image), keep, "{policy:?}");
        let again = image.trace();
        for cut in (0..=again.len()).step_by(3) {
            let image = again.crash(cut, policy);
            open_and_collect(&image);
            assert_eq!(files(&image), keep, "{policy:?}");
        }
    }
}
