//! Registration and lookup without rollbacks.

use super::*;
use crate::Error;
use crate::limits::SAMPLE_BYTES;

/// A third of the sampling distance, rounded up: every third frame is sampled.
const THIRD: u32 = 1366;

#[test]
fn a_frame_is_sampled_from_exactly_the_sampling_distance_on() {
    // 1
    let distance = SAMPLE_BYTES as u32;
    let near = index_of([
        (1, 1, 0, distance - 1),
        (2, 1, 10_000, 8),
        (3, 1, 20_000, 8),
    ]);
    assert_eq!(sampled(&near), [1, 3]);
    let far = index_of([(1, 1, 0, distance), (2, 1, 10_000, 8), (3, 1, 20_000, 8)]);
    assert_eq!(sampled(&far), [1, 2]);
}

#[test]
fn only_the_bytes_of_the_stream_count_towards_a_sample() {
    let sparse = index_of((0..40).map(|i| (i, 1, i as u32 * 1_000_000, 64)));
    assert_eq!(sampled(&sparse), [0]);
}

#[test]
fn floor_and_ceil_are_the_nearest_samples() {
    // 2
    let index = index_of([
        (1, 1, 10_000, THIRD),
        (2, 1, 20_000, THIRD),
        (3, 1, 30_000, THIRD),
        (4, 1, 40_000, 2048),
        (5, 1, 50_000, 2048),
        (6, 1, 60_000, 8),
    ]);
    assert_eq!(sampled(&index), [1, 4, 6]);
    let floors = [(1, 1), (2, 1), (3, 1), (4, 4), (5, 4), (6, 6)];
    for (llsn, expected) in floors {
        assert_eq!(
            index.floor(llsn),
            at(expected, expected as u32 * 10_000),
            "floor {llsn}"
        );
    }
    let ceils = [(1, 1), (2, 4), (3, 4), (4, 4), (5, 6), (6, 6)];
    for (llsn, expected) in ceils {
        assert_eq!(
            index.ceil(llsn),
            at(expected, expected as u32 * 10_000),
            "ceil {llsn}"
        );
    }
}

#[test]
fn numbers_inside_frames_lie_between_their_frame_and_the_next() {
    // 4
    let index = index_of([
        (1, 2, 10_000, 4096),
        (3, 3, 30_000, 4096),
        (6, 1, 60_000, 4096),
    ]);
    for (llsn, floor, ceil) in [
        (1, 1, 1),
        (2, 1, 3),
        (3, 3, 3),
        (4, 3, 6),
        (5, 3, 6),
        (6, 6, 6),
    ] {
        assert_eq!(
            index.floor(llsn),
            at(floor, floor as u32 * 10_000),
            "floor {llsn}"
        );
        assert_eq!(
            index.ceil(llsn),
            at(ceil, ceil as u32 * 10_000),
            "ceil {llsn}"
        );
    }
    let open = index_of([(1, 9, 10_000, 64)]);
    assert_eq!(
        (open.floor(9), open.ceil(9)),
        (at(1, 10_000), at(1, 10_000))
    );
}

#[test]
fn lookups_are_the_same_from_memory_and_from_a_side_file() {
    // 5, 20
    let live = index_of((1..=25).map(|v| (v, 1, v as u32 * 2000, THIRD)));
    assert_eq!(sampled(&live), [1, 4, 7, 10, 13, 16, 19, 22, 25]);
    for index in [&live, &reloaded(&live)] {
        assert_eq!(index.range(), Some(1..26));
        for v in 1..=25 {
            let (floor, ceil) = ((v - 1) / 3 * 3 + 1, (v + 1) / 3 * 3 + 1);
            assert_eq!(index.floor(v), at(floor, floor as u32 * 2000), "floor {v}");
            assert_eq!(index.ceil(v), at(ceil, ceil as u32 * 2000), "ceil {v}");
        }
    }
}

#[test]
fn every_large_frame_is_found_exactly() {
    // 8
    let index = index_of((1..=20).map(|v| (v, 1, v as u32 * 100_008, 100_008)));
    for v in 1..=20 {
        assert_eq!(index.floor(v), at(v, v as u32 * 100_008));
        assert_eq!(index.ceil(v), at(v, v as u32 * 100_008));
    }
}

#[test]
fn numbers_outside_the_range_are_not_found_and_do_no_harm() {
    // 10
    let mut index = index_of([(5, 5, 0, 100)]);
    for llsn in [0, 4, 10, u64::MAX] {
        assert_eq!(
            (index.floor(llsn), index.ceil(llsn)),
            (None, None),
            "{llsn}"
        );
    }
    index.note(frame(10, 1, 100, 100)).unwrap();
    assert_eq!(index.floor(10), at(10, 100));
    let empty = StreamIndex::new(false);
    assert_eq!(
        (empty.floor(0), empty.ceil(0), empty.first(), empty.last()),
        (None, None, None, None)
    );
    assert_eq!((empty.range(), empty.timestamps()), (None, None));
}

