//! Producers whose records have a number and no frame yet.

use super::driver::{kept, record, with_columns};
use super::{create, open_at};
use crate::batch::ColumnsRef;
use crate::error::{Error, Result};
use crate::vfs::{BufPool, MemoryVfs};
use crate::wal::format::change::{Change, NewLog};
use crate::wal::format::frame::{FRAME_HEADER, bytes_to_check, parse};
use crate::wal::format::header::FIRST_FRAME;
use crate::wal::format::producer::{PRODUCERS_BYTES_MAX, RUNS_MAX};
use crate::wal::placing::appender::{Appender, Sequenced, Ticket};
use crate::wal::placing::bound::sizes;
use crate::wal::{ProducerId, State};

const P: ProducerId = ProducerId { id: 5, epoch: 1 };

/// An appender with streams 1 and 2 and nothing unsealed.
fn appender() -> Appender {
    appender_of(64 << 10)
}

fn appender_of(segment: u32) -> Appender {
    let sizes = sizes(segment, u64::from(segment) << 4, 0, segment.into());
    let mut appender = Appender::create(sizes, 1, 42, BufPool::new(4, 1 << 20)).unwrap();
    appender.slots_ready = 8;
    for stream in [1, 2] {
        let log = NewLog {
            id: u128::from(stream),
            explicit_commit: false,
            created: 0,
            name: format!("log {stream}"),
            options: Vec::new(),
        };
        appender
            .change(stream, 0, 0, &Change::CreateLog(log))
            .unwrap();
    }
    appender.seal().unwrap();
    appender
}

fn push(appender: &mut Appender, id: ProducerId, sequence: u64) -> Result<u64> {
    let ticket = appender.push(1, record(&kept(1, 8)), Some((id, sequence)))?;
    Ok(ticket.llsn)
}

fn columns(
    appender: &mut Appender,
    stream: u32,
    count: usize,
    producer: Option<Sequenced>,
) -> Result<Ticket> {
    let records: Vec<_> = (0..count as u64).map(|i| kept(i, 1000)).collect();
    with_columns(&records, |columns: &ColumnsRef<'_>| {
        appender.append_columns(stream, columns, 0..count, 8000, producer)
    })
}

/// Roll by appends to stream 2, and what the new segment opens with.
fn preamble_of_a_roll(appender: &mut Appender) -> State {
    let number = appender.active.segment.number;
    while appender.active.segment.number == number {
        columns(appender, 2, 5, None).unwrap();
    }
    let part = appender.parts.iter().find(|part| part.opens).unwrap();
    let bytes = &part.buf[FIRST_FRAME as usize..];
    let bytes = &bytes[..bytes_to_check(bytes)];
    let frame = parse(bytes, part.segment.seed, FIRST_FRAME).unwrap();
    State::decode(&bytes[FRAME_HEADER..FRAME_HEADER + frame.payload as usize]).unwrap()
}

#[test]
fn a_roll_forgets_nothing_for_a_record_without_a_frame() {
    // Each but the last record has a run of its own; the last would push out the oldest.
    let mut appender = appender();
    for sequence in 1..=RUNS_MAX as u64 {
        push(&mut appender, P, sequence).unwrap();
        appender.push(1, record(&kept(2, 8)), None).unwrap();
    }
    appender.seal().unwrap();
    let before = appender.state.streams[&1].clone();
    push(&mut appender, P, RUNS_MAX as u64 + 1).unwrap();
    assert_eq!(preamble_of_a_roll(&mut appender).streams[&1], before);

    // A record of a new epoch would begin the window anew.
    appender.seal().unwrap();
    let before = appender.state.streams[&1].clone();
    push(&mut appender, ProducerId { epoch: 2, ..P }, 1).unwrap();
    assert_eq!(preamble_of_a_roll(&mut appender).streams[&1], before);
}

#[test]
fn a_roll_forgets_no_producer_for_one_without_a_frame() {
    // A window with one run takes 40 bytes.
    let producers_max = PRODUCERS_BYTES_MAX as u64 / 40;
    let mut appender = appender_of(1 << 20);
    for id in 1..=producers_max {
        push(&mut appender, ProducerId { id, epoch: 0 }, 1).unwrap();
    }
    appender.seal().unwrap();
    let before = appender.state.streams[&1].clone();
    push(&mut appender, ProducerId { id: 9999, epoch: 0 }, 1).unwrap();
    assert_eq!(preamble_of_a_roll(&mut appender).streams[&1], before);
    appender.seal().unwrap();
    let producers = &appender.state.streams[&1].producers;
    assert_eq!((producers.epoch(9999), producers.epoch(1)), (Some(0), None));
}

