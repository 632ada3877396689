//! Tables in the catalog: created with their pins, changed all or none.

use crate::error::{Error, Result};
use crate::limits::{TABLE_INDEXES_MAX, TABLE_OPTIONS_BYTES_MAX, TABLE_SPEC_BYTES_MAX};
use crate::wal::format::change::Change;
use crate::wal::format::frame::{FrameHeader, Kind};
use crate::wal::{
    IndexState, NewIndex, NewLog, NewTable, Replacement, State, TableChange, pin_name, pin_of,
};

/// Id that the driver gives a log of that name.
pub(super) fn log_id(name: &str) -> u128 {
    u128::from(crc32c::crc32c(name.as_bytes())) + 1
}

pub(super) fn index(tree: u128, name: &str) -> NewIndex {
    NewIndex {
        tree,
        name: name.into(),
        spec: b"json:/city".to_vec(),
    }
}

/// A table of log "a" with identities from `id` on.
pub(super) fn table(id: u128, name: &str, indexes: &[&str]) -> NewTable {
    let indexes = indexes.iter().zip(id + 2..);
    NewTable {
        id,
        name: name.into(),
        log: log_id("a"),
        created: 9,
        start: 1,
        primary: id + 1,
        options: b"{}".to_vec(),
        indexes: indexes.map(|(name, tree)| index(tree, name)).collect(),
    }
}

pub(super) fn create(id: u128, name: &str) -> TableChange {
    TableChange::Create(table(id, name, &["by city"]))
}

pub(super) fn header(kind: Kind, stream: u32) -> FrameHeader {
    FrameHeader {
        kind,
        flags: 0,
        stream,
        count: 0,
        epoch: 0,
        llsn: 0,
        durable: 0,
        ordinal: 0,
    }
}

/// Log "a" with nine records, the first two trimmed.
pub(super) fn sample() -> State {
    let mut state = State::default();
    let log = NewLog {
        id: log_id("a"),
        explicit_commit: false,
        created: 0,
        name: "a".into(),
        options: Vec::new(),
    };
    let at = |llsn, kind| FrameHeader {
        llsn,
        ..header(kind, 1)
    };
    let create = Change::CreateLog(log);
    state.apply(&at(0, Kind::Catalog), &create).unwrap();
    let (count, producer) = (9, None);
    let batch = Change::Batch { count, producer };
    state.apply(&at(1, Kind::Batch), &batch).unwrap();
    state.apply(&at(3, Kind::Trim), &Change::Trim).unwrap();
    state
}

fn apply(state: &mut State, changes: &[TableChange]) -> Result<()> {
    let change = Change::Tables(changes.to_vec());
    state.apply(&header(Kind::Catalog, 0), &change)
}

fn from(mut new: NewTable, start: u64) -> TableChange {
    new.start = start;
    TableChange::Create(new)
}

#[test]
fn a_table_comes_with_the_cursor_that_pins_its_log() {
    let mut state = sample();
    apply(&mut state, &[from(table(10, "t", &["x", "y"]), 5)]).unwrap();
    let pin = &state.streams[&1].cursors[&pin_name(10)];
    assert_eq!((pin.position, pin.pin, pin.lease), (5, true, 0));
    assert_eq!(state.streams[&1].lowest_pin(i64::MAX), Some(5));
    let found = state.table_named("t").unwrap();
    let states: Vec<IndexState> = found.indexes.iter().map(|index| index.state).collect();
    assert_eq!(states, [IndexState::Active(5), IndexState::Active(5)]);
    assert_eq!(State::decode(&state.encode()).unwrap(), state);
    apply(&mut state, &[TableChange::Drop(10)]).unwrap();
    assert_eq!(state, sample());
}

#[test]
fn without_tables_the_state_has_the_bytes_that_it_always_had() {
    let before = sample().encode();
    let mut state = sample();
    apply(&mut state, &[from(table(10, "t", &[]), 3)]).unwrap();
    assert!(state.encode().len() > before.len());
    apply(&mut state, &[TableChange::Drop(10)]).unwrap();
    assert_eq!(state.encode(), before);
}

