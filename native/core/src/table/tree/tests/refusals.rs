//! Edits that do not apply, one by one.

use super::super::version::TreeVersion;
use super::*;
use TreeOperation as Op;

pub const EDIT: manifest::Context = manifest::Context {
    edit: 4,
    snapshot: false,
};

pub fn listed(number: u64, oldest: u64, newest: u64, positions: (u64, u64)) -> ListedRun {
    let info = RunInfo {
        number,
        bytes: 500,
        checksum: 7,
        entries: 3,
        keys: 2,
        tombstones: 1,
        first_key: b"a".to_vec(),
        last_key: b"x".to_vec(),
        position_min: positions.0,
        position_max: positions.1,
    };
    ListedRun {
        info: Arc::new(info),
        oldest,
        newest,
    }
}

fn slice(range: &[u8], run: u64) -> Op {
    Op::AddSlice {
        range: range.to_vec(),
        run,
        begin: None,
        end: None,
    }
}

fn bounded(range: &[u8], run: u64, begin: &[u8], end: &[u8]) -> Op {
    Op::AddSlice {
        range: range.to_vec(),
        run,
        begin: Some(begin.to_vec()),
        end: Some(end.to_vec()),
    }
}

pub fn unslice(range: &[u8], run: u64, begin: &[u8]) -> Op {
    Op::RemoveSlice {
        range: range.to_vec(),
        run,
        begin: begin.to_vec(),
    }
}

fn range(begin: &[u8], end: Option<&[u8]>) -> Op {
    Op::AddRange {
        begin: begin.to_vec(),
        end: end.map(<[u8]>::to_vec),
    }
}

fn flush(position: u64, run: u64) -> Op {
    Op::Flush {
        position,
        what: Flushed::Run(run),
    }
}

/// Ranges from the beginning to `m` and from there on, each with a slice of runs 1 and 2; flushed up to 20.
pub fn edits() -> Vec<Vec<Op>> {
    vec![
        vec![Op::Begin { flushed: 0 }],
        vec![
            Op::AddRun(listed(1, 1, 1, (1, 10))),
            slice(b"", 1),
            flush(10, 1),
        ],
        vec![
            unslice(b"", 1, b""),
            Op::RemoveRange { begin: vec![] },
            range(b"", Some(b"m")),
            range(b"m", None),
            slice(b"", 1),
            slice(b"m", 1),
        ],
        vec![
            Op::AddRun(listed(2, 2, 2, (12, 20))),
            slice(b"", 2),
            slice(b"m", 2),
            flush(20, 2),
        ],
    ]
}

/// What they make.
fn version() -> TreeVersion {
    let mut version = TreeVersion::default();
    for edit in edits() {
        version.apply(EDIT, &edit).unwrap();
    }
    version
}

#[track_caller]
fn refused(edit: &[Op], reason: &str) {
    let error = version().apply(EDIT, edit).unwrap_err();
    assert!(error.contains(reason), "{error}");
}

#[test]
fn holes_and_overlaps() {
    refused(&[range(b"", None)], "a range already begins at \"\"");
    refused(
        &[range(b"g", Some(b"k"))],
        "a range begins at \"g\", not at \"m\"",
    );
    refused(
        &[Op::RemoveRange {
            begin: b"m".to_vec(),
        }],
        "still has slices",
    );
    refused(
        &[Op::RemoveRange {
            begin: b"n".to_vec(),
        }],
        "no range begins at \"n\"",
    );
    let emptied = [
        unslice(b"m", 1, b"m"),
        unslice(b"m", 2, b"m"),
        Op::RemoveRange {
            begin: b"m".to_vec(),
        },
    ];
    refused(&emptied, "no range has the keys from \"m\"");
    let with = |more: Op| [emptied.to_vec(), vec![more]].concat();
    refused(
        &with(range(b"n", None)),
        "a range begins at \"n\", not at \"m\"",
    );
    refused(
        &with(range(b"m", Some(b"z"))),
        "no range has the keys from \"z\"",
    );
    refused(&with(range(b"m", Some(b"m"))), "range \"m\" is empty");
    let long = vec![b'z'; crate::limits::TABLE_KEY_BYTES_MAX + 1];
    refused(&with(range(b"m", Some(&long))), "longer than any key");
    let first = [
        unslice(b"", 1, b""),
        unslice(b"", 2, b""),
        Op::RemoveRange { begin: vec![] },
    ];
    refused(&first, "a range begins at \"m\", not at \"\"");
}

