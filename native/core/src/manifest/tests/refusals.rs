//! Everything that is refused, and that a refusal changes nothing.

use super::*;
use crate::manifest::codec::{self, Header};
use crate::manifest::current::{NUMBER_MAX, encode_current, file_name};
use crate::manifest::{Version, side_name};

fn refused(manifest: &mut Manifest<WalFiles>, operations: &[WalOperation], says: &str) {
    let before = (manifest.version().clone(), manifest.next_edit());
    let error = manifest.commit(operations).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
    assert!(
        error.to_string().contains(says),
        "{error} does not say {says}"
    );
    assert_eq!((manifest.version().clone(), manifest.next_edit()), before);
}

#[test]
fn edits_that_do_not_apply() {
    use WalOperation as Op;
    let vfs = memory();
    let mut manifest = create(&vfs);
    let manifest = &mut manifest;
    refused(manifest, &[], "needs an operation");
    refused(manifest, &[add(0)], "ids below 1");
    refused(manifest, &[Op::AddSlot { slot: 1, bytes: 0 }], "no bytes");
    refused(manifest, &[add(u32::MAX)], "used up");
    refused(manifest, &[Op::RemoveSlot { slot: 1 }], "slot 1 is unknown");
    refused(manifest, &[segment(1, 1)], "slot 1 is unknown");
    manifest.commit(&[add(1), add(2), add(3)]).unwrap();
    refused(manifest, &[add(3)], "ids below 4");
    refused(manifest, &[segment(2, 1)], "not the next, 1");
    refused(manifest, &[segment(0, 1)], "not the next, 1");
    refused(manifest, &[seal(1)], "segment 1 is unknown");
    manifest.commit(&[segment(1, 1)]).unwrap();
    refused(manifest, &[Op::RemoveSlot { slot: 1 }], "slot 1 is in use");
    refused(manifest, &[segment(2, 2)], "segment 1 is not sealed");
    refused(
        manifest,
        &[segment(2, 2), seal(1)],
        "segment 1 is not sealed",
    );
    refused(manifest, &[seal(1), segment(2, 1)], "slot 1 is in use");
    refused(manifest, &[Op::DropSegment { number: 1 }], "not sealed");
    refused(manifest, &[Op::DropSegment { number: 2 }], "unknown");
    let over = Op::SealSegment {
        number: 1,
        sealed_bytes: (1 << 20) + 1,
        side_bytes: 0,
        side_crc: 0,
    };
    refused(manifest, &[over], "in a slot of");
    manifest.commit(&[seal(1)]).unwrap();
    refused(manifest, &[seal(1)], "sealed already");
    refused(manifest, &[Op::DropSegment { number: 1 }], "newest");
    refused(
        manifest,
        &[segment(2, 2), Op::DropSegment { number: 2 }],
        "not sealed",
    );
    manifest
        .commit(&[segment(2, 2), Op::DropSegment { number: 1 }])
        .unwrap();
    refused(manifest, &[segment(1, 1)], "not the next, 3");
    // The second operation is refused, so the first one does not happen either.
    refused(manifest, &[add(9), add(9)], "ids below 10");
    let restore = Op::RestoreSegment {
        number: 3,
        slot: 1,
        salt: 0,
        created_by: 1,
    };
    refused(manifest, &[restore], "snapshots");
    refused(
        manifest,
        &[Op::Advance {
            next_segment: 9,
            next_slot: 9,
        }],
        "snapshots",
    );
    manifest.commit(&[Op::RemoveSlot { slot: 3 }]).unwrap();
    // Neither numbers nor ids are given twice, also not after a reopening.
    let mut reopened = open(&vfs).unwrap().0;
    refused(&mut reopened, &[add(3)], "ids below 4");
    assert_eq!(
        (
            reopened.version().next_segment(),
            reopened.version().next_slot()
        ),
        (3, 4)
    );
    assert_eq!(reopened.version().free_slots().collect::<Vec<_>>(), [1]);
    assert_eq!(side_name(7), "000000000007.idx");
}

#[test]
fn an_edit_over_the_limit() {
    let vfs = memory();
    let mut manifest = create(&vfs);
    let many: Vec<_> = (1..=1_000_000).map(add).collect();
    assert!(matches!(
        manifest.commit(&many),
        Err(Error::TooLarge { .. })
    ));
    assert_eq!(manifest.version().slots().len(), 0);
    manifest.commit(&many[..900_000]).unwrap();
    assert_eq!(open(&vfs).unwrap().0.version().slots().len(), 900_000);
}

