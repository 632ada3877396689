//! Indexes that are made later.

use super::*;

fn filled(keys: u64) -> Fixture {
    let mut fixture = Fixture::new(&[], table_options());
    for n in 0..keys {
        fixture.put(&format!("k{n:04}"), &format!(r#"{{"n": {}}}"#, n % 7));
    }
    fixture.put("k0003", "");
    fixture.catch_up();
    fixture
}

#[test]
fn a_built_index_is_as_one_from_the_start() {
    let mut fixture = filled(300);
    fixture.build("n", "json:/n:int", 50).unwrap();
    fixture.check();
    fixture.put("k0005", r#"{"n": 100}"#);
    fixture.catch_up();
    fixture.check();
    fixture.table.flush().unwrap();
    fixture.reopen();
    assert_eq!(fixture.table.building().len(), 0);
    fixture.catch_up();
    fixture.check();
    while fixture.table.compact().unwrap() {}
    fixture.check();
}

#[test]
fn what_is_appended_meanwhile_is_in_it() {
    let mut fixture = filled(20);
    let index = index_definition("n", "json:/n:int", 50, fixture.table.position());
    let cache = Arc::new(RunCache::default());
    fixture
        .table
        .begin_index(&fixture.definition, &index, &cache)
        .unwrap();
    fixture.definition.indexes.push(index);
    for n in 0..10 {
        fixture.put(&format!("k{n:04}"), &format!(r#"{{"n": {}}}"#, 1000 + n));
    }
    fixture.catch_up();
    // The log is kept for it, and versions that are visible at its base.
    assert!(fixture.table.retained() <= 21);
    fixture.reopen();
    let (view, stream) = fixture.view();
    fixture.catch_up();
    let error = fixture.table.index("n").err().unwrap();
    assert!(error.to_string().contains("still being built"), "{error}");
    fixture
        .table
        .build_index(50, &view, &stream, &mut |_| true)
        .unwrap();
    fixture
        .table
        .build_index(50, &view, &stream, &mut |_| true)
        .unwrap();
    fixture.check();
    assert!(
        fixture
            .table
            .snapshot()
            .unwrap()
            .scan_index("n", None, None, Direction::Forward)
            .is_ok()
    );
}

#[test]
fn trees_are_not_given_twice() {
    let mut fixture = filled(5);
    fixture.build("n", "json:/n:int", 50).unwrap();
    let error = fixture.build("m", "json:/n", 50).unwrap_err();
    assert!(matches!(error, Error::AlreadyExists { .. }), "{error}");
    fixture.table.drop_index(50).unwrap();
    let error = fixture.table.drop_index(50).unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    assert!(matches!(
        fixture.table.index("n"),
        Err(Error::NotFound { .. })
    ));
}

#[test]
fn an_index_that_must_be_complete_is_not_built_over_what_it_cannot_hold() {
    let mut fixture = filled(5);
    fixture.put("k9", "no json");
    fixture.catch_up();
    let mut index = index_definition("n", "json:/n:int", 50, fixture.table.position());
    index.on_refusal = OnRefusal::Refuse;
    let cache = Arc::new(RunCache::default());
    fixture
        .table
        .begin_index(&fixture.definition, &index, &cache)
        .unwrap();
    let (view, stream) = fixture.view();
    let error = fixture
        .table
        .build_index(50, &view, &stream, &mut |_| true)
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("cannot be built") && text.contains("position 7"),
        "{text}"
    );
}

/// A building that is interrupted after each chunk goes on where it was.
#[test]
fn an_interrupted_building_goes_on() {
    let value = |n: u64| format!(r#"{{"n": "{}{n}"}}"#, "x".repeat(15_000));
    let mut fixture = Fixture::new(&[], table_options());
    // More than one chunk of 32 MiB: the index key has the whole field.
    for n in 0..2500 {
        fixture.put(&format!("k{n:04}"), &value(n));
    }
    fixture.catch_up();
    let index = index_definition("n", "json:/n:text", 50, fixture.table.position());
    let cache = Arc::new(RunCache::default());
    fixture
        .table
        .begin_index(&fixture.definition, &index, &cache)
        .unwrap();
    fixture.definition.indexes.push(index);
    let (view, stream) = fixture.view();
    let mut first = 0;
    let stopped = fixture.table.build_index(50, &view, &stream, &mut |read| {
        first = read;
        false
    });
    assert!(matches!(stopped, Err(Error::Closed)));
    assert!(first > 100 && first < 2500, "{first}");
    fixture.table.flush().unwrap();
    fixture.reopen();
    let mut rest = 0;
    let progress = &mut |read| {
        rest = read;
        true
    };
    fixture
        .table
        .build_index(50, &view, &stream, progress)
        .unwrap();
    assert_eq!(first + rest, 2500);
    fixture.catch_up();
    fixture.table.verify(&mut |_| {}).unwrap();
    let snapshot = fixture.table.snapshot().unwrap();
    let found = index_rows(&snapshot, "n", None, None, Direction::Forward).unwrap();
    assert_eq!(found.len(), 2500);
}

/// Begin an index and do not build it yet.
fn begin(fixture: &mut Fixture) {
    let index = index_definition("n", "json:/n:int", 50, fixture.table.position());
    let cache = Arc::new(RunCache::default());
    let begun = fixture
        .table
        .begin_index(&fixture.definition, &index, &cache)
        .unwrap();
    assert_eq!(begun.base(), index.base);
    fixture.definition.indexes.push(index);
}

/// Replace what the table has, and let go of the versions before as far as may be.
fn replace_all(fixture: &mut Fixture) {
    for n in 0..20 {
        fixture.put(&format!("k{n:04}"), &format!(r#"{{"n": {}}}"#, 100 + n));
    }
    fixture.catch_up();
    fixture.table.flush().unwrap();
    while fixture.table.compact().unwrap() {}
}

#[test]
fn what_a_building_reads_is_kept() {
    let mut fixture = filled(20);
    begin(&mut fixture);
    replace_all(&mut fixture);
    assert!(fixture.table.floor() <= 21, "{}", fixture.table.floor());
    // Also by the next open, which has no building yet that could say so.
    fixture.reopen();
    replace_all(&mut fixture);
    assert!(fixture.table.floor() <= 21, "{}", fixture.table.floor());
    let (view, stream) = fixture.view();
    fixture
        .table
        .build_index(50, &view, &stream, &mut |_| true)
        .unwrap();
    fixture.check();
    replace_all(&mut fixture);
    assert!(fixture.table.floor() > 21);
}

#[test]
fn a_building_waits_for_what_a_crash_took_along() {
    let mut fixture = filled(20);
    begin(&mut fixture);
    // Nothing was flushed: the primary tree begins at nothing again.
    fixture.reopen();
    assert_eq!(fixture.table.position(), 0);
    let (view, stream) = fixture.view();
    fixture
        .table
        .build_index(50, &view, &stream, &mut |_| true)
        .unwrap();
    fixture.check();
    assert_eq!(fixture.table.verify(&mut |_| {}).unwrap().entries, 19);
}

#[test]
fn the_base_is_where_the_table_is() {
    let mut fixture = filled(20);
    let index = index_definition("n", "json:/n:int", 50, 3);
    let cache = Arc::new(RunCache::default());
    let begun = fixture
        .table
        .begin_index(&fixture.definition, &index, &cache)
        .unwrap();
    assert_eq!(begun.base(), 21);
    fixture.table.drop_index(50).unwrap();
    replace_all(&mut fixture);
    assert_eq!(fixture.table.floor(), fixture.table.position());
}