#[test]
fn an_entry_changes_all_or_nothing() {
    let mut state = sample();
    let all = [
        from(table(10, "t", &["x"]), 3),
        from(table(20, "u", &[]), 3),
        TableChange::Rename(10, "v".into()),
        TableChange::Build(20, index(30, "late"), 10),
        TableChange::Drop(20),
        from(table(40, "t", &[]), 10),
    ];
    for cut in 1..=all.len() {
        // A last change that is refused takes back all in front of it.
        let mut changes = all[..cut].to_vec();
        changes.push(TableChange::Drop(99));
        let refused = apply(&mut state, &changes);
        assert!(matches!(refused, Err(Error::NotFound { .. })), "{cut}");
        assert_eq!(state, sample(), "{cut}");
    }
    apply(&mut state, &all).unwrap();
    let names: Vec<&str> = state.tables.iter().map(|table| &*table.name).collect();
    assert_eq!(names, ["v", "t"]);
    let pins: Vec<u64> = [10, 40]
        .iter()
        .map(|id| state.streams[&1].cursors[&pin_name(*id)].position)
        .collect();
    assert_eq!(pins, [3, 10]);
    assert_eq!(state.streams[&1].cursors.len(), 2);
}

#[test]
fn an_index_is_built_then_active_or_gone() {
    let mut state = sample();
    apply(&mut state, &[from(table(10, "t", &[]), 3)]).unwrap();
    apply(&mut state, &[TableChange::Build(10, index(20, "x"), 7)]).unwrap();
    let found = |state: &State| {
        let table = state.table_named("t").unwrap();
        table.index_named("x").map(|index| index.state)
    };
    assert_eq!(found(&state), Some(IndexState::Building(7)));
    let mut aborted = state.clone();
    apply(&mut aborted, &[TableChange::Abort(10, 20, 9)]).unwrap();
    assert_eq!(found(&aborted), None);
    apply(&mut state, &[TableChange::Activate(10, 20, 10)]).unwrap();
    assert_eq!(found(&state), Some(IndexState::Active(7)));
    for again in [
        TableChange::Activate(10, 20, 10),
        TableChange::Abort(10, 20, 10),
    ] {
        let refused = apply(&mut state, &[again]);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    }
    apply(&mut state, &[TableChange::Unindex(10, 20)]).unwrap();
    assert_eq!(found(&state), None);
}

#[test]
fn a_replacement_has_the_name_and_nothing_of_the_files() {
    let mut state = sample();
    let old = [from(table(10, "t", &["x", "y"]), 3)];
    apply(&mut state, &old).unwrap();
    let new = |trees: &[u128]| Replacement {
        id: 50,
        start: 10,
        primary: 51,
        trees: trees.to_vec(),
    };
    for wrong in [&[52][..], &[52, 52], &[52, 11], &[52, 50], &[0, 52]] {
        let before = state.clone();
        assert!(apply(&mut state, &[TableChange::Replace(10, new(wrong))]).is_err());
        assert_eq!(state, before);
    }
    apply(&mut state, &[TableChange::Replace(10, new(&[52, 53]))]).unwrap();
    let found = state.table_named("t").unwrap();
    assert_eq!((found.id, found.primary, found.start), (50, 51, 10));
    assert_eq!(found.options, b"{}");
    let trees: Vec<(&str, u128)> = found
        .indexes
        .iter()
        .map(|index| (&*index.index.name, index.index.tree))
        .collect();
    assert_eq!(trees, [("x", 52), ("y", 53)]);
    let cursors: Vec<&String> = state.streams[&1].cursors.keys().collect();
    assert_eq!(cursors, [&pin_name(50)]);
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let mut state = sample();
    let with = |change: fn(&mut NewTable)| {
        let mut new = table(20, "u", &["x"]);
        new.start = 3;
        change(&mut new);
        TableChange::Create(new)
    };
    apply(&mut state, &[from(table(10, "t", &["x"]), 3)]).unwrap();
    let before = state.clone();
    let long = "n".repeat(256);
    let wrong = [
        with(|new| new.name.clear()),
        with(|new| new.name = "t".into()),
        with(|new| new.log = 5),
        with(|new| new.id = 0),
        with(|new| new.id = 10),
        with(|new| new.primary = 11),
        with(|new| new.primary = 20),
        with(|new| new.start = 2),
        with(|new| new.start = 11),
        with(|new| new.options = vec![1; TABLE_OPTIONS_BYTES_MAX + 1]),
        with(|new| new.indexes[0].spec = vec![1; TABLE_SPEC_BYTES_MAX + 1]),
        with(|new| new.indexes[0].name.clear()),
        with(|new| new.indexes.push(index(77, "x"))),
        with(|new| new.indexes.push(index(22, "y"))),
        with(|new| {
            let many = 0..TABLE_INDEXES_MAX as u128;
            new.indexes = many
                .map(|n| index(100 + n, &format!("i{n}")))
                .chain([index(99, "one more")])
                .collect();
        }),
        TableChange::Drop(11),
        TableChange::Rename(10, "t".into()),
        TableChange::Rename(10, long),
        TableChange::Rename(11, "u".into()),
        TableChange::Build(10, index(12, "y"), 5),
        TableChange::Build(10, index(30, "x"), 5),
        TableChange::Build(10, index(30, "y"), 11),
        TableChange::Activate(10, 30, 5),
        TableChange::Abort(10, 30, 5),
        TableChange::Unindex(10, 30),
        TableChange::Options(10, vec![1; TABLE_OPTIONS_BYTES_MAX + 1]),
    ];
    for change in wrong {
        let refused = apply(&mut state, std::slice::from_ref(&change));
        assert!(refused.is_err(), "{change:?}");
        assert_eq!(state, before, "{change:?}");
    }
    assert!(apply(&mut state, &[]).is_err());
    // What a frame drops it does not give to another.
    let again = [TableChange::Drop(10), from(table(10, "t", &[]), 3)];
    assert!(matches!(
        apply(&mut state, &again),
        Err(Error::AlreadyExists { .. })
    ));
}

