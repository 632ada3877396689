//! What is picked: the shape that follows from it, for any sizes.

use proptest::prelude::*;

use super::*;

const OPTIONS: ShapeOptions = ShapeOptions {
    ratio_percent: 350,
    slices_per_level: 2,
    slices_max: 16,
    range_bytes: 1 << 40,
};

/// Slices of these sizes, newest first, without garbage.
fn range(bytes: &[u64]) -> RangeShape {
    let count = bytes.len() as u64;
    let slice = |(at, &bytes): (usize, &u64)| SliceShape {
        bytes,
        oldest: count - at as u64,
        newest: count - at as u64,
        entries: 100,
        garbage: 0,
        is_rest: false,
    };
    RangeShape {
        slices: bytes.iter().enumerate().map(slice).collect(),
        is_busy: false,
    }
}

fn picked(bytes: &[u64]) -> usize {
    pick_merge(&[range(bytes)], &OPTIONS).map_or(0, |plan| plan.slices)
}

#[test]
fn levels_have_few_slices() {
    assert_eq!(picked(&[]), 0);
    assert_eq!(picked(&[10]), 0);
    assert_eq!(picked(&[10, 10]), 2, "the last level has one");
    assert_eq!(picked(&[10, 100]), 0);
    assert_eq!(picked(&[10, 10, 100]), 0);
    assert_eq!(
        picked(&[10, 10, 10, 1000]),
        3,
        "three on a level that may have two"
    );
    assert_eq!(picked(&[10, 10, 10, 30, 1000]), 3);
    assert_eq!(
        picked(&[10, 10, 10, 30, 30, 1000]),
        5,
        "what comes out goes to the next level"
    );
    assert_eq!(picked(&[0, 0, 0]), 3);
    assert_eq!(picked(&[1000, 10]), 2, "a flush larger than all there is");
}

#[test]
fn garbage_and_rests_are_rewritten() {
    let mut one = range(&[10, 100]);
    one.slices[1].garbage = 90;
    assert_eq!(pick_merge(&[one.clone()], &OPTIONS), None);
    one.slices[0].garbage = 20;
    let plan = MergePlan {
        range: 0,
        slices: 2,
    };
    assert_eq!(pick_merge(&[one.clone()], &OPTIONS), Some(plan));
    let mut rest = range(&[10, 30, 200]);
    rest.slices[1].is_rest = true;
    assert_eq!(pick_merge(&[rest], &OPTIONS), Some(plan));
    let alone = RangeShape {
        slices: vec![SliceShape {
            garbage: 51,
            ..one.slices[1]
        }],
        is_busy: false,
    };
    assert_eq!(
        pick_merge(&[alone], &OPTIONS).map(|plan| plan.slices),
        Some(1)
    );
}

/// Most slices first, then the smallest; never one that is worked on.
#[test]
fn readers_gain_most_from_the_first() {
    let mut ranges = vec![
        range(&[10, 10]),
        range(&[9, 9, 9]),
        range(&[5, 5]),
        range(&[7, 7, 7]),
    ];
    let order = std::iter::from_fn(|| {
        let plan = pick_merge(&ranges, &OPTIONS)?;
        ranges[plan.range].is_busy = true;
        Some(plan.range)
    });
    assert_eq!(order.collect::<Vec<_>>(), [3, 1, 2, 0]);
}

/// A merge never leaves out what is newer than a part of it.
#[test]
fn what_overlaps_in_time_is_taken_along() {
    let mut one = range(&[10, 10, 10, 1000, 8000]);
    one.slices[3].newest = one.slices[2].newest;
    one.slices[3].oldest = 1;
    one.slices[4].newest = 1;
    one.slices[4].oldest = 1;
    assert_eq!(
        pick_merge(&[one], &OPTIONS).map(|plan| plan.slices),
        Some(5)
    );
}

