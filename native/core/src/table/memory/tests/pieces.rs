//! What a piece takes, and how it is sorted.

use super::*;
use crate::limits::TABLE_KEY_BYTES_MAX;

/// Keys that a comparison of their first 8 bytes alone, or of padded ones, puts in a wrong order.
fn awkward() -> Vec<Owned> {
    let keys: [&[u8]; 12] = [
        b"",
        b"\0",
        b"\0\0",
        b"a",
        b"a\0",
        b"a\0\0\0\0\0\0\0",
        b"a\0\0\0\0\0\0\0\0",
        b"abcdefgh",
        b"abcdefgh\0",
        b"abcdefghi",
        b"abcdefgi",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    let mut entries = Vec::new();
    for (at, key) in keys.iter().enumerate() {
        for position in [3, u64::MAX, 1, 2] {
            let payload = (position != 2).then(|| vec![at as u8; at]);
            entries.push((key.to_vec(), position, payload));
        }
    }
    entries.reverse();
    entries
}

#[test]
fn keys_are_compared_whole() {
    let entries = awkward();
    let expected = sorted(entries.clone());
    let chunk = chunk(&entries);
    let found = collect(chunk.entries(b"", None, Direction::Forward));
    assert_eq!(found, expected);
    let mut back = collect(chunk.entries(b"", None, Direction::Reverse));
    back.reverse();
    assert_eq!(back, expected);
    assert_eq!(chunk.positions(), (1, u64::MAX));
    for (key, position, payload) in &entries {
        let found = chunk.get(key, *position).unwrap();
        assert_eq!(
            (found.position, found.payload),
            (*position, payload.as_deref())
        );
        assert_eq!(chunk.get(key, 0), None);
    }
    assert_eq!(chunk.get(b"abcdefghh", 9), None);
}

#[test]
fn chunks_merge_as_if_they_had_been_one_piece() {
    let entries = awkward();
    let (newer, older): (Vec<_>, Vec<_>) = entries.into_iter().partition(|each| each.1 > 2);
    let merged = Arc::new(Chunk::merge(&chunk(&older), &chunk(&newer)));
    let all = sorted([older, newer].concat());
    assert_eq!(collect(merged.entries(b"", None, Direction::Forward)), all);
}

/// Large chunks share their bytes instead of copying them.
#[test]
fn large_chunks_merge_too() {
    let make = |first: u64| -> Vec<Owned> {
        let keys = (0..3000_u64).map(|n| (n * 7919 % 3001).to_be_bytes().to_vec());
        keys.enumerate()
            .map(|(at, key)| (key, first + at as u64, Some(vec![at as u8; 100])))
            .collect()
    };
    let (a, b, c) = (make(1), make(3001), make(6001));
    let level = [&a, &b, &c]
        .into_iter()
        .fold(Level::default(), |level, entries| {
            level.push(piece(entries).sort().unwrap())
        });
    assert_eq!((level.chunks(), level.len()), (2, 9000));
    assert!(level.bytes() > 9000 * (100 + 8));
    for each in a.iter().chain(&b).chain(&c) {
        assert_eq!(
            level
                .get(&each.0, each.1)
                .map(|found| owned(&found))
                .as_ref(),
            Some(each)
        );
    }
}

#[test]
fn one_position_changes_a_key_once() {
    let entries = [
        (b"long enough".to_vec(), 4, None),
        (b"other".to_vec(), 4, None),
        (b"long enough".to_vec(), 4, Some(vec![])),
    ];
    let error = piece(&entries).sort().unwrap_err();
    assert!(matches!(&error, Error::InvalidArgument(reason) if reason.contains("position 4")));
    piece(&entries[1..]).sort().unwrap();
}

#[test]
fn a_key_over_the_limit_is_refused_and_leaves_the_piece_as_it_was() {
    let mut piece = piece(&[(b"a".to_vec(), 1, Some(vec![7]))]);
    let long = vec![0; TABLE_KEY_BYTES_MAX + 1];
    let entry = |key| Entry {
        key,
        position: 2,
        payload: None,
    };
    let error = piece.push(&entry(&long)).unwrap_err();
    assert!(matches!(
        error,
        Error::TooLarge {
            what: "key of a table",
            ..
        }
    ));
    assert_eq!((piece.len(), piece.positions()), (1, Some((1, 1))));
    piece.push(&entry(&long[1..])).unwrap();
    let chunk = Arc::new(piece.sort().unwrap());
    assert_eq!(
        chunk.get(&long[1..], 2).unwrap().key.len(),
        TABLE_KEY_BYTES_MAX
    );
}

#[test]
fn an_empty_piece_is_nothing() {
    let level = Level::default().push(Piece::with_capacity(3, 9).sort().unwrap());
    assert!(level.is_empty() && level.positions().is_none() && Piece::new().positions().is_none());
    assert_eq!(
        (level.chunks(), level.bytes(), level.get(b"", u64::MAX)),
        (0, 0, None)
    );
}