#[test]
fn the_open_batch_is_asked_first() {
    let mut appender = appender();
    for sequence in 1..=3 {
        assert_eq!(push(&mut appender, P, sequence).unwrap(), sequence);
    }
    appender.seal().unwrap();
    appender.push(1, record(&kept(2, 8)), None).unwrap();
    for sequence in 4..=6 {
        assert_eq!(push(&mut appender, P, sequence).unwrap(), sequence + 1);
    }
    assert_eq!(appender.producer(1, 5).unwrap(), (7, Some(1)));
    assert_eq!(appender.producer(1, 6).unwrap(), (1, None));
    // Once with 4..7 in the open batch, once with them placed: the answers are the same.
    for _ in 0..2 {
        for (sequence, llsn) in [(1, 1), (3, 3), (4, 5), (6, 7)] {
            assert_eq!(push(&mut appender, P, sequence).unwrap(), llsn);
        }
        let again = columns(&mut appender, 1, 2, Some((P, 5))).unwrap();
        assert_eq!((again.llsn, again.count), (6, 2));
        for (sequence, count) in [(8, 1), (6, 2), (3, 5)] {
            let refused = columns(&mut appender, 1, count, Some((P, sequence)));
            let gap = matches!(&refused, Err(Error::NotDense { given, expected: 7, .. }) if *given == sequence);
            assert!(gap, "{sequence}: {refused:?}");
        }
        let several = columns(&mut appender, 1, 2, Some((P, 3)));
        assert!(
            matches!(several, Err(Error::InvalidArgument(_))),
            "{several:?}"
        );
        let stale = push(&mut appender, ProducerId { epoch: 0, ..P }, 7);
        assert!(matches!(stale, Err(Error::StaleEpoch { current: 1, .. })));
        let newer = push(&mut appender, ProducerId { epoch: 2, ..P }, 7);
        assert!(matches!(newer, Err(Error::NotDense { expected: 1, .. })));
        let other = push(&mut appender, ProducerId { id: 6, epoch: 0 }, 2);
        assert!(matches!(other, Err(Error::NotDense { expected: 1, .. })));
        appender.seal().unwrap();
    }
    let newer = ProducerId { epoch: 2, ..P };
    assert_eq!(push(&mut appender, P, 7).unwrap(), 8);
    assert_eq!(push(&mut appender, newer, 1).unwrap(), 9);
    assert_eq!(push(&mut appender, newer, 1).unwrap(), 9);
    let stale = push(&mut appender, P, 8);
    assert!(matches!(stale, Err(Error::StaleEpoch { current: 2, .. })));
}

#[test]
fn a_repeat_over_the_edge_of_the_open_batch_is_one_stretch_or_refused() {
    let mut appender = appender();
    push(&mut appender, P, 1).unwrap();
    appender.seal().unwrap();
    push(&mut appender, P, 2).unwrap();
    for _ in 0..2 {
        assert_eq!(columns(&mut appender, 1, 2, Some((P, 1))).unwrap().llsn, 1);
        appender.seal().unwrap();
    }
}

#[test]
fn room_for_open_producers_is_counted_once() {
    let mut appender = appender();
    for id in 1..=40 {
        for sequence in 1..=3 {
            push(&mut appender, ProducerId { id, epoch: 0 }, sequence).unwrap();
        }
    }
    appender.seal().unwrap();
    assert_eq!(appender.state_bytes, appender.state.encoded_len());
}

#[test]
fn sequences_at_the_end_of_their_range_are_refused_at_once() {
    let mut appender = appender();
    let mut batch = crate::batch::BatchBuilder::new();
    let (last, value) = ((1 << 62) - 2, kept(1, 8));
    batch.set_producer(P.id, P.epoch, last - 1);
    batch.push(Some(&value.value), None, 0, &[]).unwrap();
    let mut bytes = BufPool::new(1, 1 << 20).take(1 << 10);
    batch
        .encode_into(crate::batch::Compression::None, &mut bytes)
        .unwrap();
    appender.append_encoded(1, 0, 1, &bytes).unwrap();
    push(&mut appender, P, last).unwrap();
    assert!(push(&mut appender, P, last + 1).is_err());
    appender.seal().unwrap();
    assert!(appender.broken.is_none());
}

#[test]
fn a_repeat_of_what_is_on_its_way_names_its_group() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_at(&vfs).unwrap();
    let stream = create(&store, "a");
    let value = kept(1, 8);
    let first = store.append(stream, record(&value), Some((P, 1))).unwrap();
    let again = store.append(stream, record(&value), Some((P, 1))).unwrap();
    assert_eq!(again.llsn, first.llsn);
    store.wait(again.group).unwrap();
    assert_eq!(store.producer(stream, P.id).unwrap(), (2, Some(1)));
}
