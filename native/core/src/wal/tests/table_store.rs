//! A store minds its tables: their pins, their logs, its identity, a full log, a repair, a follower.

use std::path::Path;

use super::driver::{Driver, open_with};
use super::tables::{create, index, log_id, table};
use super::{DIR, options};
use crate::error::{Error, Result};
use crate::vfs::Vfs;
use crate::wal::{Cursor, IDENTITY, NodeIdentity, TableChange, pin_name};

fn cursor(position: u64) -> Cursor {
    Cursor {
        position,
        pin: false,
        touched: 0,
        lease: 0,
    }
}

/// A store with nine records in log "a", and a table of it.
fn started() -> (Driver, u32) {
    let mut driver = Driver::new(options());
    let stream = driver.create("a", false);
    (0..9).for_each(|_| _ = driver.push(stream, 50).unwrap());
    driver.sync();
    driver.change_tables(&[create(10, "t")]).unwrap();
    (driver, stream)
}

#[test]
fn nobody_else_moves_or_deletes_the_cursor_of_a_table() {
    let (driver, stream) = started();
    let (store, pin) = (&driver.store, pin_name(10));
    let before = store.state();
    let is_refused = |refused: Result<()>| match refused {
        Err(Error::TableCursor { cursor, table }) => {
            assert_eq!((cursor, &*table), (pin_name(10), "t"));
        }
        other => panic!("{other:?}"),
    };
    is_refused(store.set_cursor(stream, &pin, cursor(2)).map(|_| ()));
    is_refused(store.create_cursor(stream, &pin, &cursor(2)).map(|_| ()));
    is_refused(store.move_cursor(stream, &pin, 2, 0).map(|_| ()));
    is_refused(store.delete_cursor(stream, &pin));
    // A name that only tables give is nobody's before there is the table.
    let other = store.set_cursor(stream, &pin_name(11), cursor(2));
    assert!(matches!(other, Err(Error::InvalidArgument(_))));
    assert_eq!(store.state(), before);
    store
        .wait(store.move_table_pin(10, 4, 77).unwrap())
        .unwrap();
    // It never goes back.
    store
        .wait(store.move_table_pin(10, 3, 78).unwrap())
        .unwrap();
    let pin = store.state().streams[&stream].cursors[&pin].clone();
    assert_eq!((pin.position, pin.pin, pin.touched), (4, true, 77));
    assert!(matches!(
        store.move_table_pin(11, 4, 0),
        Err(Error::NotFound { .. })
    ));
    assert!(matches!(
        store.move_table_pin(10, 11, 0),
        Err(Error::BeyondEnd { .. })
    ));
}

#[test]
fn a_trim_leaves_what_a_table_needs() {
    let (driver, stream) = started();
    let store = &driver.store;
    store.wait(store.move_table_pin(10, 4, 0).unwrap()).unwrap();
    assert_eq!(store.trim_unpinned(stream, 8, 0).unwrap(), 4);
    match store.trim(stream, 8) {
        Err(Error::TablePin {
            first,
            table,
            position,
        }) => assert_eq!((first, &*table, position), (8, "t", 4)),
        other => panic!("{other:?}"),
    }
    store.change_tables(vec![TableChange::Drop(10)]).unwrap();
    assert_eq!(store.trim(stream, 8).unwrap(), 8);
}

