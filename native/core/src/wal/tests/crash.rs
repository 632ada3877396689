//! Every cut of the trace of a mixed workload, under every policy of what a crash leaves behind.
//!
//! After each, the open succeeds and serves per stream exactly what was acknowledged, plus possibly what
//! was submitted behind it, in order. Then the log goes on from there and is closed and opened again.
//! `BRAIDLOG_CRASH_SEEDS` sets how many seeds of the random policies are tried.

use super::driver::{Driver, open_with};
use super::oracle::Moment;
use super::{options, seeds};
use crate::batch::Compression;
use crate::vfs::{CrashPolicy, MemoryVfs, Operation, Trace};
use crate::wal::{NewIndex, NewTable, Replacement, TableChange};

/// Everything a log does, over several segments.
fn workload() -> Driver {
    let mut driver = Driver::new(options());
    let plain = driver.create("plain", false);
    let (slow, ordered) = (driver.create("slow", false), driver.create("ordered", true));
    let doomed = driver.create("doomed", false);
    for round in 0..10 {
        driver.push(plain, 100 + round).unwrap();
        driver.push(slow, 30).unwrap();
        driver.sync();
        for _ in 0..4 {
            driver.produce(plain, 7, 200).unwrap();
            driver.produce(plain, 8 + round as u64 % 2, 50).unwrap();
            driver.push(ordered, 700).unwrap();
        }
        if round <= 5 {
            driver.push(doomed, 2500).unwrap();
        }
        driver.sync();
        driver.columns(plain, &[900; 7], 3000).unwrap();
        driver.set_cursor(slow, "reader", round as u64 + 1);
        driver.set_cursor(slow, &format!("other {}", round % 3), 1);
        driver.sync();
        ordered_step(&mut driver, ordered, round as u64);
        driver.push(plain, 12_000).unwrap();
        driver.sync();
        let next = driver.history.get(plain).next();
        if round % 3 == 2 {
            driver.compress(plain, Compression::Lz4);
            driver.columns(plain, &[2000; 9], 10_000).unwrap();
            driver.trim(plain, next - 6);
            driver.compress(plain, Compression::None);
        }
        tables_step(&mut driver, slow, round as u64);
        match round {
            4 => driver.reopen(),
            5 => driver.delete(doomed),
            6 => driver.delete_cursor(slow, "other 1"),
            7 => {
                let cleaned = driver.clean(2);
                assert!(
                    cleaned.segments > 0 && cleaned.moved_bytes > 0,
                    "{cleaned:?}"
                );
            }
            _ => {}
        }
    }
    driver.reopen();
    driver.push(slow, 10).unwrap();
    driver.sync();
    assert!(driver.store.stats().segments > 3);
    driver
}

fn ordered_step(driver: &mut Driver, ordered: u32, round: u64) {
    driver.commit(ordered, 2);
    driver.sync();
    if round % 2 == 1 {
        driver.roll_back(ordered, driver.history.get(ordered).committed + 1);
        driver.raise_epoch(ordered, round);
        driver.push(ordered, 40).unwrap();
        driver.sync();
    }
    if round % 4 == 3 {
        driver.trim(ordered, driver.history.get(ordered).committed - 1);
    }
}

/// Tables of the log "slow" come, change and go; several at once.
fn tables_step(driver: &mut Driver, slow: u32, round: u64) {
    let log = u128::from(crc32c::crc32c(b"slow")) + 1;
    let (id, start) = (u128::from(round) * 100 + 1, driver.history.get(slow).low);
    let index = |tree, name: &str| NewIndex {
        tree,
        name: name.into(),
        spec: b"value".to_vec(),
    };
    let create = |id: u128, name: &str| {
        TableChange::Create(NewTable {
            id,
            name: name.into(),
            log,
            created: 3,
            start,
            primary: id + 1,
            options: vec![7; 40],
            indexes: vec![index(id + 2, "first")],
        })
    };
    let changes = match round {
        1 => vec![create(id, "a"), create(id + 10, "b")],
        2 => vec![TableChange::Build(101, index(id, "late"), start)],
        3 => vec![
            TableChange::Rename(111, "c".into()),
            TableChange::Activate(101, 201, start),
            create(id, "b"),
        ],
        6 => vec![TableChange::Replace(
            101,
            Replacement {
                id,
                start,
                primary: id + 1,
                trees: vec![id + 2, id + 3],
            },
        )],
        8 => vec![TableChange::Drop(111), TableChange::Unindex(601, 603)],
        _ => {
            if round > 6 {
                driver.move_table_pin(slow, 601, round);
                driver.sync();
            }
            return;
        }
    };
    driver.change_tables(&changes).unwrap();
}

