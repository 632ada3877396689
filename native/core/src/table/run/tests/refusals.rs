//! What is not accepted, and that it changes nothing.

use super::*;
use crate::codec::Take;
use crate::limits::{RUN_PAGE_BYTES_MAX, TABLE_KEY_BYTES_MAX, TABLE_PAYLOAD_BYTES_MAX};

fn entry(key: &[u8], position: u64) -> Entry<'_> {
    Entry {
        key,
        position,
        payload: Some(b"x"),
    }
}

fn begin(vfs: &MemoryVfs) -> RunWriter {
    RunWriter::create(
        Arc::new(vfs.clone()),
        Path::new(DIR),
        ID,
        RunOptions::default(),
    )
    .unwrap()
}

#[test]
fn entries_out_of_order_and_over_limits_are_refused() {
    let vfs = memory();
    let mut writer = begin(&vfs);
    let long = vec![b'k'; TABLE_KEY_BYTES_MAX + 1];
    writer.push(entry(b"b", 5)).unwrap();
    for (key, position) in [(&b"a"[..], 9), (b"b", 5), (b"b", 6), (b"", 1)] {
        let error = writer.push(entry(key, position)).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }
    let error = writer.push(entry(&long, 1)).unwrap_err();
    assert!(
        matches!(error, Error::TooLarge { what: "key", .. }),
        "{error}"
    );
    let large = vec![0; TABLE_PAYLOAD_BYTES_MAX + 1];
    let error = writer
        .push(Entry {
            payload: Some(&large),
            ..entry(b"c", 1)
        })
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::TooLarge {
                what: "payload",
                ..
            }
        ),
        "{error}"
    );
    writer.push(entry(b"b", 4)).unwrap();
    writer.push(entry(&long[1..], 3)).unwrap();
    writer
        .push(Entry {
            payload: Some(&large[1..]),
            ..entry(b"l", 2)
        })
        .unwrap();
    assert_eq!(writer.entries(), 4);
    let info = writer.finish().unwrap().unwrap();
    let run = open(&vfs, &info).unwrap();
    let found: Vec<u64> = all(&run)
        .unwrap()
        .iter()
        .map(|(_, position, _)| *position)
        .collect();
    assert_eq!(found, [5, 4, 3, 2]);
    run.verify(&mut |_| {}).unwrap();
}

#[test]
fn nothing_written_is_no_file() {
    let vfs = memory();
    assert_eq!(begin(&vfs).finish().unwrap(), None);
    assert_eq!(vfs.list(Path::new(DIR)).unwrap(), Vec::<String>::new());
}

#[test]
fn a_run_that_was_given_up_leaves_nothing() {
    let vfs = memory();
    for explicit in [true, false] {
        let mut writer = begin(&vfs);
        writer.push(entry(b"a", 1)).unwrap();
        assert_eq!(vfs.list(Path::new(DIR)).unwrap(), ["000007.run.tmp"]);
        if explicit {
            writer.abandon().unwrap();
        } else {
            drop(writer);
        }
        assert_eq!(vfs.list(Path::new(DIR)).unwrap(), Vec::<String>::new());
    }
}

#[test]
fn a_number_is_not_given_twice_and_pages_have_a_limit() {
    let vfs = memory();
    let mut writer = begin(&vfs);
    writer.push(entry(b"a", 1)).unwrap();
    writer.finish().unwrap();
    let create = |options| RunWriter::create(Arc::new(vfs.clone()), Path::new(DIR), ID, options);
    let error = create(RunOptions::default()).err().unwrap();
    assert!(matches!(error, Error::AlreadyExists { .. }), "{error}");
    let error = create(options(Compression::None, RUN_PAGE_BYTES_MAX + 1))
        .err()
        .unwrap();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
}

#[test]
fn files_of_others_are_refused() {
    let vfs = memory();
    let model = some_entries(20);
    let info = write(&vfs, &model, RunOptions::default()).unwrap().unwrap();
    let cache = Arc::new(RunCache::default());
    let open_as = |identity, info: &RunInfo| {
        Run::open(
            Arc::new(vfs.clone()),
            Path::new(DIR),
            identity,
            info,
            &cache,
        )
        .err()
        .unwrap()
    };
    for (identity, part) in [
        (RunIdentity { node: 9, ..ID }, "node"),
        (RunIdentity { tree: 9, ..ID }, "tree"),
    ] {
        let error = open_as(identity, &info);
        assert!(
            matches!(&error, Error::WrongIdentity { what, .. } if *what == part),
            "{error}"
        );
    }
    let error = open_as(
        ID,
        &RunInfo {
            number: 8,
            ..info.clone()
        },
    );
    assert!(matches!(error, Error::Missing { .. }), "{error}");
    // A file that was renamed.
    vfs.rename(
        &Path::new(DIR).join(file_name(7)),
        &Path::new(DIR).join(file_name(8)),
    )
    .unwrap();
    let error = open_as(
        RunIdentity { number: 8, ..ID },
        &RunInfo { number: 8, ..info },
    );
    assert!(
        matches!(error, Error::WrongIdentity { what: "run", .. }),
        "{error}"
    );
}

#[test]
fn a_newer_format_is_told_apart_from_damage() {
    let vfs = memory();
    let info = write(&vfs, &some_entries(20), RunOptions::default())
        .unwrap()
        .unwrap();
    let mut bytes = file(&vfs);
    let footer = bytes.len() - 128;
    bytes[footer + 4] = 2;
    let checksum = crc32c::crc32c(&bytes[footer..footer + 124]);
    bytes[footer + 124..].copy_from_slice(&checksum.to_le_bytes());
    let error = open(&disk_of(&bytes), &info).err().unwrap();
    assert!(matches!(error, Error::Newer { found: 2, .. }), "{error}");
}

#[test]
fn what_no_run_can_have_is_no_info() {
    let vfs = memory();
    let good = write(&vfs, &some_entries(20), RunOptions::default())
        .unwrap()
        .unwrap();
    for bad in [
        RunInfo {
            entries: 0,
            ..good.clone()
        },
        RunInfo {
            keys: 0,
            ..good.clone()
        },
        RunInfo {
            keys: good.entries + 1,
            ..good.clone()
        },
        RunInfo {
            keys: 1,
            ..good.clone()
        },
        RunInfo {
            tombstones: good.entries + 1,
            ..good.clone()
        },
        RunInfo {
            last_key: vec![],
            ..good.clone()
        },
        RunInfo {
            position_min: good.position_max + 1,
            ..good.clone()
        },
    ] {
        let mut bytes = Vec::new();
        bad.encode(&mut bytes);
        let error = RunInfo::decode(&mut Take::new("info", &bytes)).unwrap_err();
        assert!(matches!(error, Error::Malformed { .. }), "{error}");
        assert!(open(&vfs, &bad).is_err());
    }
}

#[test]
fn file_names_are_read_back_and_no_others() {
    for number in [0, 7, 999_999, 1_000_000, u64::MAX] {
        assert_eq!(parse_file_name(&file_name(number)), Some(number));
    }
    for name in [
        "7.run",
        "0000007.run",
        "000007.run.tmp",
        "x.run",
        ".run",
        "+00007.run",
    ] {
        assert_eq!(parse_file_name(name), None, "{name}");
    }
}