#[test]
fn a_log_that_tables_follow_is_not_deleted() {
    let (driver, _) = started();
    let store = &driver.store;
    store.change_tables(vec![create(20, "also")]).unwrap();
    match store.delete_log(log_id("a")) {
        Err(error @ Error::LogInUse { .. }) => {
            let text = error.to_string();
            assert!(
                text.ends_with(r#"followed by tables "also", "t""#),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    }
    let both = vec![TableChange::Drop(10), TableChange::Drop(20)];
    store.change_tables(both).unwrap();
    store.delete_log(log_id("a")).unwrap();
    let refused = store.change_tables(vec![create(30, "t")]);
    assert!(matches!(refused, Err(Error::NotFound { .. })));
}

fn format(driver: &Driver) -> (NodeIdentity, u8) {
    let path = Path::new(DIR).join(IDENTITY);
    let identity = NodeIdentity::read(&driver.vfs, Path::new(DIR)).unwrap();
    (identity.unwrap(), driver.vfs.read(&path, 4096).unwrap()[4])
}

#[test]
fn older_builds_refuse_a_directory_from_its_first_table_on() {
    let mut driver = Driver::new(options());
    driver.create("a", false);
    let (before, number) = format(&driver);
    assert_eq!((before.tables, number), (false, 1));
    let refused = driver.store.change_tables(vec![TableChange::Drop(10)]);
    assert!(matches!(refused, Err(Error::NotFound { .. })));
    // What was refused changes nothing.
    assert_eq!(format(&driver), (before, 1));
    driver.change_tables(&[create(10, "t")]).unwrap();
    let (after, number) = format(&driver);
    assert_eq!((after.tables, number), (true, 3));
    assert_eq!((after.node, after.wal), (before.node, before.wal));
    driver.change_tables(&[TableChange::Drop(10)]).unwrap();
    driver.reopen();
    assert_eq!(format(&driver).1, 3);
}

#[test]
fn tables_that_would_not_fit_a_preamble_are_refused() {
    let (mut driver, stream) = started();
    let mut refused = 0;
    for n in 1..40 {
        let mut new = table(100 * n, &format!("t{n}"), &[]);
        new.options = vec![1; 1000];
        match driver.change_tables(&[TableChange::Create(new)]) {
            Ok(()) => {}
            Err(Error::StateFull { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0);
    // Segments are begun with all of them.
    for _ in 0..30 {
        driver.push(stream, 5000).unwrap();
        driver.sync();
    }
    assert!(driver.store.stats().segments > 1);
    driver.reopen();
}

#[test]
fn a_full_log_lets_tables_go_and_move_their_pins() {
    let (mut driver, stream) = started();
    loop {
        match driver.push(stream, 5000) {
            Ok(_) => driver.sync(),
            Err(Error::LogFull { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let refused = driver.change_tables(&[create(20, "u")]);
    // There may be room for one more frame, but not for a thousand.
    let full = (0..4000).any(|n| {
        let change = TableChange::Options(10, vec![1; 2 + n % 2]);
        driver.change_tables(&[change]).is_err()
    });
    assert!(full || refused.is_err());
    for position in 2..300 {
        driver.move_table_pin(stream, 10, position.min(9));
    }
    driver.sync();
    driver.change_tables(&[TableChange::Drop(10)]).unwrap();
    driver.reopen();
}

/// A salvaged directory has no table, and no pin of one.
#[test]
fn a_repair_says_which_tables_it_leaves_out() {
    use crate::wal::tools::salvage;
    let (driver, stream) = started();
    driver.store.close().unwrap();
    let vfs: std::sync::Arc<dyn Vfs> = std::sync::Arc::new(driver.vfs.clone());
    let options = salvage::Options {
        keep: salvage::Keep::All,
        entropy: 9,
        holder: String::new(),
    };
    let done = salvage::salvage(
        &vfs,
        Path::new(DIR),
        Path::new("/new"),
        &options,
        &|_| Ok(Vec::new()),
        &mut |_, _| true,
    )
    .unwrap();
    assert!(
        done.plan
            .guesses
            .iter()
            .any(|guess| guess.contains(r#"table "t" is left out"#))
    );
    let (store, _) = crate::wal::open(vfs, Path::new("/new"), super::options()).unwrap();
    let state = store.state();
    assert!(state.tables.is_empty() && state.streams[&stream].cursors.is_empty());
    assert!(
        !NodeIdentity::read(&driver.vfs, Path::new("/new"))
            .unwrap()
            .unwrap()
            .tables
    );
}

#[test]
fn a_follower_sees_tables_come_and_go() {
    use crate::wal::Follower;
    let (mut driver, _) = started();
    let vfs = std::sync::Arc::new(driver.vfs.clone());
    let mut follower = Follower::open(vfs, Path::new(DIR), &driver.options).unwrap();
    assert_eq!(follower.state(), driver.store.state());
    let change = [
        TableChange::Rename(10, "v".into()),
        create(20, "t"),
        TableChange::Build(20, index(30, "late"), 1),
    ];
    driver.change_tables(&change).unwrap();
    follower.refresh().unwrap();
    assert_eq!(follower.state(), driver.store.state());
    assert_eq!(follower.state().tables.len(), 2);
    let (again, _) = {
        driver.store.close().unwrap();
        open_with(&driver.vfs, &driver.options, 3).unwrap()
    };
    assert_eq!(again.state().tables, follower.state().tables);
}
