//! Bounds: the log never fails to place what it gave a number, and refuses the rest before.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::driver::{Driver, kept, record, with_columns};
use super::{DIR, contents, options};
use crate::batch::{BytesRef, ColumnsRef, Compression, Offsets, Timestamps, encode_columns};
use crate::error::{Error, Result};
use crate::vfs::{CrashPolicy, Vfs};
use crate::wal::format::change::Change;
use crate::wal::{Cursor, NewLog, Options, ProducerId};

fn small() -> Options {
    Options {
        wal_bytes_max: Some(5 * (64 << 10)),
        ..options()
    }
}

fn is_full<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::LogFull { .. }))
}

pub(super) fn cursor(position: u64) -> Cursor {
    Cursor {
        position,
        pin: false,
        touched: 1,
        lease: 0,
    }
}

/// Append until the log is full, syncing every so often.
fn fill(driver: &mut Driver, stream: u32, len: usize, sync_every: u64) {
    for i in 1.. {
        match driver.push(stream, len) {
            Ok(_) if i % sync_every == 0 => driver.sync(),
            Ok(_) => {}
            Err(error) => {
                assert!(matches!(error, Error::LogFull { .. }), "{error}");
                return;
            }
        }
    }
}

#[test]
fn nobody_waits_for_room_that_there_cannot_be() {
    let mut driver = Driver::new(small());
    let a = driver.create("a", false);
    let huge = 1 << 40;
    driver.store.wait_for_room(a, huge, Duration::ZERO).unwrap();
    assert!(!driver.store.would_wait(a, huge));
    driver.push(a, 100).unwrap();
}

#[test]
fn what_has_a_number_is_placed_whatever_comes_before_the_sync() {
    for (len, between) in [(3000, 10), (3000, 100), (500, 300), (7000, 30), (100, 500)] {
        let mut driver = Driver::new(small());
        let (a, b) = (driver.create("a", false), driver.create("b", true));
        driver.push(b, 100).unwrap();
        fill(&mut driver, a, len, u64::MAX);
        // Small frames take the room that open batches were counted into.
        for i in 0..between {
            if is_full(&driver.store.set_cursor(b, "c", cursor(1 + i % 2))) {
                break;
            }
            let _ = driver
                .store
                .commit(b, 0, crate::wal::CommitContext::default());
        }
        driver
            .store
            .sync()
            .unwrap_or_else(|e| panic!("{len} {between}: {e}"));
        driver.history.get(a).check(driver.store.view(), a, "full");
        let next = driver.history.get(a).next();
        driver.trim(a, next);
        driver.push(a, len).unwrap();
        driver.store.close().unwrap();
    }
}

#[test]
fn a_full_log_closes_opens_and_takes_records_again() {
    for sync_every in [1, 3, 1000] {
        let mut driver = Driver::new(small());
        let stream = driver.create("a", false);
        fill(&mut driver, stream, 5000, sync_every);
        driver.reopen();
        assert!(is_full(&driver.push(stream, 5000)));
        driver.trim(stream, driver.history.get(stream).next() - 1);
        fill(&mut driver, stream, 900, sync_every);
        driver.sync();
        driver.check("full again");
        let records: Vec<_> = (0..90).map(|i| kept(i, 900)).collect();
        let refused = with_columns(&records, |columns| {
            driver
                .store
                .append_columns(stream, columns, 0..columns.len, 8000, None)
        });
        assert!(is_full(&refused), "{refused:?}");
        driver.check("nothing changed");
        driver.reopen();
    }
}

#[test]
fn cursors_cannot_use_up_what_trim_needs() {
    let mut driver = Driver::new(small());
    let stream = driver.create("a", false);
    fill(&mut driver, stream, 5000, 1);
    for position in 0..20_000 {
        match driver
            .store
            .set_cursor(stream, "c", cursor(1 + position % 10))
        {
            Ok(_) if position % 50 == 0 => driver.store.sync().unwrap(),
            Ok(_) => {}
            full => {
                assert!(is_full(&full), "{full:?}");
                break;
            }
        }
    }
    driver.trim(stream, driver.history.get(stream).next());
    driver.push(stream, 5000).unwrap();
    driver.sync();
}

