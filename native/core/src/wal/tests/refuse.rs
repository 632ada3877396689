//! Calls that make no sense get their own error, and change nothing: neither the state nor the files.

use super::driver::{Driver, kept, record, with_columns};
use super::options;
use crate::batch::{Compression, Producer, encode_columns};
use crate::error::{Error, Result};
use crate::wal::format::change::Cursor;
use crate::wal::{CommitContext, NewLog, ProducerId, Restart, Store};

fn commit(version: u64, glsn_begin: u64, llsn_begin: u64, length: u64) -> CommitContext {
    CommitContext {
        version,
        glsn_begin,
        llsn_begin,
        length,
        high_watermark: glsn_begin + length,
    }
}

fn log(id: u128, name: &str) -> NewLog {
    NewLog {
        id,
        explicit_commit: false,
        created: 0,
        name: name.into(),
        options: Vec::new(),
    }
}

type Call<'a> = &'a dyn Fn(&Store) -> Result<u64>;
type Expected = fn(&Error) -> bool;

#[test]
fn a_refused_call_changes_nothing() {
    let mut driver = Driver::new(options());
    let (plain, ordered) = (
        driver.create("plain", false),
        driver.create("ordered", true),
    );
    driver.produce(plain, 1, 50).unwrap();
    driver.produce(plain, 1, 50).unwrap();
    (0..6).for_each(|_| _ = driver.push(ordered, 50).unwrap());
    driver.raise_epoch(ordered, 5);
    driver.commit(ordered, 2);
    driver.commit(ordered, 1);
    driver.sync();
    let encoded = |records: &[super::oracle::Kept]| {
        let (mut batch, producer) = (Vec::new(), Producer::default());
        with_columns(records, |columns| {
            encode_columns(
                columns,
                0..records.len(),
                producer,
                Compression::None,
                &mut batch,
            )
        })
        .unwrap();
        batch
    };
    let batch = encoded(&[kept(1, 50), kept(2, 50)]);
    let produce = |store: &Store, id, epoch, sequence| {
        let producer = Some((ProducerId { id, epoch }, sequence));
        let ticket = store.append(plain, record(&kept(9, 9)), producer)?;
        Ok(ticket.llsn)
    };
    let stale: Expected = |e| matches!(e, Error::StaleEpoch { .. });
    let committed: Expected = |e| matches!(e, Error::Committed { .. });
    let beyond: Expected = |e| matches!(e, Error::BeyondEnd { .. });
    let gap: Expected = |e| matches!(e, Error::NotDense { .. });
    let unknown: Expected = |e| matches!(e, Error::NotFound { .. });
    let exists: Expected = |e| matches!(e, Error::AlreadyExists { .. });
    let argument: Expected = |e| matches!(e, Error::InvalidArgument(_));
    let create = |store: &Store, id, name| store.create_log(log(id, name)).map(u64::from);
    let calls: [(Call<'_>, Expected); 27] = [
        (&|s| s.commit(ordered, 4, commit(3, 50, 4, 1)), stale),
        (&|s| s.rollback(ordered, 4, 5), stale),
        (&|s| s.raise_epoch(ordered, 4), stale),
        (
            &|s| s.append_encoded(ordered, 4, 7, &batch).map(|t| t.llsn),
            stale,
        ),
        (
            &|s| s.append_encoded(ordered, 5, 6, &batch).map(|t| t.llsn),
            gap,
        ),
        (
            &|s| s.append_encoded(ordered, 5, 8, &batch).map(|t| t.llsn),
            gap,
        ),
        (&|s| s.rollback(ordered, 5, 3), committed),
        (&|s| s.rollback(ordered, 5, 1), committed),
        (&|s| s.rollback(ordered, 5, 8), beyond),
        (&|s| s.rollback(plain, 0, 2), committed),
        (&|s| s.commit(ordered, 5, commit(3, 50, 4, 4)), beyond),
        (&|s| s.commit(ordered, 5, commit(3, 50, 5, 1)), gap),
        (&|s| s.commit(ordered, 5, commit(3, 50, 3, 1)), gap),
        (&|s| s.commit(ordered, 5, commit(1, 50, 4, 1)), gap),
        (&|s| s.commit(ordered, 5, commit(2, 50, 4, 0)), gap),
        (
            &|s| s.restart(12345, 5, Restart::default()).map(u64::from),
            unknown,
        ),
        (&|s| s.commit(ordered, 5, commit(3, 5, 4, 1)), gap),
        // An empty commit must not open the way for numbers that were given out.
        (&|s| s.commit(ordered, 5, commit(3, 0, 4, 0)), gap),
        (&|s| s.trim(ordered, 5), beyond),
        (&|s| s.trim(99, 5), unknown),
        (&|s| s.raise_epoch(99, 5), unknown),
        (&|s| s.delete_cursor(plain, "none").map(|()| 0), unknown),
        (&|s| s.delete_log(12345).map(|()| 0), unknown),
        (&|s| create(s, 12345, "plain"), exists),
        (&|s| produce(s, 1, 0, 4), gap),
        (&|s| produce(s, 0, 0, 1), argument),
        (&|s| produce(s, 2, 0, 2), gap),
    ];
    let before = (driver.store.state(), driver.vfs.operations());
    for (i, (call, expected)) in calls.into_iter().enumerate() {
        let error = call(&driver.store).expect_err("a call that makes no sense");
        assert!(expected(&error), "call {i}: {error:?}");
        let now = (driver.store.state(), driver.vfs.operations());
        assert!(now == before, "call {i} changed something: {error}");
    }
    driver.reopen();
    driver.go_on("after refusals");
}

#[test]
fn a_trim_beyond_the_end_is_refused_whatever_is_pinned() {
    let mut driver = Driver::new(options());
    let plain = driver.create("plain", false);
    driver.produce(plain, 1, 50).unwrap();
    let cursor = Cursor {
        position: 1,
        pin: true,
        touched: 0,
        lease: 0,
    };
    driver.store.set_cursor(plain, "pin", cursor).unwrap();
    let refused = driver.store.trim_unpinned(plain, 99, 0);
    assert!(matches!(refused, Err(Error::BeyondEnd { next: 2, .. })));
    assert_eq!(driver.store.trim_unpinned(plain, 2, 0).unwrap(), 1);
}
