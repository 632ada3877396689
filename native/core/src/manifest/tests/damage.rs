//! Damage to the live file: the version that was, or a refusal that says where.

use proptest::prelude::*;

use super::*;
use crate::manifest::codec::{self, HEADER_BYTES, Header};
use crate::manifest::current::encode_current;
use crate::manifest::replay::Replay;

/// A file with a snapshot of several slots and three edits; its length before the last edit.
fn build(close: bool) -> (Vec<u8>, usize, WalFiles) {
    let vfs = memory();
    create(&vfs)
        .commit(&[add(1), add(2), add(3), segment(1, 1)])
        .unwrap();
    let (mut manifest, _) = open(&vfs).unwrap();
    manifest.commit(&[seal(1), segment(2, 2)]).unwrap();
    manifest.commit(&[add(4)]).unwrap();
    let before_last = read(&vfs, "MANIFEST-000002").len();
    manifest
        .commit(&[add(5), WalOperation::DropSegment { number: 1 }])
        .unwrap();
    let version = WalFiles::clone(manifest.version());
    let before_close = read(&vfs, "MANIFEST-000002").len();
    if close {
        manifest.close().unwrap();
    }
    let before_last = if close { before_close } else { before_last };
    (read(&vfs, "MANIFEST-000002"), before_last, version)
}

fn open_bytes(bytes: &[u8]) -> Result<(Manifest<WalFiles>, OpenReport)> {
    let vfs = memory();
    overwrite(&vfs, "MANIFEST-000002", bytes);
    overwrite(&vfs, "CURRENT", &encode_current(2));
    let opened = open(&vfs);
    if opened.is_err() {
        assert_eq!(
            vfs.list(Path::new(DIR)).unwrap(),
            ["CURRENT", "MANIFEST-000002"]
        );
        assert_eq!(
            read(&vfs, "MANIFEST-000002"),
            bytes,
            "a refusal changes nothing"
        );
    }
    opened
}