/// Trimming record by record while the log is full frees nothing for long.
#[test]
fn trims_that_free_nothing_do_not_fill_the_log() {
    let mut driver = Driver::new(small());
    let stream = driver.create("a", false);
    fill(&mut driver, stream, 200, 50);
    driver.sync();
    let next = driver.history.get(stream).next();
    for first in 2..next.min(200) {
        driver.store.trim(stream, 2).unwrap();
        driver.store.trim(stream, first).unwrap();
    }
    for first in 200..=next {
        driver.store.trim(stream, first).unwrap();
    }
    assert!(
        driver
            .store
            .append(stream, record(&kept(1, 200)), None)
            .is_ok()
    );
    driver.store.close().unwrap();
}

#[test]
fn state_that_would_not_fit_a_preamble_is_refused_before_it_exists() {
    let mut driver = Driver::new(options());
    let stream = driver.create("a", false);
    let mut refused = 0;
    for i in 0..200 {
        let name = format!("{i:0>200}");
        match driver.store.set_cursor(stream, &name, cursor(1)) {
            Ok(_) => {}
            Err(Error::StateFull { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0);
    let log = NewLog {
        id: 99,
        explicit_commit: false,
        created: 0,
        name: "large".into(),
        options: vec![1; 12_000],
    };
    let created = driver.store.create_log(log);
    assert!(
        matches!(created, Err(Error::StateFull { .. })),
        "{created:?}"
    );
    for _ in 0..40 {
        driver.push(stream, 5000).unwrap();
        driver.sync();
    }
    driver
        .history
        .get(stream)
        .check(driver.store.view(), stream, "goes on");
    // Moving a cursor that is there takes no more room.
    driver
        .store
        .set_cursor(stream, &format!("{:0>200}", 0), cursor(2))
        .unwrap();
    driver.store.close().unwrap();
}

#[test]
fn producers_that_would_not_fit_a_preamble_fail_nobody() {
    let mut driver = Driver::new(options());
    let streams: Vec<u32> = (0..4)
        .map(|i| driver.create(&format!("s{i}"), false))
        .collect();
    let mut placed = 0;
    for sequence in 1..=6 {
        for producer in 1..=120 {
            for stream in &streams {
                let id = ProducerId {
                    id: producer,
                    epoch: 0,
                };
                let kept = kept(1, 40);
                match driver
                    .store
                    .append(*stream, record(&kept), Some((id, sequence)))
                {
                    Ok(_) => placed += 1,
                    Err(Error::StateFull { .. } | Error::NotDense { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        driver.store.sync().unwrap();
    }
    let found: usize = streams
        .iter()
        .map(|stream| contents(driver.store.view(), *stream).unwrap().len())
        .sum();
    assert_eq!(found, placed);
    let state = driver.store.state();
    driver.store.close().unwrap();
    let (store, _) = super::driver::open_with(&driver.vfs, &driver.options, 5).unwrap();
    assert_eq!(store.state(), state);
}

#[test]
fn epochs_do_not_grow_the_state_for_ever() {
    let mut driver = Driver::new(options());
    let stream = driver.create("a", true);
    for epoch in 1..4000 {
        driver.store.raise_epoch(stream, epoch).unwrap();
        if epoch % 100 == 0 {
            driver.store.sync().unwrap();
            driver.store.reclaim().unwrap();
        }
    }
    driver.store.close().unwrap();
}

#[test]
fn what_fits_no_segment_is_refused_and_changes_nothing() {
    let mut driver = Driver::new(options());
    let stream = driver.create("a", false);
    driver.push(stream, 100).unwrap();
    assert!(matches!(
        driver.push(stream, 40_000),
        Err(Error::TooLarge { .. })
    ));
    let before = driver.store.state();
    let records: Vec<_> = (0..40).map(|i| kept(i, 1000)).collect();
    let mut batch = Vec::new();
    with_columns(&records, |columns| {
        let producer = crate::batch::Producer::default();
        encode_columns(columns, 0..40, producer, Compression::None, &mut batch)
    })
    .unwrap();
    let encoded = driver.store.append_encoded(stream, 0, 2, &batch);
    assert!(
        matches!(encoded, Err(Error::TooLarge { .. })),
        "{encoded:?}"
    );
    for len in [20_000, 40_000, 80_000, 20 << 20] {
        let log = NewLog {
            id: 99,
            explicit_commit: false,
            created: 0,
            name: "large".into(),
            options: vec![1; len],
        };
        let created = driver.store.create_log(log);
        assert!(
            matches!(
                created,
                Err(Error::TooLarge { .. } | Error::StateFull { .. })
            ),
            "{created:?}"
        );
        let id = u128::from(crc32c::crc32c(b"a")) + 1;
        let altered = driver.store.alter_log(id, vec![1; len]);
        assert!(
            matches!(
                altered,
                Err(Error::TooLarge { .. } | Error::StateFull { .. })
            ),
            "{altered:?}"
        );
    }
    assert_eq!(driver.store.state().logs, before.logs);
    driver.push(stream, 100).unwrap();
    driver.reopen();
}

#[test]
fn columns_that_make_no_sense_are_refused_and_harm_nobody() {
    let mut driver = Driver::new(options());
    let stream = driver.create("a", false);
    driver.push(stream, 100).unwrap();
    let data = vec![1; 30_000];
    let nonsense: [&[u32]; 4] = [
        &[0, 20, 10],
        &[0, 10, 90_000],
        &[0, 10],
        &[0, 9000, 18_000, 10],
    ];
    for offsets in nonsense {
        for len in 2..=3 {
            let columns = ColumnsRef {
                len,
                values: BytesRef {
                    offsets: Offsets::U32(offsets),
                    data: &data,
                }
                .into(),
                keys: None,
                timestamps: Timestamps::All(1),
                headers: None,
            };
            let read = offsets.get(..=len);
            if read.is_some_and(|read| read.is_sorted() && read[len] <= 30_000) {
                continue;
            }
            let refused =
                driver
                    .store
                    .append_columns(stream, &columns, 0..columns.len, 10_000, None);
            assert!(refused.is_err());
            driver.push(stream, 100).unwrap();
        }
    }
    driver.reopen();
}

/// Trim a full log and die before anything is freed.
fn killed_between_trim_and_reclaim() -> (Driver, u32) {
    let mut driver = Driver::new(small());
    let stream = driver.create("a", false);
    fill(&mut driver, stream, 5000, 1);
    let first = driver.history.get(stream).next() - 1;
    driver.history.change(stream, |entry| entry.low = first);
    let group = driver
        .store
        .change(stream, None, first, &Change::Trim)
        .unwrap();
    driver.store.wait(group).unwrap();
    driver.ack();
    let used = driver.store.stats().segments;
    driver.kill(CrashPolicy::DropUnsynced);
    assert_eq!(
        driver.store.stats().segments,
        used,
        "the open takes no look"
    );
    (driver, stream)
}

#[test]
fn what_a_killed_trim_left_is_freed_when_its_room_is_needed() {
    let (mut driver, stream) = killed_between_trim_and_reclaim();
    let used = driver.store.stats().segments;
    driver.push(stream, 5000).unwrap();
    assert!(driver.store.stats().segments < used);
    fill(&mut driver, stream, 5000, 1);
    driver.check("full again");
}

#[test]
fn housekeeping_frees_what_a_killed_trim_left() {
    let (driver, _) = killed_between_trim_and_reclaim();
    let used = driver.store.stats().segments;
    assert_eq!(driver.store.wait_housekeeping(Duration::MAX), Some(true));
    driver.store.prepare_slot().unwrap();
    assert!(driver.store.stats().segments < used);
    let waited = driver.store.wait_housekeeping(Duration::from_millis(1));
    assert_eq!(waited, Some(false), "it is done once");
}

/// A directory whose writer was killed while it made the next slot.
fn killed_while_making_a_slot() -> (Driver, PathBuf) {
    let mut driver = Driver::new(small());
    driver.create("a", false);
    driver.sync();
    let slot = Path::new(DIR).join("wal/slot-000002.wal");
    driver.vfs.create_zeroed(&slot, 64 << 10).unwrap();
    let report = driver.kill(CrashPolicy::KeepAll);
    assert_eq!(report.orphans, [Path::new("wal/slot-000002.wal")]);
    assert!(driver.vfs.exists(&slot).unwrap(), "the open removes none");
    (driver, slot)
}

#[test]
fn housekeeping_removes_the_slot_that_a_killed_writer_made() {
    let (driver, slot) = killed_while_making_a_slot();
    assert_eq!(driver.store.wait_housekeeping(Duration::MAX), Some(true));
    driver.store.prepare_slot().unwrap();
    assert!(!driver.vfs.exists(&slot).unwrap());
    assert_eq!(
        driver
            .vfs
            .list(&Path::new(DIR).join("trash"))
            .unwrap()
            .len(),
        0
    );
}

#[test]
fn a_slot_that_is_made_anew_before_housekeeping_stays() {
    let (mut driver, slot) = killed_while_making_a_slot();
    driver.store.provision(64 << 10).unwrap();
    assert_eq!(driver.store.wait_housekeeping(Duration::MAX), Some(true));
    driver.store.reclaim().unwrap();
    assert!(driver.vfs.exists(&slot).unwrap());
    driver.reopen();
    assert_eq!(driver.store.stats().free_slots, 1);
}

#[test]
fn large_groups_want_the_next_slot_before_the_segment_is_half_full() {
    let mut driver = Driver::new(Options {
        segment_bytes: 1 << 20,
        begin_bytes: 1 << 20,
        wal_bytes_max: Some(8 << 20),
        ..options()
    });
    let stream = driver.create("a", false);
    let mut prepared_after = |len: usize| {
        driver.push(stream, len).unwrap();
        driver.sync();
        driver.store.prepare_slot().unwrap()
    };
    assert!(!prepared_after(40 << 10), "not large");
    assert!(
        !prepared_after(40 << 10),
        "beyond a sixteenth, and not large"
    );
    assert!(prepared_after(64 << 10), "large");
    assert!(!prepared_after(64 << 10), "it is there");
}

#[test]
fn a_first_large_group_leaves_a_log_its_one_slot() {
    let mut driver = Driver::new(Options {
        segment_bytes: 2 << 20,
        begin_bytes: 2 << 20,
        wal_bytes_max: Some(16 << 20),
        ..options()
    });
    let stream = driver.create("a", false);
    driver.push(stream, 100 << 10).unwrap();
    driver.sync();
    assert!(!driver.store.prepare_slot().unwrap());
}

#[test]
fn who_waited_while_another_thread_made_the_slot_makes_none() {
    let driver = Driver::new(Options {
        begin_bytes: 64 << 10,
        ..small()
    });
    let made = || driver.store.stats().free_slots;
    let looks = Cell::new(0);
    let wanted_by_the_first = |_: &_| looks.replace(looks.get() + 1) == 0;
    assert!(!driver.store.add_slot_if(wanted_by_the_first).unwrap());
    assert_eq!((looks.get(), made()), (2, 0));
    assert!(driver.store.add_slot_if(|_| true).unwrap());
    assert_eq!(made(), 1);
}
