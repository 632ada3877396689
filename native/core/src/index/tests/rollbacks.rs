//! Tail cuts.

use super::*;
use crate::Error;

/// LLSNs 1..=20, one a frame, every third sampled.
fn twenty() -> StreamIndex {
    index_of((1..=20).map(|v| (v, 1, v as u32 * 2000, 1366)))
}

#[test]
fn nothing_at_or_above_a_cut_is_found_and_everything_below_is_bounded() {
    // 49
    for from in 9..=20 {
        let mut index = index_of((10..20).map(|v| (v, 1, v as u32 * 2000, 1366)));
        index.cut(from, 50_000).unwrap();
        for v in 10.min(from)..=20 {
            if v < from {
                let (floor, ceil) = (index.floor(v).unwrap(), index.ceil(v).unwrap());
                let offset = v as u32 * 2000;
                assert!(
                    floor.offset <= offset && offset <= ceil.offset,
                    "cut {from}, {v}"
                );
                assert!(floor.llsn <= v && floor.offset == floor.llsn as u32 * 2000);
            } else {
                assert_eq!(
                    (index.floor(v), index.ceil(v)),
                    (None, None),
                    "cut {from}, {v}"
                );
            }
        }
        assert_eq!(index.range(), Some(10.min(from)..from));
        assert_eq!(reloaded(&index), index);
    }
}

#[test]
fn a_cut_above_the_end_is_refused() {
    let mut index = twenty();
    let before = index.clone();
    assert!(matches!(
        index.cut(22, 50_000),
        Err(Error::BeyondEnd {
            position: 22,
            next: 21
        })
    ));
    assert!(matches!(
        index.cut(20, 41_365),
        Err(Error::InvalidArgument(_))
    ));
    assert!(matches!(
        index.cut(20, u32::MAX),
        Err(Error::InvalidArgument(_))
    ));
    assert_eq!(index, before);
    index.cut(21, 41_366).unwrap();
    assert_eq!(index.range(), Some(1..21));
}

#[test]
fn a_cut_between_samples_leaves_the_sample_before_it_as_last_known() {
    // 50
    let mut index = index_of([
        (10, 5, 10_000, 4096),
        (15, 5, 20_000, 4096),
        (20, 3, 30_000, 200),
        (23, 3, 31_000, 200),
        (26, 3, 32_000, 200),
    ]);
    index.cut(26, 40_000).unwrap();
    assert_eq!(index.last(), at(20, 30_000));
    assert_eq!(index.floor(25), at(20, 30_000));
    // The frame of 25 lies somewhere before the rollback frame.
    assert_eq!(index.ceil(25), at(26, 40_000));
    assert_eq!(index.ceil(20), at(20, 30_000));
    index.note(frame(26, 1, 41_000, 200)).unwrap();
    assert_eq!(
        (index.ceil(25), index.floor(25)),
        (at(26, 41_000), at(20, 30_000))
    );
    assert_eq!(index.last(), at(26, 41_000));
}

#[test]
fn a_cut_that_spares_the_last_frame_keeps_it_exact() {
    let mut index = index_of([(1, 10, 0, 100), (11, 10, 100, 100)]);
    index.cut(15, 200).unwrap();
    assert_eq!((index.last(), index.ceil(14)), (at(11, 100), at(11, 100)));
    assert_eq!(index.range(), Some(1..15));
}

#[test]
fn a_cut_keeps_exactly_the_samples_below_it() {
    // 52
    for from in 1..=20 {
        let mut index = twenty();
        index.cut(from, 50_000).unwrap();
        let kept: Vec<u64> = [1, 4, 7, 10, 13, 16, 19]
            .into_iter()
            .filter(|v| *v < from)
            .collect();
        assert_eq!(sampled(&index), kept, "cut {from}");
    }
}

#[test]
fn numbers_written_anew_are_found_at_their_new_place() {
    // 52, 61
    for from in 1..=20 {
        let mut index = twenty();
        index.cut(from, 50_000).unwrap();
        for v in from..from + 3 {
            index
                .note(frame(v, 1, 60_000 + v as u32 * 100, 100))
                .unwrap();
        }
        assert_eq!(index.range(), Some(1..from + 3), "the end may move down");
        assert_eq!(index.floor(from), at(from, 60_000 + from as u32 * 100));
        assert_eq!(index.ceil(from), index.floor(from));
        assert_eq!(index.last(), at(from + 2, 60_200 + from as u32 * 100));
        assert!(matches!(
            index.note(frame(from, 1, 90_000, 100)),
            Err(Error::NotDense { .. })
        ));
    }
}

#[test]
fn everything_can_be_cut_and_written_again() {
    // 53
    let mut index = twenty();
    index.cut(1, 50_000).unwrap();
    assert_eq!(
        (index.range(), index.first(), index.last()),
        (Some(1..1), None, None)
    );
    index.note(frame(1, 1, 60_000, 100)).unwrap();
    assert_eq!(index.range(), Some(1..2));
    assert_eq!(
        (index.floor(1), index.first()),
        (at(1, 60_000), at(1, 60_000))
    );
}

