//! Preambles and changes that no writer makes: refused, and never more than that.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::error::Error;
use crate::wal::format::frame::Kind;
use crate::wal::format::producer::ProducerId;
use crate::wal::{CommitContext, Cursor};

fn header(kind: Kind, stream: u32, llsn: u64) -> FrameHeader {
    FrameHeader {
        kind,
        flags: 0,
        stream,
        count: 0,
        epoch: 0,
        llsn,
        durable: 0,
        ordinal: 0,
    }
}

/// Two logs; the second needs commits and has ten records.
fn sample() -> State {
    let mut state = State::default();
    for stream in [1, 2] {
        let log = NewLog {
            id: u128::from(stream),
            explicit_commit: stream == 2,
            created: 0,
            name: format!("log {stream}"),
            options: Vec::new(),
        };
        state
            .apply(&header(Kind::Catalog, stream, 0), &Change::CreateLog(log))
            .unwrap();
    }
    let producer = Some((ProducerId { id: 3, epoch: 0 }, 1));
    let change = Change::Batch {
        count: 10,
        producer,
    };
    state.apply(&header(Kind::Batch, 2, 1), &change).unwrap();
    state
}

fn refused(change: impl FnOnce(&mut State)) -> String {
    let mut state = sample();
    change(&mut state);
    State::decode(&state.encode()).unwrap_err().to_string()
}

#[test]
fn a_state_is_written_and_read() {
    let state = sample();
    let bytes = state.encode();
    assert_eq!(bytes.len(), state.encoded_len());
    assert_eq!(State::decode(&bytes).unwrap(), state);
}

#[test]
fn preambles_that_contradict_themselves_are_refused() {
    let context = |glsn_begin, llsn_begin, length| CommitContext {
        version: 1,
        glsn_begin,
        llsn_begin,
        length,
        high_watermark: 0,
    };
    let with = |context| refused(|state| state.streams.get_mut(&2).unwrap().context = context);
    assert!(with(context(u64::MAX, 1, 1)).contains("commit is out of range"));
    assert!(with(context(1, u64::MAX, 1)).contains("commit is out of range"));
    // Records between would be taken for readable as soon as one more is appended.
    let behind = |state: &mut State| state.streams.get_mut(&1).unwrap().next = 9;
    assert!(refused(behind).contains("not committed"));
    assert!(refused(|state| state.next_stream = 2).contains("never given"));
    let same_stream = |state: &mut State| state.logs.get_mut(&1).unwrap().stream = 2;
    assert!(refused(same_stream).contains("pair up"));
}

#[test]
fn stream_0_is_never_the_next() {
    let mut bytes = State::default().encode();
    assert!(State::decode(&bytes).is_ok());
    bytes[..4].fill(0);
    assert!(State::decode(&bytes).is_err());
}

#[test]
fn what_is_there_twice_is_refused() {
    let bytes = sample().encode();
    let log = bytes.windows(5).position(|w| w == b"log 1").unwrap();
    let mut twice = bytes.clone();
    // Give the first log the id of the second.
    twice[log - 4 - 9 - 16] = 2;
    let error = State::decode(&twice).unwrap_err().to_string();
    assert!(error.contains("a log is there twice"), "{error}");
}

#[test]
fn a_producer_window_beyond_its_stream_is_refused() {
    let error = refused(|state| state.streams.get_mut(&2).unwrap().next = 10);
    assert!(error.contains("producer window"), "{error}");
}

#[test]
fn numbers_at_the_end_of_their_range_are_refused() {
    let mut state = sample();
    let commit = |version, glsn_begin| {
        let header = header(Kind::Commit, 2, 0);
        let context = CommitContext {
            version,
            glsn_begin,
            llsn_begin: 1,
            length: 1,
            high_watermark: 0,
        };
        (header, Change::Commit(context))
    };
    for glsn in [u64::MAX, u64::MAX - 1, (1 << 62) - 1] {
        let (header, change) = commit(1, glsn);
        assert!(state.check(&header, &change).is_err(), "{glsn}");
    }
    let (header_, change) = commit(u64::MAX, 1);
    state.apply(&header_, &change).unwrap();
    assert!(state.check(&header_, &change).is_err());

    for sequence in [u64::MAX, u64::MAX - 9, (1 << 62) - 10] {
        let producer = Some((ProducerId { id: 4, epoch: 0 }, sequence));
        let change = Change::Batch {
            count: 10,
            producer,
        };
        let result = state.check(&header(Kind::Batch, 2, 11), &change);
        assert!(result.is_err(), "{sequence}");
    }
    let id = ProducerId { id: 3, epoch: 0 };
    let producers = &state.streams[&2].producers;
    assert!(producers.admit(id, u64::MAX, 1).is_err());

    state.next_stream = u32::MAX;
    let log = NewLog {
        id: 9,
        explicit_commit: false,
        created: 0,
        name: "last".into(),
        options: Vec::new(),
    };
    let change = Change::CreateLog(log);
    assert!(
        state
            .apply(&header(Kind::Catalog, u32::MAX, 0), &change)
            .is_err()
    );
}

#[test]
fn a_cursor_stands_no_further_than_the_next_record() {
    let mut state = sample();
    let set = |position| {
        let cursor = Cursor {
            position,
            pin: true,
            touched: 0,
            lease: 0,
        };
        Change::SetCursor("c".into(), cursor)
    };
    let header = header(Kind::Cursor, 2, 0);
    for position in [1, 10, 11] {
        state.check(&header, &set(position)).unwrap();
    }
    assert!(matches!(
        state.check(&header, &set(0)),
        Err(Error::InvalidArgument(_))
    ));
    for position in [12, u64::MAX] {
        let refused = state.check(&header, &set(position));
        assert!(matches!(refused, Err(Error::BeyondEnd { next: 11, .. })));
    }
    // One that was written before this was checked is read.
    for position in [0, 12, u64::MAX] {
        state.apply(&header, &set(position)).unwrap();
        assert_eq!(State::decode(&state.encode()).unwrap(), state);
    }
}
