//! A table is refused by a log that is not the one that it was made of.

use super::*;
use crate::table::table::counters;

/// A table of six records in files.
fn flushed(indexes: &[(&str, &str)]) -> Fixture {
    let mut fixture = Fixture::new(indexes, table_options());
    for n in 0..6 {
        fixture.put(&format!("k{n}"), r#"{"city": "Oslo"}"#);
    }
    fixture.catch_up();
    fixture.table.flush().unwrap();
    fixture
}

/// A log by itself that begins as the one of a table does, and goes on with other records.
fn log_of(of: &Fixture, common: usize, others: usize) -> Fixture {
    let mut log = Fixture::new(&[], table_options());
    for (key, value) in &of.appended[..common] {
        log.append(key.as_deref(), value);
    }
    for n in 0..others {
        log.put(&format!("other{n}"), "{}");
    }
    log
}

fn open_by(fixture: &Fixture, log: &Fixture) -> Result<Arc<Table>> {
    let (definition, options) = (&fixture.definition, fixture.options.clone());
    open_table(&fixture.vfs, &log.store, definition, options)
}

fn refused(fixture: &Fixture, log: &Fixture, words: &[&str]) {
    let error = open_by(fixture, log).map(|_| ()).unwrap_err();
    let Error::Corruption { path, reason, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(path, Table::dir_in(Path::new(TABLES), 2));
    for word in words {
        assert!(reason.contains(word), "{reason}");
    }
}

#[test]
fn a_log_that_ends_before_its_table_is_refused() {
    let fixture = flushed(&[]);
    for common in 0..6 {
        let log = log_of(&fixture, common, 0);
        let end = format!("its log ends at {}", common + 1);
        refused(&fixture, &log, &["the table has position 6", &end]);
    }
    open_by(&fixture, &log_of(&fixture, 6, 0)).unwrap();
}

#[test]
fn a_log_that_lost_its_end_and_grew_again_is_refused() {
    let fixture = flushed(&[]);
    for others in [3, 4, 20] {
        let log = log_of(&fixture, 3, others);
        refused(&fixture, &log, &["another record at position 6"]);
    }
    // The same end, and more behind it.
    let log = log_of(&fixture, 6, 5);
    let table = open_by(&fixture, &log).unwrap();
    let (view, stream) = log.view();
    assert_eq!(table.catch_up(&view, &stream, u64::MAX).unwrap(), 11);
}

#[test]
fn a_log_without_the_last_record_is_taken_at_its_word() {
    let fixture = flushed(&[]);
    let mut log = log_of(&fixture, 6, 3);
    // Another record, which the log lets go of.
    let other = log_of(&fixture, 5, 4);
    log.store.trim(STREAM, 7).unwrap();
    other.store.trim(STREAM, 7).unwrap();
    open_by(&fixture, &log).unwrap();
    open_by(&fixture, &other).unwrap();
    log.put("k9", "x");
    assert_eq!(log.view().1.range().first, 7);
}

/// A flush of one tree, and a crash before the others and the counters.
#[test]
fn an_index_that_is_ahead_is_refused_with_its_table() {
    let mut fixture = flushed(&[("city", "json:/city")]);
    fixture.put("k7", r#"{"city": "Rome"}"#);
    fixture.catch_up();
    fixture.table.index("city").unwrap().tree().flush().unwrap();
    assert_eq!(fixture.table.primary().flushed(), 6);
    refused(&fixture, &log_of(&fixture, 6, 0), &["position 7"]);
    open_by(&fixture, &log_of(&fixture, 7, 0)).unwrap();
}

#[test]
fn a_table_that_begins_in_the_future_is_not_ahead() {
    let mut fixture = Fixture::new(&[], table_options());
    let definition = TableDefinition {
        base: 5,
        id: 77,
        primary: 78,
        ..fixture.definition.clone()
    };
    let (disk, cache) = (shared(&fixture.vfs), Arc::new(RunCache::default()));
    let tables = Path::new(TABLES);
    Table::create(&disk, tables, &definition, &table_options(), &cache).unwrap();
    for n in 0..7 {
        let open = open_table(&fixture.vfs, &fixture.store, &definition, table_options());
        let (view, stream) = fixture.view();
        let table = open.unwrap();
        table.catch_up(&view, &stream, u64::MAX).unwrap();
        table.flush().unwrap();
        fixture.put(&format!("k{n}"), "x");
    }
}

/// Every record is known again by all that it has.
#[test]
fn what_is_counted_last_is_the_last_record_whatever_it_is() {
    let mut fixture = Fixture::new(&[], table_options());
    let mut seen = Vec::new();
    let long = vec![1; 17 << 10];
    let records: [(Option<&[u8]>, &[u8]); 5] = [
        (None, b""),
        (Some(b""), b""),
        (None, b"x"),
        (Some(b"x"), b""),
        (Some(&long), b"x"),
    ];
    for (key, value) in records {
        fixture.append(key, value);
        fixture.catch_up();
        let counters = fixture.table.counters();
        assert_eq!(counters.position, fixture.appended.len() as u64);
        assert_ne!(counters.last, 0);
        assert!(!seen.contains(&counters.last));
        seen.push(counters.last);
        fixture.table.flush().unwrap();
        fixture.reopen();
        assert_eq!(fixture.table.counters(), counters);
    }
}

#[test]
fn counters_of_format_1_do_not_know_the_last_record() {
    let fixture = flushed(&[]);
    let path = Table::dir_in(Path::new(TABLES), 2).join("COUNTERS");
    let mut bytes = fixture.vfs.read(&path, 1 << 20).unwrap();
    bytes.truncate(bytes.len() - 4);
    bytes[4] = 1;
    bytes.drain(32..40);
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    let (counted, _) = counters::decode(&path, &bytes, 2).unwrap();
    let known = fixture.table.counters();
    assert_eq!(counted, Counters { last: 0, ..known });
    fixture.vfs.replace(&path, &bytes).unwrap();
    // It cannot be compared, but it may end before the table.
    open_by(&fixture, &log_of(&fixture, 3, 5)).unwrap();
    refused(&fixture, &log_of(&fixture, 3, 0), &["position 6"]);
}
