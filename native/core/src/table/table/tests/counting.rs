//! Records that a table or an index cannot take in: counted, listed, and over restarts neither lost nor counted twice.

use super::*;

#[test]
fn keyless_records_and_long_keys_are_counted() {
    let mut fixture = Fixture::new(&[], table_options());
    fixture.append(None, b"x");
    fixture.append(Some(&vec![1; (16 << 10) + 1]), b"x");
    fixture.append(Some(&vec![1; 16 << 10]), b"x");
    fixture.append(None, b"x");
    fixture.catch_up();
    let counters = fixture.table.counters();
    assert_eq!((counters.position, counters.records), (4, 4));
    assert_eq!(counters.without_key.count, 2);
    assert_eq!(counters.without_key.first[1].0, 4);
    assert_eq!(counters.long_keys.count, 1);
    assert_eq!(counters.long_keys.first[0].0, 2);
    fixture.check();
}

#[test]
fn refused_records_make_an_index_incomplete_or_end_it() {
    let mut fixture = Fixture::new(&[("city", "json:/city:text")], table_options());
    fixture.put("k1", r#"{"city": "Oslo"}"#);
    for n in 0..150 {
        fixture.put(
            "k2",
            if n % 2 == 0 {
                "no json"
            } else {
                r#"{"city": 7}"#
            },
        );
    }
    fixture.catch_up();
    let refused = fixture.table.index("city").unwrap().refused();
    assert_eq!((refused.count, refused.first.len()), (150, 100));
    assert_eq!(refused.first[0], (2, "the value is not JSON".into()));
    assert_eq!(refused.first[1], (3, "the field is not text".into()));
    fixture.check();

    // The same log, where it must not be incomplete.
    fixture.definition.indexes[0].on_refusal = OnRefusal::Refuse;
    fixture.reopen();
    fixture.catch_up();
    let snapshot = fixture.table.snapshot().unwrap();
    let error = index_rows(&snapshot, "city", None, None, Direction::Forward).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("lacks 150 records") && text.contains("position 2"),
        "{text}"
    );
}

#[test]
fn counters_survive_and_are_not_counted_twice() {
    let mut fixture = Fixture::new(&[("city", "json:/city:text")], table_options());
    for round in 0..4 {
        fixture.append(None, b"x");
        fixture.put("k1", "no json");
        fixture.catch_up();
        if round % 2 == 0 {
            fixture.table.flush().unwrap();
        }
        fixture.append(None, b"x");
        fixture.catch_up();
        fixture.reopen();
        fixture.catch_up();
        let counters = fixture.table.counters();
        let expected = fixture.appended.len() as u64;
        assert_eq!(counters.records, expected);
        assert_eq!(counters.without_key.count, 2 * (round + 1));
        assert_eq!(
            fixture.table.index("city").unwrap().refused().count,
            round + 1
        );
    }
}

/// Trees that are flushed further than the counters: the log is kept for these, and read again.
#[test]
fn counters_may_be_behind_the_trees() {
    let mut fixture = Fixture::new(&[], table_options());
    for n in 0..6 {
        fixture.put(&format!("k{n}"), "x");
    }
    fixture.catch_up();
    fixture.table.primary().flush().unwrap();
    assert_eq!(fixture.table.primary().flushed(), 6);
    assert_eq!(fixture.table.retained(), 0);
    fixture.reopen();
    fixture.catch_up();
    assert_eq!(fixture.table.counters().records, 6);
    fixture.table.flush().unwrap();
    assert_eq!(fixture.table.retained(), 6);
    fixture.check();
}

#[test]
fn damaged_counters_are_found() {
    let mut fixture = Fixture::new(&[], table_options());
    fixture.put("k1", "x");
    fixture.catch_up();
    fixture.table.flush().unwrap();
    let path = Table::dir_in(Path::new(TABLES), 2).join("COUNTERS");
    fixture.vfs.flip_bit(&path, 30, 3).unwrap();
    let opened = open_table(
        &fixture.vfs,
        &fixture.store,
        &fixture.definition,
        table_options(),
    );
    assert!(matches!(opened, Err(Error::Corruption { .. })));
}