#[test]
fn preambles_with_impossible_tables_are_refused() {
    let mut state = sample();
    let all = [
        from(table(10, "t", &["x"]), 3),
        from(table(20, "u", &["x"]), 3),
    ];
    apply(&mut state, &all).unwrap();
    let refused = |change: &dyn Fn(&mut State)| {
        let mut state = state.clone();
        change(&mut state);
        State::decode(&state.encode()).unwrap_err().to_string()
    };
    let pin = pin_name(10);
    let unpinned = |state: &mut State| _ = state.streams.get_mut(&1).unwrap().cursors.remove(&pin);
    assert!(refused(&unpinned).contains("does not pin"));
    let leased = |state: &mut State| {
        let cursors = &mut state.streams.get_mut(&1).unwrap().cursors;
        cursors.get_mut(&pin).unwrap().lease = 7;
    };
    assert!(refused(&leased).contains("does not pin"));
    let bytes = state.encode();
    let tables = bytes.len() - state.tables.encoded_len();
    // None at all is not written as none.
    let mut none = bytes[..tables].to_vec();
    none.extend_from_slice(&0u32.to_le_bytes());
    assert!(State::decode(&none).is_err());
    for cut in tables + 1..bytes.len() {
        assert!(State::decode(&bytes[..cut]).is_err(), "{cut}");
    }
    let second = tables + 4 + (bytes.len() - tables - 4) / 2;
    for (at, reason) in [
        // The second table gets the name of the first, its identity, or that of its tree.
        (second + 20, "that of another"),
        (second, "there twice"),
        (second + 16 + 5 + 16 + 8 + 8, "there twice"),
        // Or a log that is not there.
        (second + 16 + 5, "log that is not there"),
    ] {
        let mut damaged = bytes.clone();
        damaged[at] = match at - second {
            20 => b't',
            0 => 10,
            _ => 11,
        };
        let error = State::decode(&damaged).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn names_of_pins_are_recognized_and_nothing_else() {
    assert_eq!(pin_of(&pin_name(u128::MAX - 3)), Some(u128::MAX - 3));
    let digits = "0123456789abcdef0123456789abcdef";
    assert!(pin_of(&format!("table:{digits}")).is_some());
    for other in [
        digits.to_owned(),
        format!("table:{}", &digits[1..]),
        format!("table:{digits}0"),
        format!("table:{}", digits.to_uppercase()),
        format!("table:+{}", &digits[1..]),
    ] {
        assert_eq!(pin_of(&other), None, "{other}");
    }
}