#[test]
fn a_frame_that_does_not_follow_the_last_one_in_the_file_is_refused() {
    // 11
    let mut index = index_of([(1, 1, 1000, 100)]);
    let before = index.clone();
    for offset in [0, 999, 1000, 1099] {
        let refused = index.note(frame(2, 1, offset, 100));
        assert!(
            matches!(refused, Err(Error::InvalidArgument(_))),
            "{offset}: {refused:?}"
        );
        assert_eq!(index, before);
    }
    index.note(frame(2, 1, 1100, 100)).unwrap();
}

#[test]
fn a_number_that_is_not_the_next_is_refused_and_nothing_changes() {
    // 62, 17
    let mut index = index_of((1..=10).map(|v| (v, 1, v as u32 * 100, 100)));
    let before = index.clone();
    for llsn in [12, 10, 1, 0, u64::MAX - 1] {
        let refused = index.note(frame(llsn, 1, 5000, 100));
        assert!(
            matches!(refused, Err(Error::NotDense { expected: 11, .. })),
            "{refused:?}"
        );
        assert_eq!(index, before);
    }
}

#[test]
fn frames_that_make_no_sense_are_refused_and_nothing_changes() {
    let mut index = index_of([(1, 1, 0, 8)]);
    let before = index.clone();
    let good = frame(2, 1, 8, 8);
    let bad = [
        FrameEntry { count: 0, ..good },
        FrameEntry { bytes: 0, ..good },
        FrameEntry {
            timestamp_min: 1,
            ..good
        },
        FrameEntry {
            llsn: u64::MAX,
            ..good
        },
        FrameEntry {
            offset: u32::MAX,
            ..good
        },
    ];
    for frame in bad {
        let refused = index.note(frame);
        assert!(
            matches!(refused, Err(Error::InvalidArgument(_))),
            "{frame:?}: {refused:?}"
        );
        assert_eq!(index, before);
    }
    index.note(good).unwrap();
}

#[test]
fn a_number_too_far_from_the_first_belongs_in_another_segment() {
    let mut index = StreamIndex::new(true);
    index.note(frame(1, 1, 0, 8)).unwrap();
    let before = index.clone();
    let limit = 1 + u64::from(u32::MAX);
    assert!(matches!(
        index.note(frame(limit + 1, 1, 8, 8)),
        Err(Error::TooLarge { .. })
    ));
    assert_eq!(index, before);
    index.note(frame(limit, 1, 8, 8)).unwrap();
    assert_eq!(index.floor(limit), at(limit, 8));
}

#[test]
fn first_and_last_frame_are_exact_whether_sampled_or_not() {
    let mut index = StreamIndex::new(false);
    for v in 1..=50_u32 {
        index.note(frame(u64::from(v) * 3, 3, v * 64, 64)).unwrap();
        assert_eq!(index.first(), at(3, 64));
        assert_eq!(index.last(), at(u64::from(v) * 3, v * 64));
        assert_eq!(index.floor(u64::from(v) * 3 + 2), index.last());
    }
    assert_eq!((index.frames(), index.bytes()), (50, 3200));
}

#[test]
fn timestamps_span_all_frames() {
    let mut index = StreamIndex::new(false);
    let good = frame(1, 1, 0, 8);
    index
        .note(FrameEntry {
            timestamp_min: -5,
            timestamp_max: -3,
            ..good
        })
        .unwrap();
    assert_eq!(index.timestamps(), Some((-5, -3)));
    let next = frame(2, 1, 8, 8);
    index
        .note(FrameEntry {
            timestamp_min: -9,
            timestamp_max: -8,
            ..next
        })
        .unwrap();
    assert_eq!(index.timestamps(), Some((-9, -3)));
}

#[test]
fn moved_frames_may_have_gaps_and_a_gap_is_followed_by_a_sample() {
    // 16, 65
    let mut index = StreamIndex::new(true);
    for v in (1..=50).filter(|v| !(18..=20).contains(v) && !(38..=40).contains(v)) {
        index.note(frame(v, 1, v as u32 * 100, 100)).unwrap();
    }
    assert_eq!(sampled(&index), [1, 21, 41]);
    // Inside a gap: from before it to behind it.
    assert_eq!(
        (index.floor(19), index.ceil(19)),
        (at(1, 100), at(21, 2100))
    );
    assert_eq!(
        (index.floor(39), index.ceil(39)),
        (at(21, 2100), at(41, 4100))
    );
    let backwards = index.note(frame(50, 1, 9000, 100));
    assert!(matches!(
        backwards,
        Err(Error::NotDense {
            given: 50,
            expected: 51,
            ..
        })
    ));
    assert_eq!(reloaded(&index), index);
}