fn flips(bytes: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> {
    (0..bytes.len() * 8).map(|bit| {
        let mut bytes = bytes.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        (bit / 8, bytes)
    })
}

#[test]
fn after_a_clean_close_every_flip_is_harmless_or_refused() {
    let (bytes, before_close, version) = build(true);
    for (at, damaged) in flips(&bytes) {
        match open_bytes(&damaged) {
            Ok((manifest, report)) => {
                assert!(at >= before_close, "a flip at {at} passed");
                assert_eq!(**manifest.version(), version);
                assert!(!report.clean_close);
                assert_eq!(report.dropped.unwrap().offset, before_close as u64);
            }
            Err(Error::Foreign { .. }) => assert!(at < 4),
            Err(Error::Corruption { offset, .. }) => {
                assert!(offset <= at as u64 && at < before_close, "{at}: {offset}");
            }
            Err(error) => panic!("{at}: {error}"),
        }
    }
}

/// Without a close, damage to the last edit looks like a write cut short, and is reported as that.
#[test]
fn without_a_close_only_the_last_edit_can_be_dropped() {
    let (bytes, before_last, version) = build(false);
    for (at, damaged) in flips(&bytes) {
        match open_bytes(&damaged) {
            Ok((manifest, report)) => {
                let dropped = report.dropped.expect("dropped bytes are reported");
                assert_eq!(dropped.offset, before_last as u64);
                assert_eq!(dropped.offset + dropped.bytes, bytes.len() as u64);
                assert_eq!(dropped.edit, report.last_edit + 1);
                assert!(at >= before_last);
                assert_ne!(**manifest.version(), version);
                assert_eq!(manifest.version().slots().len(), 4);
            }
            Err(Error::Foreign { .. } | Error::Corruption { .. }) => assert!(at < before_last),
            Err(error) => panic!("{at}: {error}"),
        }
    }
}

/// Scenario 34: each prefix opens with what it holds, or is refused; none is empty or partial.
#[test]
fn every_truncation() {
    let (bytes, _, version) = build(true);
    let mut seen = Vec::new();
    for end in 0..bytes.len() {
        match open_bytes(&bytes[..end]) {
            Ok((manifest, report)) => {
                assert!(!report.clean_close);
                let slots = manifest.version().slots().len();
                assert!((3..=5).contains(&slots));
                seen.push(slots);
                assert_eq!(slots == 5, **manifest.version() == version);
            }
            Err(Error::Corruption { .. }) => assert!(seen.is_empty(), "refused at {end}"),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(seen.is_sorted() && seen.contains(&3) && seen.contains(&5));
}

/// Bytes of an earlier file, or of another manifest, are never taken for edits of this one.
#[test]
fn stale_frames_do_not_pass() {
    let (bytes, before_last, _) = build(false);
    let header = Header::decode(Path::new("f"), &bytes).unwrap();
    let frame = codec::decode_frame(&bytes[before_last..], header.seed()).unwrap();
    let object = Identity { object: 1, ..ID };
    for stale in [
        Header {
            file_number: 1,
            ..header
        },
        Header {
            identity: object,
            ..header
        },
    ] {
        assert_ne!(stale.seed(), header.seed());
        let mut file = bytes.clone();
        codec::encode_frame(&mut file, stale.seed(), frame.number + 1, frame.fields).unwrap();
        let (_, report) = open_bytes(&file).unwrap();
        assert_eq!(report.dropped.unwrap().offset, bytes.len() as u64);
    }
    // A frame of this file in the wrong place has the wrong number.
    let mut file = bytes.clone();
    file.extend_from_slice(&bytes[before_last..]);
    let Err(Error::Corruption { offset, .. }) = open_bytes(&file) else {
        panic!()
    };
    assert_eq!(offset, bytes.len() as u64);
    // A hole before a valid frame is no torn tail.
    let mut file = bytes[..before_last].to_vec();
    file.extend_from_slice(&[0; 33]);
    file.extend_from_slice(&bytes[before_last..]);
    let Err(Error::Corruption { offset, .. }) = open_bytes(&file) else {
        panic!()
    };
    assert_eq!(offset, before_last as u64);
    // A hole with nothing behind it is one.
    let file = [&bytes[..], &[0; 5000]].concat();
    assert_eq!(open_bytes(&file).unwrap().1.dropped.unwrap().bytes, 5000);
}

proptest! {
    #[test]
    fn arbitrary_damage_never_panics(
        at in 0..1000_usize,
        noise in proptest::collection::vec(any::<u8>(), 0..200),
        cut in any::<bool>(),
    ) {
        let (mut bytes, _, _) = build(true);
        let at = at % bytes.len();
        let end = (at + noise.len()).min(bytes.len());
        bytes.splice(at..if cut { bytes.len() } else { end }, noise);
        let _ = open_bytes(&bytes);
    }

    /// With a valid checksum over arbitrary fields, the decoders behind it get their turn.
    #[test]
    fn arbitrary_fields_never_panic(
        fields in proptest::collection::vec(any::<u8>(), 0..64),
        tag in 0..30_u16,
        content in proptest::collection::vec(any::<u8>(), 0..40),
        snapshot in any::<bool>(),
    ) {
        let header = Header { identity: ID, kind: 1, file_number: 2, first_edit: 1 };
        let mut bytes = header.encode().to_vec();
        let mut first = Vec::new();
        codec::push_field(&mut first, codec::TAG_SNAPSHOT, |out| out.extend_from_slice(&[0; 4]));
        let mut encoded = fields;
        codec::push_field(&mut encoded, tag, |out| out.extend_from_slice(&content));
        if snapshot {
            first.extend_from_slice(&encoded);
        }
        codec::encode_frame(&mut bytes, header.seed(), 1, &first).unwrap();
        codec::encode_frame(&mut bytes, header.seed(), 2, &encoded).unwrap();
        let path = Path::new("f");
        let mut replay = Replay::<WalFiles>::begin(path, &bytes, 2, &ID).unwrap();
        let _ = replay.feed(path, &bytes[HEADER_BYTES..]);
    }
}