#[test]
fn slices_and_runs() {
    let add = |run: ListedRun| Op::AddRun(run);
    let merged = || add(listed(3, 1, 2, (1, 20)));
    let taken = [unslice(b"", 1, b""), unslice(b"", 2, b"")];
    let with = |more: &[Op]| [&taken[..], more].concat();
    version()
        .apply(EDIT, &with(&[merged(), slice(b"", 3)]))
        .unwrap();
    refused(&[merged(), slice(b"", 3)], "are of the same time");
    refused(
        &with(&[merged(), bounded(b"", 3, b"a", b"n")]),
        "reaches out of range",
    );
    refused(
        &with(&[merged(), bounded(b"m", 3, b"a", b"n")]),
        "reaches out of range",
    );
    refused(&with(&[merged(), bounded(b"", 3, b"b", b"b")]), "is empty");
    refused(
        &with(&[merged(), slice(b"k", 3)]),
        "no range begins at \"k\"",
    );
    refused(&with(&[merged()]), "run 3 has no slice");
    refused(&with(&[slice(b"", 3)]), "run 3, which is not listed");
    refused(&[slice(b"", 1)], "runs 1 and 1 are of the same time");
    refused(&[unslice(b"", 3, b"")], "no such slice of run 3");
    refused(&[unslice(b"", 1, b"b")], "no such slice of run 1");
    refused(&[unslice(b"n", 1, b"")], "no such slice of run 1");
    refused(&[Op::RemoveRun { number: 3 }], "run 3 is not listed");
    refused(&[Op::RemoveRun { number: 1 }], "run 1, which is not listed");
    refused(
        &[unslice(b"m", 1, b"m"), unslice(b"", 1, b"")],
        "run 1 has no slice",
    );
    refused(
        &with(&[add(listed(3, 2, 1, (1, 20))), slice(b"", 3)]),
        "recency 2 to 1",
    );
    refused(
        &with(&[add(listed(3, 1, 3, (1, 20))), slice(b"", 3)]),
        "newer than any flush",
    );
    refused(
        &with(&[add(listed(3, 1, 2, (1, 21))), slice(b"", 3)]),
        "were not flushed",
    );
}

/// Two slices that a merge leaves out between its inputs would be older and newer than what it wrote.
#[test]
fn merges_of_what_does_not_follow_each_other() {
    let mut version = version();
    let run = listed(3, 3, 3, (21, 30));
    let third = [Op::AddRun(run), slice(b"", 3), flush(30, 3)];
    version.apply(EDIT, &third).unwrap();
    let merged = listed(4, 1, 3, (1, 30));
    let edit = [
        unslice(b"", 1, b""),
        unslice(b"", 3, b""),
        Op::RemoveRun { number: 3 },
        Op::AddRun(merged),
        slice(b"", 4),
    ];
    let error = version.apply(EDIT, &edit).unwrap_err();
    assert!(error.contains("are of the same time"), "{error}");
}

#[test]
fn numbers_are_given_once() {
    let again = |number| {
        let run = listed(number, 1, 2, (1, 20));
        vec![
            unslice(b"", 1, b""),
            unslice(b"", 2, b""),
            Op::AddRun(run),
            slice(b"", number),
        ]
    };
    refused(&again(2), "number 2 was given before");
    refused(&again(0), "number 0 was given before");
    let mut version = version();
    assert_eq!(version.next_number(), 3);
    // A task may take longer than one that began behind it.
    version.apply(EDIT, &again(5)).unwrap();
    version
        .apply(
            EDIT,
            &[
                unslice(b"", 5, b""),
                Op::RemoveRun { number: 5 },
                Op::AddRun(listed(4, 1, 2, (1, 20))),
                slice(b"", 4),
            ],
        )
        .unwrap();
    assert_eq!(version.next_number(), 6);
    // The run is gone, the number is not free; also not behind a snapshot.
    let mut restored = TreeVersion::default();
    let context = manifest::Context {
        edit: 9,
        snapshot: true,
    };
    restored.apply(context, &version.snapshot()).unwrap();
    assert_eq!(restored, version);
    for version in [&mut version.clone(), &mut restored] {
        let error = version
            .apply(EDIT, &[Op::AddRun(listed(5, 1, 2, (1, 20)))])
            .unwrap_err();
        assert!(error.contains("number 5 was given before"), "{error}");
    }
    version.apply(EDIT, &[Op::Settle { below: 9 }]).unwrap();
    let error = version
        .apply(EDIT, &[Op::AddRun(listed(8, 1, 2, (1, 20)))])
        .unwrap_err();
    assert!(error.contains("number 8 was given before"), "{error}");
    let error = version.apply(EDIT, &[Op::Settle { below: 8 }]).unwrap_err();
    assert!(error.contains("settled below 8, after 9"), "{error}");
    assert_eq!(version.next_number(), 9);
}

