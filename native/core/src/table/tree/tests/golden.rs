//! Manifests that released versions wrote are read, and this version writes the same bytes.

use super::refusals::{EDIT, edits as first_edits, listed, unslice};
use super::*;
use crate::manifest::Manifest;
use crate::manifest::current::{CURRENT, encode_current, file_name};
use crate::vfs::Access;

/// File 1, a snapshot of nothing and edits; file 2, a snapshot of what they made, and one edit more.
const GOLDEN: [(u64, &[u8]); 2] = [
    (
        1,
        include_bytes!("../../../../../../tests/compat/trees/v1-edits.manifest"),
    ),
    (
        2,
        include_bytes!("../../../../../../tests/compat/trees/v1-snapshot.manifest"),
    ),
];

const NAMES: [&str; 2] = ["v1-edits.manifest", "v1-snapshot.manifest"];

fn edits() -> Vec<Vec<TreeOperation>> {
    let merged = listed(5, 1, 2, (1, 20));
    let mut edits = first_edits();
    edits.push(vec![
        unslice(b"", 1, b""),
        unslice(b"", 2, b""),
        TreeOperation::AddRun(merged),
        TreeOperation::AddSlice {
            range: vec![],
            run: 5,
            begin: Some(b"a\xff".to_vec()),
            end: Some(b"k".to_vec()),
        },
        TreeOperation::Floor { position: 15 },
    ]);
    edits.push(vec![
        unslice(b"", 5, b"a\xff"),
        TreeOperation::RemoveRun { number: 5 },
    ]);
    edits.push(vec![TreeOperation::Settle { below: 4 }]);
    edits
}

fn last() -> Vec<TreeOperation> {
    let position = u64::MAX;
    let what = Flushed::Nothing;
    vec![TreeOperation::Flush { position, what }]
}

/// The version of each file.
fn versions() -> [TreeVersion; 2] {
    let mut version = TreeVersion::default();
    for edit in edits() {
        version.apply(EDIT, &edit).unwrap();
    }
    let before = version.clone();
    version.apply(EDIT, &last()).unwrap();
    [before, version]
}

fn written() -> [Vec<u8>; 2] {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::untraced());
    let dir = Path::new(DIR);
    vfs.create_dir_all(dir).unwrap();
    let options = manifest::Options::default();
    let read = |number| vfs.read(&dir.join(file_name(number)), 1 << 20).unwrap();
    let mut manifest = Manifest::<TreeVersion>::create(Arc::clone(&vfs), dir, ID, options).unwrap();
    for edit in edits() {
        manifest.commit(&edit).unwrap();
    }
    let first = read(1);
    drop(manifest);
    let opened = Manifest::<TreeVersion>::open(Arc::clone(&vfs), dir, ID, options);
    opened.unwrap().0.commit(&last()).unwrap();
    [first, read(2)]
}

#[test]
fn they_are_read() {
    for ((number, bytes), expected) in GOLDEN.into_iter().zip(versions()) {
        let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::untraced());
        let dir = Path::new(DIR);
        vfs.create_dir_all(dir).unwrap();
        vfs.replace(&dir.join(CURRENT), &encode_current(number))
            .unwrap();
        let file = vfs.open(&dir.join(file_name(number)), Access::CreateNew);
        file.unwrap().write_all_at(bytes, 0).unwrap();
        let follower = Manifest::<TreeVersion>::open_read_only(vfs, dir, ID).unwrap();
        assert_eq!(**follower.version(), expected);
    }
}

#[test]
fn the_same_bytes_are_written() {
    // To make those of a new format: BRAIDLOG_GOLDEN_TREES=tests/compat/trees.
    if let Ok(dir) = std::env::var("BRAIDLOG_GOLDEN_TREES") {
        for (name, bytes) in NAMES.into_iter().zip(written()) {
            std::fs::write(Path::new(&dir).join(name), bytes).unwrap();
        }
        return;
    }
    for ((_, golden), bytes) in GOLDEN.into_iter().zip(written()) {
        assert!(bytes == golden, "other bytes");
    }
}
