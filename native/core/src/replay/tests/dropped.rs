//! What is left of a stream where segments in between were dropped.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::wal::NewRecord;

/// Append to a stream until the log has rolled.
fn roll(node: &Node, filler: u32) {
    for _ in 0..6 {
        let record = NewRecord {
            value: Some(&[7; 12_000]),
            key: None,
            timestamp: 0,
            headers: &[],
        };
        node.store().append(filler, record, None).unwrap();
        node.store().sync().unwrap();
    }
}

fn commit(node: &Node, version: u64, begin: u64, length: u64) {
    let context = CommitContext {
        version,
        glsn_begin: begin,
        llsn_begin: begin,
        length,
        high_watermark: begin + length - 1,
    };
    node.store().commit(node.streams[&1].0, 0, context).unwrap();
}

/// The rollback goes with its segment, what it took back stays in an older one: it is neither served nor
/// counted as pending.
#[test]
fn what_a_dropped_segment_took_back_does_not_come_out() {
    let mut node = Node::new(1 << 20);
    node.create(1, 0);
    let filler = node.store().create_log(NewLog {
        id: 99,
        explicit_commit: false,
        created: 0,
        name: "filler".into(),
        options: Vec::new(),
    });
    let (stream, filler) = (node.streams[&1].0, filler.unwrap());
    node.place(1, 1, &batch(1, 1, 2, 10));
    commit(&node, 1, 1, 2);
    node.place(1, 3, &batch(1, 3, 4, 900));
    roll(&node, filler);
    node.store().rollback(stream, 0, 3).unwrap();
    roll(&node, filler);
    node.store().trim(stream, 2).unwrap();
    let next = node.store().next_llsn(filler).unwrap();
    node.store().trim(filler, next).unwrap();
    let left = node.store().view().segments();
    assert_eq!((left.len(), left[0].number), (2, 1));
    let after = batch(1, 3, 2, 50);
    node.place(1, 3, &after);
    commit(&node, 2, 3, 2);
    node.stop();

    let mut merge = Merge::new(&[node.directory(None)], None, None, OnHole::Skip).unwrap();
    let kept = merge.next().unwrap().unwrap();
    assert_eq!((kept.llsn, kept.count), (2, 1));
    let piece = merge.next().unwrap().unwrap();
    assert_eq!((piece.llsn, piece.count), (3, 2));
    assert!(piece.bytes() == after, "what was taken back");
    assert!(merge.next().unwrap().is_none());
}
