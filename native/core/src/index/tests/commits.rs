//! Commit runs.

use super::*;
use crate::Error;

fn run(glsn_begin: u64, llsn_begin: u64, length: u64) -> CommitRun {
    CommitRun {
        glsn_begin,
        llsn_begin,
        length,
    }
}

fn hundred() -> StreamIndex {
    index_of([(1, 100, 0, 4096)])
}

#[test]
fn runs_that_continue_in_both_numbers_become_one() {
    let mut index = hundred();
    index.commit(run(11, 1, 5)).unwrap();
    index.commit(run(16, 6, 5)).unwrap();
    assert_eq!(index.runs(), [run(11, 1, 10)]);
    index.commit(run(30, 11, 5)).unwrap();
    assert_eq!(index.runs(), [run(11, 1, 10), run(30, 11, 5)]);
    assert_eq!(index.committed_end(), Some(16));
}

#[test]
fn numbers_translate_both_ways_and_gaps_have_neighbours() {
    let mut index = hundred();
    index.commit(run(11, 1, 5)).unwrap();
    index.commit(run(30, 6, 3)).unwrap();
    let pairs = [
        (11, 1),
        (12, 2),
        (13, 3),
        (14, 4),
        (15, 5),
        (30, 6),
        (31, 7),
        (32, 8),
    ];
    for glsn in 0..50 {
        let exact = pairs.iter().find(|(g, _)| *g == glsn).map(|(_, l)| *l);
        let floor = pairs.iter().rev().find(|(g, _)| *g <= glsn);
        let ceil = pairs.iter().find(|(g, _)| *g >= glsn);
        let point = |(glsn, llsn): &(u64, u64)| CommitPoint {
            glsn: *glsn,
            llsn: *llsn,
        };
        assert_eq!(index.llsn_of(glsn), exact, "{glsn}");
        assert_eq!(index.glsn_floor(glsn), floor.map(point), "{glsn}");
        assert_eq!(index.glsn_ceil(glsn), ceil.map(point), "{glsn}");
    }
    for llsn in 0..20 {
        let exact = pairs.iter().find(|(_, l)| *l == llsn).map(|(g, _)| *g);
        assert_eq!(index.glsn_of(llsn), exact, "{llsn}");
    }
}

#[test]
fn runs_that_skip_repeat_or_fall_back_are_refused_and_nothing_changes() {
    let mut index = hundred();
    index.commit(run(11, 1, 5)).unwrap();
    let before = index.clone();
    for skip in [run(20, 7, 1), run(20, 5, 1), run(20, 0, 1)] {
        let refused = index.commit(skip);
        assert!(
            matches!(refused, Err(Error::NotDense { expected: 6, .. })),
            "{refused:?}"
        );
    }
    let wraps = run(u64::MAX, 6, 1);
    for bad in [run(15, 6, 1), run(3, 6, 1), run(20, 6, 0), wraps] {
        let refused = index.commit(bad);
        assert!(
            matches!(refused, Err(Error::InvalidArgument(_))),
            "{bad:?}: {refused:?}"
        );
    }
    let ahead = index.commit(run(20, 6, 96));
    assert!(
        matches!(
            ahead,
            Err(Error::BeyondEnd {
                position: 101,
                next: 101
            })
        ),
        "{ahead:?}"
    );
    assert_eq!(index, before);
    index.commit(run(20, 6, 95)).unwrap();
}

#[test]
fn records_of_an_older_segment_can_be_committed_here() {
    let mut index = StreamIndex::new(false);
    index.commit(run(500, 40, 10)).unwrap();
    assert_eq!((index.range(), index.glsn_of(49)), (None, Some(509)));
    assert_eq!(reloaded(&index), index);
    // What is committed exists, so the first frame here cannot begin below it.
    assert!(matches!(
        index.note(frame(49, 1, 0, 8)),
        Err(Error::NotDense { expected: 50, .. })
    ));
    assert!(matches!(
        index.cut(49, 0),
        Err(Error::Committed { committed: 50, .. })
    ));
    index.note(frame(55, 5, 0, 8)).unwrap();
    index.commit(run(600, 50, 10)).unwrap();
    assert_eq!(index.range(), Some(55..60));
}

#[test]
fn moved_runs_may_have_gaps() {
    let mut index = StreamIndex::new(true);
    index.commit(run(10, 1, 5)).unwrap();
    index.commit(run(40, 20, 5)).unwrap();
    assert_eq!((index.glsn_of(19), index.glsn_of(20)), (None, Some(40)));
    assert_eq!(index.llsn_of(14), Some(5));
    assert!(matches!(
        index.commit(run(90, 24, 1)),
        Err(Error::NotDense { .. })
    ));
    assert_eq!(reloaded(&index), index);
}
