//! What a manifest does when nothing goes wrong.

use super::*;
use crate::manifest::codec;
use crate::manifest::current::{file_name, parse_file_name};
use crate::vfs::RealVfs;

#[test]
fn commits_survive_reopening_and_numbers_continue() {
    let vfs = memory();
    let mut manifest = create(&vfs);
    // The snapshot of nothing was edit 1.
    assert_eq!(manifest.commit(&[add(1), add(2)]).unwrap(), 2);
    assert_eq!(manifest.commit(&[segment(1, 2)]).unwrap(), 3);
    assert_eq!(manifest.commit(&[seal(1), segment(2, 1)]).unwrap(), 4);
    let before = manifest.version().clone();
    drop(manifest);

    let (manifest, report) = open(&vfs).unwrap();
    assert_eq!(manifest.version(), &before);
    assert_eq!(
        (report.last_edit, report.edits, report.clean_close),
        (4, 3, false)
    );
    assert_eq!(report.removed, ["MANIFEST-000001"]);
    assert_eq!((manifest.next_edit(), manifest.file_number()), (6, Some(2)));
    assert_eq!(before.active().unwrap().created_by, 4);
    assert_eq!(before.slot_of(1), Some(2));
    manifest.close().unwrap();

    let (manifest, report) = open(&vfs).unwrap();
    assert_eq!(manifest.version(), &before);
    assert!(report.clean_close && report.dropped.is_none());
    assert_eq!(
        vfs.list(Path::new(DIR)).unwrap(),
        ["CURRENT", "MANIFEST-000003"]
    );
}

#[test]
fn rotation_by_edits_and_by_bytes_keeps_one_file() {
    let tiny = Options {
        rotate_edits: 3,
        ..Options::default()
    };
    let small = Options {
        rotate_bytes: 100,
        ..Options::default()
    };
    for options in [tiny, small] {
        let vfs = memory();
        let mut manifest =
            Manifest::<WalFiles>::create(vfs.clone(), Path::new(DIR), ID, options).unwrap();
        for slot in 1..=20 {
            manifest.commit(&[add(slot)]).unwrap();
            assert_eq!(vfs.list(Path::new(DIR)).unwrap().len(), 2);
        }
        assert!(manifest.file_number().unwrap() > 5);
        let before = manifest.version().clone();
        assert_eq!(open(&vfs).unwrap().0.version(), &before);
    }
}

#[test]
fn a_large_snapshot_is_cut_into_several_edits() {
    let vfs = memory();
    let options = Options {
        snapshot_edit_bytes: 40,
        rotate_edits: 30,
        ..Options::default()
    };
    let mut manifest =
        Manifest::<WalFiles>::create(vfs.clone(), Path::new(DIR), ID, options).unwrap();
    let mut last = manifest.next_edit() - 1;
    for slot in 1..=100 {
        let number = manifest.commit(&[add(slot)]).unwrap();
        assert!(number > last);
        last = number;
    }
    let before = manifest.version().clone();
    let (manifest, report) = open(&vfs).unwrap();
    assert_eq!(manifest.version(), &before);
    assert_eq!(report.last_edit, last);
}

#[test]
fn a_follower_sees_edits_rotations_and_the_close() {
    let vfs = memory();
    let options = Options {
        rotate_edits: 3,
        ..Options::default()
    };
    let mut manifest =
        Manifest::<WalFiles>::create(vfs.clone(), Path::new(DIR), ID, options).unwrap();
    let follow = || Manifest::<WalFiles>::open_read_only(vfs.clone(), Path::new(DIR), ID);
    let mut every = follow().unwrap();
    let mut seldom = follow().unwrap();
    for slot in 1..=20 {
        assert!(!every.refresh().unwrap());
        let number = manifest.commit(&[add(slot)]).unwrap();
        assert!(every.refresh().unwrap());
        assert_eq!(
            (every.version(), every.last_edit()),
            (manifest.version(), number)
        );
        if slot % 7 == 0 {
            assert!(seldom.refresh().unwrap());
            assert_eq!(seldom.version(), manifest.version());
        }
    }
    assert!(!every.closed());
    manifest.close().unwrap();
    assert!(every.refresh().unwrap() && every.closed());
}

#[test]
fn a_follower_ignores_an_edit_in_progress() {
    let vfs = memory();
    let mut manifest = create(&vfs);
    manifest.commit(&[add(1)]).unwrap();
    let short = read(&vfs, "MANIFEST-000001");
    manifest.commit(&[add(2)]).unwrap();
    let long = read(&vfs, "MANIFEST-000001");
    for end in short.len()..=long.len() {
        overwrite(&vfs, "MANIFEST-000001", &long[..end]);
        let follower =
            Manifest::<WalFiles>::open_read_only(vfs.clone(), Path::new(DIR), ID).unwrap();
        let slots = follower.version().slots().len();
        assert_eq!(slots, if end == long.len() { 2 } else { 1 });
        assert_eq!(
            read(&vfs, "MANIFEST-000001").len(),
            end,
            "nothing is written"
        );
    }
}