/// What a cut had acknowledged, and what had been submitted at most.
fn moments(trace: &Trace, acked: &[Moment], cut: usize) -> (Moment, Moment) {
    let last = trace.marks_before(cut).last();
    let next = last.map_or(0, |mark| mark as usize + 1);
    let none = Moment::new();
    let before = last.map_or(&none, |mark| &acked[mark as usize]);
    let behind = acked.get(next).or(acked.last()).unwrap_or(&none);
    (before.clone(), behind.clone())
}

/// Cuts that promise most: a mark changes nothing on disk, so the cut before it says less.
fn cuts(trace: &Trace) -> impl Iterator<Item = usize> {
    (0..=trace.len())
        .filter(|cut| !matches!(trace.operations().get(*cut), Some(Operation::Mark(_))))
}

/// Open an image, check it, and go on.
fn recover(driver: &Driver, image: &MemoryVfs, between: &(Moment, Moment), text: &str) -> Driver {
    let (store, _) = open_with(image, &driver.options, 77).unwrap_or_else(|error| {
        panic!("{text}: {error}");
    });
    let (acked, submitted) = between;
    let found = driver
        .history
        .locate(&store.state(), acked, submitted, text);
    found.check(store.view(), text);
    Driver::resume(image.clone(), store, found, driver.options.clone())
}

#[test]
fn every_crash_leaves_what_was_acknowledged() {
    let driver = workload();
    let trace = driver.vfs.trace();
    let mut images = 0;
    for cut in cuts(&trace) {
        let between = moments(&trace, &driver.acked, cut);
        for policy in CrashPolicy::all(seeds()) {
            let text = format!("cut {cut} {policy:?}");
            let image = trace.crash(cut, policy);
            let mut next = recover(&driver, &image, &between, &text);
            images += 1;
            if images % 7 == 0 {
                next.history.check_points(next.store.view(), 1, &text);
            }
            if images % 3 == 0 {
                next.go_on(&text);
                next.reopen();
            }
        }
    }
    println!("{} operations, {images} images", trace.len());
}

#[test]
fn a_crash_of_the_recovery_is_recovered_from() {
    let driver = workload();
    let trace = driver.vfs.trace();
    let all: Vec<usize> = cuts(&trace).collect();
    for cut in all.iter().step_by(all.len() / 12) {
        let between = moments(&trace, &driver.acked, *cut);
        for policy in [CrashPolicy::KeepAll, CrashPolicy::Torn { seed: 3 }] {
            let text = format!("cut {cut} {policy:?}");
            let image = trace.crash(*cut, policy);
            let mut first = recover(&driver, &image, &between, &text);
            first.ack();
            first.go_on(&text);
            let again = image.trace();
            for second in cuts(&again).step_by(2) {
                for policy in [
                    CrashPolicy::KeepAll,
                    CrashPolicy::DropUnsynced,
                    CrashPolicy::Torn { seed: 5 },
                ] {
                    let text = format!("{text}, then cut {second} {policy:?}");
                    // What the first recovery had not served yet may still go.
                    let marked = again.marks_before(second).next().is_some();
                    let twice = again.crash(second, policy);
                    if marked {
                        recover(
                            &first,
                            &twice,
                            &moments(&again, &first.acked, second),
                            &text,
                        );
                    } else {
                        recover(&driver, &twice, &between, &text);
                    }
                }
            }
        }
    }
}
