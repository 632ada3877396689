//! Reads: positions, bounds, many keys.

use super::*;

#[test]
fn positions_outside_are_refused() {
    let mut fixture = Fixture::new(&[], table_options());
    for n in 0..10 {
        fixture.put("k1", &format!("v{n}"));
    }
    assert_eq!(fixture.table.snapshot().unwrap().position(), 0);
    fixture.catch_up();
    let error = fixture.table.snapshot_at(11).err().unwrap();
    assert!(
        matches!(
            error,
            Error::BeyondEnd {
                position: 11,
                next: 11
            }
        ),
        "{error}"
    );
    let early = fixture.table.snapshot_at(3).unwrap();
    assert_eq!(early.get(b"k1").unwrap().unwrap().position(), 3);
    fixture.table.flush().unwrap();
    let error = fixture.table.snapshot_at(3).err().unwrap();
    assert!(matches!(error, Error::Trimmed { first: 10, .. }), "{error}");
    // What was opened before stays.
    assert_eq!(
        early.get(b"k1").unwrap().unwrap().payload().unwrap().value,
        Some(&b"v2"[..])
    );
}

#[test]
fn history_keeps_earlier_positions() {
    let options = TableOptions {
        history: 4,
        ..table_options()
    };
    let mut fixture = Fixture::new(&[], options);
    for n in 0..10 {
        fixture.put("k1", &format!("v{n}"));
        fixture.catch_up();
        fixture.table.flush().unwrap();
        while fixture.table.compact().unwrap() {}
    }
    assert_eq!(fixture.table.floor(), 6);
    fixture.check();
    assert!(fixture.table.snapshot_at(6).is_ok());
    assert!(matches!(
        fixture.table.snapshot_at(5),
        Err(Error::Trimmed { .. })
    ));
}

#[test]
fn many_keys_come_in_their_order() {
    let mut fixture = Fixture::new(&[], table_options());
    for n in 0..200 {
        fixture.put(&format!("k{n}"), "x");
    }
    fixture.catch_up();
    fixture.table.flush().unwrap();
    let keys = ["k7", "none", "k199", "k7", "k0", ""];
    let snapshot = fixture.table.snapshot().unwrap();
    let found = snapshot.get_many(&keys).unwrap();
    let positions: Vec<_> = found
        .iter()
        .map(|row| row.as_ref().map(Row::position))
        .collect();
    assert_eq!(
        positions,
        [Some(8), None, Some(200), Some(8), Some(1), None]
    );
}

#[test]
fn index_bounds_are_those_of_values() {
    let mut fixture = Fixture::new(&[("price", "json:/price:float")], table_options());
    for n in 0..50 {
        fixture.put(
            &format!("k{n}"),
            &format!(r#"{{"price": {}}}"#, f64::from(n) / 2.0),
        );
    }
    fixture.catch_up();
    let spec = IndexSpec::parse("json:/price:float").unwrap();
    let bound = |value| {
        let mut out = Vec::new();
        spec.encode(&[Value::Float(value)], &mut out).unwrap();
        out
    };
    let snapshot = fixture.table.snapshot().unwrap();
    let (begin, end) = (bound(1.0), bound(5.0));
    let found = index_rows(
        &snapshot,
        "price",
        Some(&begin),
        Some(&end),
        Direction::Forward,
    );
    let positions: Vec<u64> = found
        .unwrap()
        .into_iter()
        .map(|(_, position)| position)
        .collect();
    assert_eq!(positions, (3..11).collect::<Vec<u64>>());
    let error = snapshot
        .scan_index("none", None, None, Direction::Forward)
        .err()
        .unwrap();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
}

#[test]
fn rules_of_deletion() {
    let cases: [(Deletes, [bool; 3]); 4] = [
        (Deletes::parse("empty", "").unwrap(), [true, false, false]),
        (Deletes::parse("none", "").unwrap(), [false, false, false]),
        (Deletes::parse("header", "h").unwrap(), [true, true, true]),
        (
            Deletes::parse("pattern", "^gone").unwrap(),
            [false, true, false],
        ),
    ];
    for (deletes, expected) in cases {
        let options = TableOptions {
            deletes,
            ..table_options()
        };
        let mut fixture = Fixture::new(&[], options);
        for (key, value) in [("a", ""), ("b", "gone now"), ("c", "not gone")] {
            fixture.put(key, value);
        }
        fixture.catch_up();
        let snapshot = fixture.table.snapshot().unwrap();
        let gone = ["a", "b", "c"].map(|key| snapshot.get(key.as_bytes()).unwrap().is_none());
        assert_eq!(gone, expected, "{:?}", fixture.options.deletes);
    }
    for (kind, text) in [
        ("empty", "x"),
        ("header", ""),
        ("pattern", "("),
        ("gone", ""),
    ] {
        let error = Deletes::parse(kind, text).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }
}

/// A directory that is gone is no empty table, unless the log has everything.
#[test]
fn lost_trees_are_missing_or_made_again() {
    let mut fixture = Fixture::new(&[("city", "json:/city")], table_options());
    fixture.put("k1", r#"{"city": "Oslo"}"#);
    fixture.catch_up();
    fixture.table.flush().unwrap();
    let dir = Table::dir_in(Path::new(TABLES), 2).join(format!("{:032x}", 3));
    for name in fixture.vfs.list(&dir).unwrap() {
        fixture.vfs.remove(&dir.join(name)).unwrap();
    }
    let open = |first: u64| {
        let cache = Arc::new(RunCache::default());
        let (vfs, options) = (shared(&fixture.vfs), table_options());
        Table::open(
            &vfs,
            Path::new(TABLES),
            &fixture.definition,
            options,
            first,
            &cache,
        )
    };
    assert!(matches!(open(2), Err(Error::Missing { .. })));
    fixture.table = open(1).unwrap();
    assert_eq!(fixture.table.position(), 0);
    fixture.catch_up();
    fixture.check();
}

/// A null value deletes its key, and is a value where nothing does; an index has no null.
#[test]
fn null_values() {
    for (kind, is_there) in [("null", false), ("empty", false), ("none", true)] {
        let deletes = Deletes::parse(kind, "").unwrap();
        let options = TableOptions {
            deletes,
            ..table_options()
        };
        let fixture = Fixture::new(&[("value", "value")], options);
        for value in [Some(&b"x"[..]), None] {
            let record = NewRecord {
                value,
                key: Some(b"k"),
                timestamp: 5,
                headers: &[("n", None)],
            };
            let ticket = fixture.store.append(STREAM, record, None).unwrap();
            fixture.store.wait(ticket.group).unwrap();
        }
        fixture.catch_up();
        let snapshot = fixture.table.snapshot().unwrap();
        let row = snapshot.get(b"k").unwrap();
        assert_eq!(row.is_some(), is_there, "{kind}");
        if let Some(row) = row {
            let payload = row.payload().unwrap();
            assert_eq!(payload.value, None);
            assert_eq!(payload.headers.collect::<Vec<_>>(), [("n", None)]);
        }
        let rows = index_rows(&snapshot, "value", None, None, Direction::Forward).unwrap();
        assert_eq!(rows, []);
        fixture.table.verify(&mut |_| {}).unwrap();
    }
}
