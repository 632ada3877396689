//! Dividing keys for several readers.

use proptest::prelude::*;

use super::*;

type Rows = Vec<(Vec<u8>, u64)>;

fn rows(snapshot: &Snapshot, begin: &[u8], end: Option<&[u8]>) -> Rows {
    let (at, shown) = (snapshot.position(), Tombstones::Hidden);
    let entries = snapshot.entries(Some(begin), end, Direction::Forward, at, shown);
    let (mut entries, mut rows) = (entries.unwrap(), Vec::new());
    while entries.advance().unwrap() {
        rows.push((entries.entry().key.to_vec(), entries.entry().position));
    }
    rows
}

/// Parts follow each other, have all of the rows, and are as many and as large as was asked for.
fn check(snapshot: &Snapshot, begin: &[u8], end: Option<&[u8]>, bytes: u64, parts_max: usize) {
    let parts = snapshot.divide(begin, end, bytes, parts_max);
    if end.is_some_and(|end| end <= begin) {
        assert_eq!(parts, []);
        return;
    }
    assert!((1..=parts_max).contains(&parts.len()), "{parts:?}");
    assert_eq!(parts[0].0, begin);
    assert!(parts.is_sorted_by(|one, next| one.0 < next.0));
    assert!(end.is_none_or(|end| parts.iter().all(|part| *part.0 < *end)));
    let ends = parts.iter().skip(1).map(|part| Some(&part.0[..]));
    let mut found = Rows::new();
    for ((begin, _), end) in parts.iter().zip(ends.chain([end])) {
        found.extend(rows(snapshot, begin, end));
    }
    assert_eq!(found, rows(snapshot, begin, end));
    for pair in parts.windows(2).take(parts_max.saturating_sub(2)) {
        assert!(pair[0].1 + pair[1].1 > bytes, "{parts:?} of {bytes}");
    }
}

#[test]
fn parts_have_about_the_size_that_is_wanted() {
    let mut world = World::memory();
    for round in 0..3 {
        let keys = (0..900_u16).map(|key| key.to_be_bytes().to_vec());
        let changes = keys.map(|key| (key, Some(vec![round; 20])));
        world.apply(&changes.collect::<Vec<_>>());
        assert!(world.tree.flush().unwrap());
    }
    for reshaped in [false, true] {
        let snapshot = world.tree.snapshot();
        let whole = snapshot.bytes_between(None, None);
        for wanted in [2, 5, 9] {
            let parts = snapshot.divide(&[], None, whole.div_ceil(wanted), 100);
            let largest = parts.iter().map(|part| part.1).max().unwrap();
            assert!(largest <= whole.div_ceil(wanted), "{parts:?}");
            let count = parts.len() as u64;
            assert!((wanted..=2 * wanted + 1).contains(&count), "{parts:?}");
            check(&snapshot, b"", None, whole.div_ceil(wanted), 100);
        }
        assert_eq!(snapshot.divide(&[], None, u64::MAX, 9).len(), 1);
        assert_eq!(snapshot.divide(&[], None, 1, 1).len(), 1);
        assert!((3..=7).contains(&snapshot.divide(&[], None, 1, 7).len()));
        if !reshaped {
            for _ in 0..3 {
                assert!(world.tree.reshape().unwrap());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn parts_have_all_rows_each_once(
        flushes in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..5),
        (merges, reshapes) in (0..3_usize, 0..3_usize),
        in_memory in proptest::collection::vec(any::<u8>(), 0..5),
        bounds in (proptest::collection::vec(any::<u8>(), 0..2), proptest::option::of(any::<u8>())),
    ) {
        let mut world = World::memory();
        for keys in &flushes {
            let changes = keys.iter().map(|key| {
                (vec![*key, *key / 3], (*key % 5 > 0).then(|| vec![*key; 9]))
            });
            world.apply(&changes.collect::<Vec<_>>());
            world.tree.flush().unwrap();
            for _ in 0..reshapes {
                world.tree.reshape().unwrap();
            }
            for _ in 0..merges {
                world.tree.merge(None).unwrap();
            }
        }
        let memory: Vec<_> = in_memory.iter().map(|key| (vec![*key], Some(vec![0]))).collect();
        world.apply(&memory);
        let snapshot = world.tree.snapshot();
        let (begin, end) = (&bounds.0, bounds.1.map(|end| vec![end]));
        for bytes in [0, 1, 100, 300, 1 << 40] {
            for parts_max in [1, 2, 3, 1000] {
                check(&snapshot, begin, end.as_deref(), bytes, parts_max);
            }
        }
    }
}
