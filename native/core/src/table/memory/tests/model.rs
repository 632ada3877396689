//! Random pieces against a sorted list.

use proptest::prelude::*;

use super::*;

/// Few keys, so that they meet; some share more than the 8 bytes that are compared first.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(0..3_u8, 0..4),
        proptest::collection::vec(0..2_u8, 7..11),
    ]
}

type Change = (Vec<u8>, Option<Vec<u8>>);

fn pieces() -> impl Strategy<Value = Vec<Vec<Change>>> {
    let payload = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..5));
    let piece = proptest::collection::vec((key(), payload), 0..9);
    proptest::collection::vec(piece, 0..24)
}

/// The newest version at or below a position.
fn visible<'a>(all: &'a [Owned], key: &[u8], at: u64) -> Option<&'a Owned> {
    all.iter()
        .filter(|each| each.0 == key && each.1 <= at)
        .max_by_key(|each| each.1)
}

proptest! {
    #[test]
    fn a_level_is_a_sorted_list(
        pieces in pieces(),
        (begin, end) in (key(), proptest::option::of(key())),
        shuffle in any::<u64>(),
    ) {
        let (mut all, mut position) = (Vec::new(), 0);
        let mut level = Level::default();
        let mut before = (level.clone(), 0);
        for (at, entries) in pieces.into_iter().enumerate() {
            let mut entries: Vec<Owned> = entries
                .into_iter()
                .map(|(key, payload)| {
                    position += 1;
                    (key, position, payload)
                })
                .collect();
            let middle = shuffle as usize % entries.len().max(1);
            entries.rotate_left(middle);
            if at == 9 {
                before = (level.clone(), all.len());
            }
            level = level.push(piece(&entries).sort().unwrap());
            all.extend(entries);
        }
        // A list that a reader holds stays what it was.
        prop_assert_eq!(before.0.len(), before.1);
        prop_assert_eq!(level.len(), all.len());
        prop_assert!(level.chunks() <= all.len().max(1).ilog2() as usize + 1);
        let expected_positions = (!all.is_empty()).then_some((1, position));
        prop_assert_eq!(level.positions(), expected_positions);
        for each in &all {
            for at in [each.1 - 1, each.1, each.1 + 3, u64::MAX] {
                let found = level.get(&each.0, at).map(|found| owned(&found));
                prop_assert_eq!(found.as_ref(), visible(&all, &each.0, at));
            }
        }
        for direction in [Direction::Forward, Direction::Reverse] {
            let mut found = Vec::new();
            for source in level.sources(&begin, end.as_deref(), direction) {
                let part = collect(source);
                let mut expected = sorted(part.clone());
                if direction == Direction::Reverse {
                    expected.reverse();
                }
                prop_assert_eq!(&part, &expected, "each chunk is in order");
                found.extend(part);
            }
            let inside = all
                .iter()
                .filter(|each| each.0 >= begin && end.as_ref().is_none_or(|end| each.0 < *end));
            prop_assert_eq!(sorted(found), sorted(inside.cloned().collect()));
        }
    }
}