#[test]
fn creation_over_something() {
    let vfs = memory();
    create(&vfs).commit(&[add(1)]).unwrap();
    let again =
        || Manifest::<WalFiles>::create(vfs.clone(), Path::new(DIR), ID, Options::default()).err();
    assert!(matches!(again(), Some(Error::AlreadyExists { .. })));
    vfs.remove(&Path::new(DIR).join("CURRENT")).unwrap();
    assert!(matches!(again(), Some(Error::Missing { .. })));
    assert_eq!(vfs.list(Path::new(DIR)).unwrap(), ["MANIFEST-000001"]);
}

#[test]
fn creation_over_the_remains_of_one() {
    let vfs = memory();
    drop(create(&vfs));
    let file = read(&vfs, "MANIFEST-000001");
    for end in 0..=file.len() {
        let vfs = memory();
        overwrite(&vfs, "MANIFEST-000001", &file[..end]);
        overwrite(&vfs, "CURRENT.tmp", b"MANI");
        assert!(matches!(open(&vfs), Err(Error::Missing { .. })));
        create(&vfs).commit(&[add(1)]).unwrap();
        assert_eq!(open(&vfs).unwrap().0.version().slots().len(), 1);
    }
}

fn current_for(number: u64) -> Vec<u8> {
    encode_current(number)
}

/// Scenario 35, and the invariant that a missing manifest is never an empty one.
#[test]
fn missing_files() {
    let vfs = memory();
    assert!(matches!(open(&vfs), Err(Error::NotFound { .. })));
    overwrite(&vfs, "LOCK", b"");
    assert!(matches!(open(&vfs), Err(Error::NotFound { .. })));
    overwrite(&vfs, "wal/slot-000001.wal", b"");
    assert!(matches!(open(&vfs), Err(Error::Missing { .. })));

    let vfs = memory();
    create(&vfs).commit(&[add(1)]).unwrap();
    // An older file is there, the one that CURRENT names is not.
    overwrite(&vfs, "CURRENT", &current_for(2));
    for error in [
        open(&vfs).err(),
        Manifest::<WalFiles>::open_read_only(vfs.clone(), Path::new(DIR), ID).err(),
    ] {
        let Some(Error::Missing { path, .. }) = error else {
            panic!("{error:?}")
        };
        assert!(path.ends_with("MANIFEST-000002"));
    }
    vfs.remove(&Path::new(DIR).join("CURRENT")).unwrap();
    let Err(Error::Missing { path, .. }) = open(&vfs) else {
        panic!()
    };
    assert!(path.ends_with("CURRENT"));
    overwrite(&vfs, "CURRENT", &current_for(1));
    assert_eq!(open(&vfs).unwrap().0.version().slots().len(), 1);
}

#[test]
fn foreign_newer_and_mistaken_files() {
    let vfs = memory();
    drop(create(&vfs));
    let good = read(&vfs, "MANIFEST-000001");
    let with_header = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = good.clone();
        change(&mut bytes[..60]);
        let checksum = crc32c::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
        overwrite(&vfs, "MANIFEST-000001", &bytes);
        open(&vfs).err().unwrap()
    };
    let error = with_header(&|header| header[0] = b'X');
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
    let error = with_header(&|header| header[4] = 2);
    assert!(
        matches!(
            error,
            Error::Newer {
                found: 2,
                supported: 1,
                ..
            }
        ),
        "{error}"
    );
    let error = with_header(&|header| header[4] = 0);
    assert!(
        matches!(error, Error::Corruption { offset: 4, .. }),
        "{error}"
    );
    let error = with_header(&|header| header[48] = 0);
    assert!(
        matches!(error, Error::Corruption { offset: 48, .. }),
        "{error}"
    );
    let error = with_header(&|header| header[48..56].fill(0xff));
    assert!(
        matches!(error, Error::Corruption { offset: 48, .. }),
        "{error}"
    );
    let error = with_header(&|header| header[40] = 2);
    assert!(
        matches!(error, Error::Corruption { offset: 40, .. }),
        "{error}"
    );
    for (at, expected) in [(8, "object"), (24, "node"), (56, "object kind")] {
        let error = with_header(&|header| header[at] ^= 1);
        assert!(
            matches!(error, Error::WrongIdentity { what, .. } if what == expected),
            "{error}"
        );
    }
    // A file moved over another number is not that file.
    overwrite(&vfs, "MANIFEST-000002", &good);
    overwrite(&vfs, "CURRENT", &current_for(2));
    assert!(matches!(
        open(&vfs),
        Err(Error::Corruption { offset: 40, .. })
    ));
}

