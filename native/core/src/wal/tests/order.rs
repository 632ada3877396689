//! The rule by which streams join and leave the order of their log.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::wal::format::change::{CommitContext, NewLog};
use crate::wal::format::frame::Kind;

const LOG: u128 = 9;

/// The rule alone, fed with frames that are never written.
struct Rule {
    state: State,
    orders: Orders,
}

impl Rule {
    fn new(budget: u64, streams: u32) -> Self {
        let mut rule = Self {
            state: State::default(),
            orders: Orders::new(budget),
        };
        for stream in 1..=streams {
            let log = NewLog {
                id: stream.into(),
                explicit_commit: true,
                created: 0,
                name: stream.to_string(),
                options: Vec::new(),
            };
            rule.fold(Kind::Catalog, stream, 0, 0, 100, &Change::CreateLog(log));
            rule.orders.register(&rule.state, stream, LOG);
            rule.join(stream);
        }
        rule
    }

    fn fold(
        &mut self,
        kind: Kind,
        stream: u32,
        llsn: u64,
        count: u32,
        bytes: u32,
        change: &Change,
    ) {
        let header = FrameHeader {
            kind,
            flags: 0,
            stream,
            count,
            epoch: 0,
            llsn,
            durable: 0,
            ordinal: 0,
        };
        self.state.apply(&header, change).unwrap();
        self.orders.fold(&self.state, &header, bytes, change);
    }

    fn join(&mut self, stream: u32) -> bool {
        let Some(order) = self.orders.joins(stream) else {
            return false;
        };
        let next = self.state.streams[&stream].next;
        self.fold(Kind::Order, stream, next, 0, 72, &Change::Order(order));
        true
    }

    fn append(&mut self, stream: u32, bytes: u32) {
        while let Some((victim, order)) = self.orders.next_to_leave(stream, bytes.into()) {
            self.fold(Kind::Order, victim, 0, 0, 72, &Change::Order(order));
        }
        let llsn = self.state.streams[&stream].next;
        let change = Change::Batch {
            count: 1,
            producer: None,
        };
        self.fold(Kind::Batch, stream, llsn, 1, bytes, &change);
    }

    fn commit(&mut self, stream: u32, glsn: u64, length: u64, high_watermark: u64) {
        let at = &self.state.streams[&stream];
        let context = CommitContext {
            version: at.context.version + 1,
            glsn_begin: glsn,
            llsn_begin: at.committed,
            length,
            high_watermark,
        };
        let llsn = at.committed;
        self.fold(Kind::Commit, stream, llsn, 0, 88, &Change::Commit(context));
    }
}

#[test]
fn what_all_streams_passed_is_pending_no_more() {
    let mut rule = Rule::new(1000, 2);
    rule.append(1, 100);
    rule.append(2, 200);
    assert_eq!(rule.orders.pending(LOG), 300);
    rule.commit(1, 1, 1, 2);
    assert_eq!(
        rule.orders.pending(LOG),
        300,
        "stream 2 may still have the first"
    );
    rule.commit(2, 2, 1, 2);
    assert_eq!(rule.orders.pending(LOG), 0);
}

#[test]
fn a_silent_stream_goes_with_the_cuts() {
    let mut rule = Rule::new(1000, 2);
    for glsn in 1..50 {
        rule.append(1, 100);
        rule.commit(1, glsn, 1, glsn);
        rule.commit(2, glsn + 1, 0, glsn);
        assert_eq!(rule.orders.pending(LOG), 0);
    }
    assert_eq!((rule.orders.from(1), rule.orders.from(2)), (1, 1));
}

#[test]
fn who_holds_the_others_back_leaves_and_comes_back() {
    let mut rule = Rule::new(1000, 2);
    for glsn in 1..=20 {
        rule.append(1, 100);
        rule.commit(1, glsn, 1, glsn);
        assert!(rule.orders.pending(LOG) <= 1000);
    }
    assert_eq!((rule.orders.from(1), rule.orders.from(2)), (1, 0));
    assert!(!rule.join(2), "it is behind");
    rule.commit(2, 21, 0, 20);
    assert!(rule.join(2));
    assert_eq!(rule.orders.from(2), 1);
}

#[test]
fn a_stream_with_more_than_the_budget_leaves_alone() {
    let mut rule = Rule::new(1000, 2);
    rule.append(2, 100);
    for _ in 0..20 {
        rule.append(1, 100);
        assert!(rule.orders.pending(LOG) <= 1000);
    }
    assert_eq!((rule.orders.from(1), rule.orders.from(2)), (0, 1));
    rule.commit(1, 1, 20, 20);
    assert!(rule.join(1));
    assert_eq!(rule.orders.from(1), 21);
}

#[test]
fn what_is_rolled_back_or_deleted_is_not_pending() {
    let mut rule = Rule::new(1000, 2);
    rule.append(1, 100);
    rule.append(1, 200);
    rule.append(2, 300);
    rule.fold(Kind::Rollback, 1, 2, 0, 48, &Change::Rollback);
    assert_eq!(rule.orders.pending(LOG), 400);
    rule.fold(Kind::Catalog, 0, 0, 0, 72, &Change::DeleteLog(2));
    assert_eq!(rule.orders.pending(LOG), 100);
}

#[test]
fn frames_at_the_head_of_a_segment_are_all_that_recovery_needs() {
    let mut rule = Rule::new(1000, 2);
    rule.append(1, 300);
    rule.commit(1, 1, 1, 1);
    rule.append(1, 200);
    let mut recovered = Orders::new(1000);
    for (stream, from, order) in rule.orders.frames() {
        let header = FrameHeader {
            kind: Kind::Order,
            flags: 0,
            stream,
            count: 0,
            epoch: 0,
            llsn: from,
            durable: 0,
            ordinal: 0,
        };
        recovered.fold(&rule.state, &header, 80, &Change::Order(order));
    }
    assert_eq!(recovered.pending(LOG), 500);
    rule.orders = recovered;
    rule.commit(1, 2, 1, 2);
    rule.commit(2, 3, 0, 2);
    assert_eq!(rule.orders.pending(LOG), 0);
    assert_eq!((rule.orders.from(1), rule.orders.from(2)), (1, 1));
}
