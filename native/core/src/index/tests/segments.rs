//! Several streams in a segment, and a stream over several segments.

use super::*;
use crate::Error;

#[test]
fn streams_and_origins_are_apart() {
    // 65
    let mut segment = SegmentIndex::new();
    segment.note(1, NATIVE, frame(10, 5, 0, 64)).unwrap();
    segment.note(2, NATIVE, frame(70, 5, 64, 64)).unwrap();
    segment.note(1, 1, frame(3, 5, 128, 64)).unwrap();
    assert_eq!(segment.floor(1, NATIVE, 12), at(10, 0));
    assert_eq!(segment.floor(1, 1, 4), at(3, 128));
    assert_eq!(segment.floor(1, NATIVE, 4), None);
    assert_eq!(
        (segment.floor(2, NATIVE, 12), segment.floor(3, NATIVE, 12)),
        (None, None)
    );
    let keys: Vec<_> = segment
        .iter()
        .map(|(stream, index)| (stream, u32::from(index.is_moved())))
        .collect();
    assert_eq!(keys, [(1, NATIVE), (1, 1), (2, NATIVE)]);
    assert_eq!(segment.len(), 3);
    assert!(segment.memory_bytes() >= 3 * size_of::<StreamIndex>() + 3 * 8);
}

#[test]
fn a_refused_call_leaves_no_stream_behind() {
    let mut segment = SegmentIndex::new();
    segment.note(1, NATIVE, frame(10, 0, 0, 64)).unwrap_err();
    segment
        .commit(
            1,
            NATIVE,
            CommitRun {
                glsn_begin: 1,
                llsn_begin: 1,
                length: 0,
            },
        )
        .unwrap_err();
    segment.cut(1, 5, u32::MAX).unwrap_err();
    assert!(segment.is_empty());
}

#[test]
fn a_rollback_cuts_moved_frames_only_where_it_reaches_them() {
    let mut segment = SegmentIndex::new();
    segment.note(1, 1, frame(3, 5, 0, 64)).unwrap();
    segment.note(1, NATIVE, frame(10, 5, 64, 64)).unwrap();
    segment.cut(1, 12, 128).unwrap();
    assert_eq!(segment.stream(1, 1).unwrap().range(), Some(3..8));
    assert_eq!(segment.stream(1, NATIVE).unwrap().range(), Some(10..12));
    segment.cut(1, 8, 190).unwrap();
    assert!(
        segment.stream(1, 1).unwrap().cuts().is_empty(),
        "8 is where they end"
    );
    segment.cut(1, 6, 200).unwrap();
    assert_eq!(segment.stream(1, 1).unwrap().range(), Some(3..6));
    assert_eq!(segment.stream(1, NATIVE).unwrap().range(), Some(6..6));
    assert_eq!(segment.clip(1, 1, 3, 5, 0), 3);
    assert_eq!(segment.clip(1, NATIVE, 10, 5, 64), 0);
}

#[test]
fn a_rollback_refused_for_one_origin_changes_neither() {
    let mut segment = SegmentIndex::new();
    segment.note(1, 1, frame(3, 5, 0, 64)).unwrap();
    segment.note(1, NATIVE, frame(10, 5, 64, 64)).unwrap();
    segment
        .commit(
            1,
            1,
            CommitRun {
                glsn_begin: 1,
                llsn_begin: 3,
                length: 4,
            },
        )
        .unwrap();
    let before = segment.clone();
    assert!(matches!(
        segment.cut(1, 6, 200),
        Err(Error::Committed { committed: 7, .. })
    ));
    assert_eq!(segment, before);

    segment
        .commit(
            1,
            NATIVE,
            CommitRun {
                glsn_begin: 9,
                llsn_begin: 7,
                length: 4,
            },
        )
        .unwrap();
    let before = segment.clone();
    assert!(matches!(
        segment.cut(1, 7, 200),
        Err(Error::Committed { committed: 11, .. })
    ));
    assert_eq!(segment, before);
}