#[test]
fn unknown_ignorable_fields_survive_rotation() {
    let vfs = memory();
    let manifest = create(&vfs);
    manifest.close().unwrap();
    let (manifest, _) = open(&vfs).unwrap();
    drop(manifest);
    let mut file = read(&vfs, "MANIFEST-000002");
    let header = codec::Header::decode(Path::new("f"), &file).unwrap();
    let mut fields = Vec::new();
    codec::push_field(&mut fields, 0x8384, |out| {
        out.extend_from_slice(b"later");
    });
    codec::push_field(&mut fields, 16, |out| {
        out.extend_from_slice(&[1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    });
    codec::encode_frame(&mut file, header.seed(), header.first_edit + 1, &fields).unwrap();
    overwrite(&vfs, "MANIFEST-000002", &file);
    for _ in 0..3 {
        let (manifest, report) = open(&vfs).unwrap();
        assert_eq!(report.unknown_fields, 1);
        assert_eq!(manifest.version().slot_bytes(1), Some(9));
        let name = file_name(manifest.file_number().unwrap());
        assert!(read(&vfs, &name).windows(5).any(|bytes| bytes == b"later"));
    }
}

/// Scenario 40: values 0 and the largest ones are values, at every step.
#[test]
fn extreme_values_are_values() {
    let vfs = memory();
    let steps = [
        WalOperation::AddSlot {
            slot: u32::MAX - 1,
            bytes: u64::MAX,
        },
        WalOperation::OpenSegment {
            number: 1,
            slot: u32::MAX - 1,
            salt: 0,
        },
        WalOperation::SealSegment {
            number: 1,
            sealed_bytes: 0,
            side_bytes: 0,
            side_crc: 0,
        },
    ];
    let other = [
        WalOperation::AddSlot { slot: 1, bytes: 1 },
        WalOperation::OpenSegment {
            number: 1,
            slot: 1,
            salt: u64::MAX,
        },
        WalOperation::SealSegment {
            number: 1,
            sealed_bytes: 1,
            side_bytes: u32::MAX,
            side_crc: u32::MAX,
        },
    ];
    for steps in [steps, other] {
        for (index, step) in steps.into_iter().enumerate() {
            let mut manifest = if index == 0 {
                create(&vfs)
            } else {
                open(&vfs).unwrap().0
            };
            manifest.commit(&[step]).unwrap();
            let before = manifest.version().clone();
            for _ in 0..2 {
                assert_eq!(open(&vfs).unwrap().0.version(), &before);
            }
        }
        for name in vfs.list(Path::new(DIR)).unwrap() {
            vfs.remove(&Path::new(DIR).join(name)).unwrap();
        }
    }
}

#[test]
fn names_parse_only_in_their_own_form() {
    use crate::manifest::{parse_side_name, parse_slot_name, side_name, slot_name};
    for number in [1, 7, 999_999, 1_000_000, u32::MAX] {
        assert_eq!(parse_slot_name(&slot_name(number)), Some(number));
        assert_eq!(
            parse_side_name(&side_name(number.into())),
            Some(number.into())
        );
        assert_eq!(
            parse_file_name(&file_name(number.into())),
            Some(number.into())
        );
    }
    for name in [
        "",
        "slot-1.wal",
        "slot-+00001.wal",
        "slot-000001.wal.tmp",
        "slot-0000001.wal",
    ] {
        assert_eq!(parse_slot_name(name), None, "{name}");
    }
    for name in [
        "7.idx",
        "000000000007",
        "000000000007.idx.tmp",
        "+00000000007.idx",
    ] {
        assert_eq!(parse_side_name(name), None, "{name}");
    }
    for name in [
        "MANIFEST-1",
        "MANIFEST-",
        "MANIFEST-000001.tmp",
        "manifest-000001",
    ] {
        assert_eq!(parse_file_name(name), None, "{name}");
    }
}

#[test]
fn on_a_real_disk() {
    let name = format!("braidlog-manifest-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    let vfs: Arc<dyn Vfs> = Arc::new(RealVfs);
    vfs.create_dir_all(&dir).unwrap();
    let options = Options {
        rotate_edits: 7,
        ..Options::default()
    };
    let mut manifest = Manifest::<WalFiles>::create(vfs.clone(), &dir, ID, options).unwrap();
    let mut follower = Manifest::<WalFiles>::open_read_only(vfs.clone(), &dir, ID).unwrap();
    for edit in workload() {
        manifest.commit(&edit).unwrap();
        assert!(follower.refresh().unwrap());
        assert_eq!(follower.version(), manifest.version());
    }
    let before = manifest.version().clone();
    manifest.close().unwrap();
    let (manifest, report) = Manifest::<WalFiles>::open(vfs.clone(), &dir, ID, options).unwrap();
    assert!(report.clean_close);
    assert_eq!(manifest.version(), &before);
    assert_eq!(vfs.list(&dir).unwrap().len(), 2);
    std::fs::remove_dir_all(&dir).unwrap();
}