#[test]
fn flushed_positions() {
    let nothing = |position| Op::Flush {
        position,
        what: Flushed::Nothing,
    };
    refused(&[nothing(19)], "flushed up to 19, after 20");
    refused(&[nothing(20)], "flushed up to 20, after 20");
    refused(&[flush(30, 2)], "run 2 was flushed and is not added");
    refused(&[flush(30, 3)], "run 3 was flushed and is not added");
    let with = |run: ListedRun, last: Op| vec![Op::AddRun(run), slice(b"", 3), last];
    refused(
        &with(listed(3, 3, 3, (21, 30)), nothing(30)),
        "nothing was flushed, and a run is added",
    );
    refused(
        &with(listed(3, 3, 3, (20, 30)), flush(30, 3)),
        "positions 20 to 30",
    );
    refused(
        &with(listed(3, 3, 3, (21, 31)), flush(30, 3)),
        "positions 21 to 31",
    );
    refused(
        &with(listed(3, 2, 3, (21, 30)), flush(30, 3)),
        "was flushed as 3, not 3",
    );
    refused(
        &with(listed(3, 4, 4, (21, 30)), flush(30, 3)),
        "was flushed as 4, not 3",
    );
    let mut version = version();
    version.apply(EDIT, &[nothing(25)]).unwrap();
    version
        .apply(EDIT, &with(listed(3, 3, 3, (26, 30)), flush(u64::MAX, 3)))
        .unwrap();
    assert_eq!((version.flushed(), version.next_recency()), (u64::MAX, 4));
}

#[test]
fn floors() {
    refused(
        &[Op::Floor { position: 21 }],
        "floor 21 is above what was flushed",
    );
    let mut version = version();
    version.apply(EDIT, &[Op::Floor { position: 20 }]).unwrap();
    let error = version
        .apply(EDIT, &[Op::Floor { position: 19 }])
        .unwrap_err();
    assert!(error.contains("floor 19, after 20"), "{error}");
}

#[test]
fn beginnings_and_snapshots() {
    refused(&[Op::Begin { flushed: 3 }], "has begun already");
    refused(&[Op::Given { number: 8 }], "an operation of snapshots");
    let restore = Op::Restore {
        flushed: 0,
        floor: 0,
        next_recency: 1,
        settled: 1,
    };
    refused(std::slice::from_ref(&restore), "an operation of snapshots");
    let mut empty = TreeVersion::default();
    assert!(!empty.has_begun() && empty.snapshot().is_empty());
    let error = empty.apply(EDIT, &[range(b"", None)]).unwrap_err();
    assert!(error.contains("has not begun"), "{error}");
    // Half a snapshot is none.
    let context = manifest::Context {
        edit: 1,
        snapshot: true,
    };
    let whole = version().snapshot();
    let mut partial = TreeVersion::default();
    partial.apply(context, &whole[..whole.len() - 1]).unwrap();
    assert!(!partial.has_begun());
    assert_eq!(partial.whole(), Err("the snapshot is incomplete".into()));
    // Nor does anything come behind what makes it whole, or stand in one that is not of it.
    for (operation, reason) in [
        (Op::Given { number: 90 }, "behind the end of the snapshot"),
        (restore, "behind the end of the snapshot"),
        (Op::Settle { below: 9 }, "no snapshot has"),
        (Op::Begin { flushed: 3 }, "no snapshot has"),
    ] {
        let error = version().apply(context, &[operation]).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
    let error = partial
        .apply(EDIT, &[Op::Floor { position: 1 }])
        .unwrap_err();
    assert!(error.contains("the snapshot is incomplete"), "{error}");
    // It may come in parts, and is checked as a whole.
    let mut parts = TreeVersion::default();
    for operation in &whole {
        parts
            .apply(context, std::slice::from_ref(operation))
            .unwrap();
    }
    assert_eq!(parts, version());
    for leave_out in 0..whole.len() - 1 {
        let mut some = whole.clone();
        let gone = some.remove(leave_out);
        let result = TreeVersion::default().apply(context, &some);
        let matters = !matches!(gone, Op::Given { .. });
        // Of a run's slices one may be missing and nobody can tell.
        let is_slice = matches!(gone, Op::AddSlice { .. });
        assert!(result.is_err() == matters || is_slice, "{gone:?}");
    }
}