#[test]
fn a_cut_below_the_beginning_leaves_an_empty_range_there() {
    let mut index = index_of([(100, 10, 0, 64)]);
    index.cut(90, 64).unwrap();
    assert_eq!(index.range(), Some(90..90));
    assert!(index.samples().is_empty());
    assert_eq!(index.clip(100, 10, 0), 0);
    assert!(matches!(
        index.note(frame(100, 1, 200, 64)),
        Err(Error::NotDense { .. })
    ));
    index.note(frame(90, 1, 200, 64)).unwrap();
    assert_eq!((index.range(), index.clip(90, 1, 200)), (Some(90..91), 1));

    let mut untouched = StreamIndex::new(false);
    untouched.cut(90, 64).unwrap();
    assert_eq!(untouched.range(), Some(90..90));
    assert_eq!(reloaded(&untouched), untouched);
}

#[test]
fn a_cut_leaves_the_commits_below_it_alone() {
    // 55, 38
    let mut index = twenty();
    index
        .commit(CommitRun {
            glsn_begin: 101,
            llsn_begin: 1,
            length: 4,
        })
        .unwrap();
    index.cut(8, 50_000).unwrap();
    assert_eq!(index.committed_end(), Some(5));
    assert_eq!((index.glsn_of(4), index.glsn_of(5)), (Some(104), None));
}

#[test]
fn a_cut_below_the_committed_end_is_refused() {
    // 37
    let mut index = twenty();
    index
        .commit(CommitRun {
            glsn_begin: 101,
            llsn_begin: 1,
            length: 4,
        })
        .unwrap();
    let before = index.clone();
    for from in 0..5 {
        let refused = index.cut(from, 50_000);
        assert!(
            matches!(refused, Err(Error::Committed { committed: 5, .. })),
            "{refused:?}"
        );
        assert_eq!(index, before);
    }
    index.cut(5, 50_000).unwrap();
}

#[test]
fn two_cuts_in_a_row_keep_the_greatest_sample_below_both() {
    // 56
    let mut index = index_of([
        (10, 5, 10_000, 4096),
        (15, 5, 20_000, 4096),
        (20, 5, 30_000, 100),
        (25, 5, 31_000, 100),
        (30, 5, 32_000, 100),
        (35, 1, 33_000, 100),
        (36, 1, 34_000, 100),
    ]);
    index.cut(33, 40_000).unwrap();
    index.cut(32, 41_000).unwrap();
    assert_eq!(index.last(), at(20, 30_000));
    assert_eq!(
        (index.floor(31), index.ceil(31)),
        (at(20, 30_000), at(32, 41_000))
    );
    // The second binds wherever the first did.
    assert_eq!(
        index.cuts(),
        [Cut {
            from: 32,
            offset: 41_000
        }]
    );
    assert_eq!(index.clip(30, 5, 32_000), 2);
}

#[test]
fn each_of_several_rollbacks_binds_the_frames_before_it() {
    // 58, 59
    let mut index = index_of((1..=50).map(|v| (v, 1, v as u32 * 10, 10)));
    index.cut(31, 1000).unwrap();
    for v in 31..=37 {
        index.note(frame(v, 1, 1000 + v as u32 * 10, 10)).unwrap();
    }
    index.cut(34, 2000).unwrap();
    for v in 34..=37 {
        index.note(frame(v, 1, 2000 + v as u32 * 10, 10)).unwrap();
    }
    assert_eq!(index.range(), Some(1..38));
    for v in 1..=50 {
        let offset = v as u32 * 10;
        assert_eq!(
            index.clip(v, 1, offset),
            u32::from(v < 31),
            "{v} in the first lap"
        );
        if (31..=37).contains(&v) {
            assert_eq!(
                index.clip(v, 1, 1000 + offset),
                u32::from(v < 34),
                "{v} in the second"
            );
        }
        if (34..=37).contains(&v) {
            assert_eq!(index.clip(v, 1, 2000 + offset), 1, "{v} in the third");
        }
    }
    // 31 and 34 are sampled because a cut precedes them: no walk through dead frames.
    assert_eq!(index.floor(33), at(31, 1310));
    assert_eq!(index.floor(36), at(34, 2340));
    assert_eq!(index.floor(30), at(1, 10));
    assert_eq!(reloaded(&index), index);
}

#[test]
fn a_frame_is_clipped_by_the_lowest_later_cut_even_if_a_higher_one_comes_first() {
    let mut index = index_of([(1, 100, 0, 64)]);
    index.cut(60, 100).unwrap();
    index.note(frame(60, 40, 200, 64)).unwrap();
    index.cut(80, 300).unwrap();
    assert_eq!((index.clip(1, 100, 0), index.clip(60, 40, 200)), (59, 20));
    index.cut(30, 400).unwrap();
    assert_eq!((index.clip(1, 100, 0), index.clip(60, 40, 200)), (29, 0));
    assert_eq!(
        index.cuts(),
        [Cut {
            from: 30,
            offset: 400
        }]
    );
}
