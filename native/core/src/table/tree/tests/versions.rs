//! The bytes of edits.

use proptest::prelude::*;

use super::*;
use crate::manifest::Operation;

fn key() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..6)
}

fn run() -> impl Strategy<Value = ListedRun> {
    let numbers = (1..1_u64 << 40, any::<u64>(), any::<u32>(), 0..99_u64);
    (numbers, key(), 0..1000_u64, 0..1000_u64).prop_map(|(numbers, first_key, low, more)| {
        let last_key = [first_key.as_slice(), &[1]].concat();
        let info = RunInfo {
            number: numbers.0,
            bytes: numbers.1,
            checksum: numbers.2,
            entries: numbers.3 + 2,
            keys: 2,
            tombstones: numbers.3,
            first_key,
            last_key,
            position_min: low,
            position_max: low + more,
        };
        ListedRun {
            info: Arc::new(info),
            oldest: low,
            newest: low + more,
        }
    })
}

fn operation() -> impl Strategy<Value = TreeOperation> {
    use TreeOperation as Op;
    let number = || 0..1_u64 << 40;
    let bound = || proptest::option::of(key());
    prop_oneof![
        any::<u64>().prop_map(|flushed| Op::Begin { flushed }),
        run().prop_map(Op::AddRun),
        number().prop_map(|number| Op::RemoveRun { number }),
        (key(), bound()).prop_map(|(begin, end)| Op::AddRange { begin, end }),
        key().prop_map(|begin| Op::RemoveRange { begin }),
        (key(), number(), bound(), bound()).prop_map(|(range, run, begin, end)| Op::AddSlice {
            range,
            run,
            begin,
            end
        }),
        (key(), number(), key()).prop_map(|(range, run, begin)| Op::RemoveSlice {
            range,
            run,
            begin
        }),
        (any::<u64>(), proptest::option::of(number())).prop_map(|(position, run)| {
            let what = run.map_or(Flushed::Nothing, Flushed::Run);
            Op::Flush { position, what }
        }),
        any::<u64>().prop_map(|position| Op::Floor { position }),
        number().prop_map(|below| Op::Settle { below }),
        number().prop_map(|number| Op::Given { number }),
        (any::<u64>(), any::<u64>(), number(), number()).prop_map(
            |(flushed, floor, next_recency, settled)| Op::Restore {
                flushed,
                floor,
                next_recency,
                settled
            }
        ),
    ]
}

fn encoded(operation: &TreeOperation) -> Vec<u8> {
    let mut out = Vec::new();
    operation.encode(&mut out);
    out
}

proptest! {
    #[test]
    fn operations_survive_their_bytes(operation in operation()) {
        let bytes = encoded(&operation);
        let decoded = TreeOperation::decode(operation.tag(), &bytes).unwrap();
        prop_assert_eq!(decoded, Ok(operation.clone()));
        let tag = operation.tag();
        for len in 0..bytes.len() {
            prop_assert!(TreeOperation::decode(tag, &bytes[..len]).unwrap().is_err());
        }
        let longer = [&bytes[..], &[0]].concat();
        prop_assert!(TreeOperation::decode(tag, &longer).unwrap().is_err());
    }

    /// No bytes do harm, and what is accepted has one encoding.
    #[test]
    fn any_bytes_are_decoded_or_refused(
        tag in 0..40_u16,
        operation in operation(),
        damage in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        other in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..60)),
    ) {
        let mut bytes = encoded(&operation);
        for (at, value) in damage {
            if let Some(byte) = at.checked_rem(bytes.len()).map(|at| &mut bytes[at]) {
                *byte = value;
            }
        }
        let (tag, bytes) = match other {
            Some(other) => (tag, other),
            None => (operation.tag(), bytes),
        };
        match TreeOperation::decode(tag, &bytes) {
            None => prop_assert!(!(16..=27).contains(&tag)),
            Some(Err(reason)) => prop_assert!(!reason.is_empty()),
            Some(Ok(decoded)) => prop_assert_eq!(encoded(&decoded), bytes),
        }
    }

    /// Operations that decode may be applied in any order: they are refused, or the version is sound.
    #[test]
    fn any_operations_leave_a_sound_version(
        operations in proptest::collection::vec(operation(), 0..12),
        snapshot in any::<bool>(),
    ) {
        let mut version = TreeVersion::default();
        let context = manifest::Context { edit: 1, snapshot };
        if version.apply(context, &operations).is_ok() && version.has_begun() {
            prop_assert_eq!(version.check(), Ok(()));
        }
    }
}

#[test]
fn numbers_from_which_one_cannot_count_on_are_refused() {
    use TreeOperation as Op;
    let huge = 1 << 62;
    for operation in [
        Op::Settle { below: huge },
        Op::Given { number: huge },
        Op::Restore {
            flushed: 0,
            floor: 0,
            next_recency: huge,
            settled: 0,
        },
        Op::Flush {
            position: 1,
            what: Flushed::Run(huge),
        },
    ] {
        let decoded = TreeOperation::decode(operation.tag(), &encoded(&operation)).unwrap();
        assert!(decoded.is_err(), "{operation:?}");
    }
}