/// There is no number behind such a file, so it is none of ours.
#[test]
fn file_numbers_at_the_end_of_their_range() {
    let vfs = memory();
    drop(create(&vfs));
    for number in [u64::MAX, NUMBER_MAX] {
        let name = file_name(number);
        overwrite(&vfs, &name, b"left alone");
        let (manifest, _) = open(&vfs).unwrap();
        assert!(manifest.file_number().unwrap() < 10);
        assert_eq!(read(&vfs, &name), b"left alone");
        drop(manifest);
        let current = read(&vfs, "CURRENT");
        overwrite(&vfs, "CURRENT", &current_for(number));
        assert!(matches!(open(&vfs), Err(Error::Corruption { .. })));
        overwrite(&vfs, "CURRENT", &current);
    }
}

#[test]
fn a_damaged_pointer() {
    let vfs = memory();
    drop(create(&vfs));
    let good = read(&vfs, "CURRENT");
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        overwrite(&vfs, "CURRENT", &bytes);
        let Err(Error::Corruption { path, .. }) = open(&vfs) else {
            panic!("bit {bit}")
        };
        assert!(path.ends_with("CURRENT"));
    }
    for end in 0..good.len() {
        overwrite(&vfs, "CURRENT", &good[..end]);
        assert!(
            matches!(open(&vfs), Err(Error::Corruption { .. })),
            "cut at {end}"
        );
    }
}

/// Append forged fields as one valid edit and open.
fn open_with(fields: &[(u16, &[u8])]) -> Result<(Manifest<WalFiles>, OpenReport)> {
    open_with_number(3, fields)
}

fn open_with_number(
    number: u64,
    fields: &[(u16, &[u8])],
) -> Result<(Manifest<WalFiles>, OpenReport)> {
    let vfs = memory();
    create(&vfs).commit(&[add(1)]).unwrap();
    let mut file = read(&vfs, "MANIFEST-000001");
    let seed = Header::decode(Path::new("f"), &file).unwrap().seed();
    let mut encoded = Vec::new();
    for (tag, bytes) in fields {
        codec::push_field(&mut encoded, *tag, |out| out.extend_from_slice(bytes));
    }
    codec::encode_frame(&mut file, seed, number, &encoded).unwrap();
    overwrite(&vfs, "MANIFEST-000001", &file);
    open(&vfs)
}

#[test]
fn valid_edits_of_invalid_content() {
    assert!(open_with(&[]).is_ok());
    assert!(open_with(&[(17, &[1, 0, 0, 0])]).is_ok());
    // Unknown required fields, of the manifest's own range and of the version's.
    for tag in [0, 3, 15, 23, 900, 0x7fff] {
        let Err(Error::Newer { found, .. }) = open_with(&[(tag, &[])]) else {
            panic!("{tag}")
        };
        assert_eq!(found, u32::from(tag));
    }
    let corrupt: [&[(u16, &[u8])]; 8] = [
        // Cut off, too long, not applicable.
        &[(17, &[1, 0, 0])],
        &[(17, &[1, 0, 0, 0, 0])],
        &[(17, &[2, 0, 0, 0])],
        // Misplaced or second snapshot, misplaced or non-empty close, operations in a close.
        &[(1, &[0; 4])],
        &[(17, &[1, 0, 0, 0]), (2, &[])],
        &[(2, &[0])],
        &[(2, &[]), (17, &[1, 0, 0, 0])],
        &[(0x8005, &[]), (1, &[0; 4])],
    ];
    for fields in corrupt {
        let error = open_with(fields).err().unwrap();
        assert!(
            matches!(error, Error::Corruption { .. }),
            "{fields:?}: {error}"
        );
    }
}

/// A gap or a repetition in the numbers, of an edit that would apply.
#[test]
fn edits_out_of_order() {
    for number in [0, 1, 2, 4, u64::MAX] {
        let error = open_with_number(number, &[(17, &[1, 0, 0, 0])])
            .err()
            .unwrap();
        assert!(
            error.to_string().contains("stands where 3 should"),
            "{error}"
        );
    }
}

#[test]
fn bytes_behind_the_close_edit() {
    let vfs = memory();
    create(&vfs).close().unwrap();
    let mut file = read(&vfs, "MANIFEST-000001");
    file.push(0);
    overwrite(&vfs, "MANIFEST-000001", &file);
    assert!(matches!(open(&vfs), Err(Error::Corruption { .. })));
}

#[test]
fn snapshot_of_a_version_gives_that_version() {
    let context = crate::manifest::Context {
        edit: 5,
        snapshot: true,
    };
    let mut version = WalFiles::default();
    version
        .apply(
            context,
            &[add(1), add(4), segment(1, 4), seal(1), segment(2, 1)],
        )
        .unwrap();
    let mut again = WalFiles::default();
    let context = crate::manifest::Context {
        edit: 6,
        snapshot: true,
    };
    again.apply(context, &version.snapshot()).unwrap();
    assert_eq!(again, version);
}