/// Indexes of one stream, oldest first, and the rule that says who owns a number.
struct Log(Vec<StreamIndex>);

impl Log {
    fn owner(&self, llsn: u64) -> Option<&StreamIndex> {
        let starts_at = |index: &&StreamIndex| index.range().is_some_and(|r| r.start <= llsn);
        self.0
            .iter()
            .rev()
            .find(starts_at)
            .filter(|index| llsn < index.range().unwrap().end)
    }

    fn floor(&self, llsn: u64) -> Option<Position> {
        self.owner(llsn)?.floor(llsn)
    }
}

/// LLSNs `begin..end`, one a frame, at `100 * LLSN`.
fn span(begin: u64, end: u64) -> StreamIndex {
    index_of((begin..end).map(|v| (v, 1, v as u32 * 100, 100)))
}

#[test]
fn each_segment_begins_with_a_sample_and_ends_with_a_landmark() {
    // 7
    let log = Log(vec![span(1, 51), span(51, 101)]);
    for (v, floor) in [
        (1, 1),
        (41, 1),
        (42, 42),
        (50, 50),
        (51, 51),
        (91, 51),
        (92, 92),
        (100, 100),
    ] {
        assert_eq!(log.floor(v), at(floor, floor as u32 * 100), "{v}");
    }
    assert_eq!((log.floor(0), log.floor(101)), (None, None));
    assert_eq!(log.0[0].ceil(50), at(50, 5000));
    assert_eq!(log.0[1].ceil(51), at(51, 5100));
}

#[test]
fn dropping_old_segments_leaves_every_newer_number_findable() {
    // 34, 35, 41, 46
    let mut log = Log((0..5).map(|i| span(i * 8, i * 8 + 8)).collect());
    for dropped in 1..=5 {
        log.0.remove(0);
        for v in 0..40 {
            let expected = (v >= dropped * 8).then_some(v);
            assert_eq!(log.floor(v).is_some(), expected.is_some(), "{v}");
            if let Some(floor) = log.floor(v) {
                assert!(floor.llsn / 8 == v / 8, "{v} leads into its own segment");
            }
        }
        if let Some(oldest) = log.0.first() {
            assert_eq!(oldest.first(), at(dropped * 8, dropped as u32 * 800));
        }
    }
}

#[test]
fn numbers_above_a_trim_inside_a_segment_stay_findable() {
    // 40: a trim inside a segment moves a watermark; the index of the segment stays whole.
    let log = Log(vec![span(1, 21), span(21, 31)]);
    for v in 6..31 {
        assert!(log.floor(v).unwrap().llsn <= v);
    }
}

#[test]
fn the_only_commit_survives_the_drop_of_what_lies_before_it() {
    // 38
    let mut log = Log(vec![span(1, 7), span(7, 11)]);
    log.0[1]
        .commit(CommitRun {
            glsn_begin: 1,
            llsn_begin: 1,
            length: 7,
        })
        .unwrap();
    log.0.remove(0);
    assert_eq!(log.0[0].committed_end(), Some(8));
    assert_eq!(log.0[0].glsn_of(7), Some(7));
}

#[test]
fn a_rollback_in_a_newer_segment_clips_the_older_ones() {
    // 58 over segments
    let mut log = Log(vec![span(0, 100), span(100, 200), StreamIndex::new(false)]);
    log.0[2].cut(50, 0).unwrap();
    log.0[2].note(frame(50, 10, 48, 64)).unwrap();
    assert_eq!(log.floor(49), log.0[0].floor(49));
    assert_eq!(log.floor(50), at(50, 48));
    assert_eq!(log.floor(59), at(50, 48));
    for gone in [60, 99, 100, 150, 199] {
        assert_eq!(log.floor(gone), None, "{gone}");
    }
    // A segment that knows only commits owns nothing.
    log.0.push(StreamIndex::new(false));
    log.0[3]
        .commit(CommitRun {
            glsn_begin: 1,
            llsn_begin: 0,
            length: 5,
        })
        .unwrap();
    assert_eq!(log.floor(59), at(50, 48));
}