#[test]
fn ranges_are_split_and_coalesced() {
    let options = ShapeOptions {
        range_bytes: 300,
        ..OPTIONS
    };
    let pick = |sizes: &[u64]| {
        let ranges: Vec<_> = sizes.iter().map(|&bytes| range(&[bytes])).collect();
        pick_reshape(&ranges, &options)
    };
    assert_eq!(pick(&[400, 150]), None);
    assert_eq!(pick(&[100, 401]), Some(Reshape::Split(1)));
    assert_eq!(pick(&[200, 100, 49]), Some(Reshape::Coalesce(1)));
    assert_eq!(pick(&[200, 100, 50]), None);
    assert_eq!(pick(&[0, 0]), Some(Reshape::Coalesce(0)));
    // Only the oldest slice counts: what is on top of it may be gone after a merge.
    assert_eq!(pick_reshape(&[range(&[300, 300, 100])], &options), None);
    let mut busy = [range(&[500]), range(&[10]), range(&[10])];
    (busy[0].is_busy, busy[2].is_busy) = (true, true);
    assert_eq!(pick_reshape(&busy, &options), None);
}

const FLUSHES: u64 = 3000;

/// Flush on and on, and merge whatever is picked: reads and writes stay within their bounds.
#[test]
fn many_flushes_cost_what_the_levels_promise() {
    let mut slices: Vec<SliceShape> = Vec::new();
    let (mut written, mut most) = (0, 0);
    for flush in 1..=FLUSHES {
        let slice = SliceShape {
            bytes: 100,
            oldest: flush,
            newest: flush,
            entries: 1,
            ..SliceShape::default()
        };
        slices.insert(0, slice);
        loop {
            let range = RangeShape {
                slices: slices.clone(),
                is_busy: false,
            };
            let Some(plan) = pick_merge(&[range], &OPTIONS) else {
                break;
            };
            let inputs: Vec<_> = slices.drain(..plan.slices).collect();
            let bytes = inputs.iter().map(|slice| slice.bytes).sum();
            written += bytes;
            let (newest, oldest) = (inputs[0].newest, inputs[plan.slices - 1].oldest);
            slices.insert(
                0,
                SliceShape {
                    bytes,
                    oldest,
                    newest,
                    entries: 1,
                    ..SliceShape::default()
                },
            );
        }
        most = most.max(slices.len());
    }
    let each = written / (100 * FLUSHES);
    assert!(most <= 14, "{most} slices at a time");
    assert!(each <= 16, "each byte was written {each} times");
}

proptest! {
    /// Merging what is picked ends, and whatever is picked is there.
    #[test]
    fn picking_ends(
        sizes in proptest::collection::vec(0..1_000_000_000_u64, 0..30),
        garbage in proptest::collection::vec((0..200_u64, any::<bool>()), 30),
        ratio_percent in 0..1000_u64,
        slices_per_level in 0..4_usize,
    ) {
        let options = ShapeOptions { ratio_percent, slices_per_level, ..OPTIONS };
        let mut one = range(&sizes);
        for (slice, (garbage, is_rest)) in one.slices.iter_mut().zip(garbage) {
            (slice.garbage, slice.is_rest) = (garbage.min(100), is_rest);
        }
        for _ in 0..40 {
            let Some(plan) = pick_merge(std::slice::from_ref(&one), &options) else {
                return Ok(());
            };
            prop_assert!(plan.range == 0 && (1..=one.slices.len()).contains(&plan.slices));
            let inputs: Vec<_> = one.slices.drain(..plan.slices).collect();
            let bytes = inputs.iter().map(|slice| slice.bytes).sum();
            let (newest, oldest) = (inputs[0].newest, inputs[inputs.len() - 1].oldest);
            let merged = SliceShape { bytes, oldest, newest, entries: 1, ..SliceShape::default() };
            one.slices.insert(0, merged);
        }
        prop_assert!(false, "it goes on for ever");
    }
}
