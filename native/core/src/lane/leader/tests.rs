use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use super::{End, Leader, Metadata, Node, Stream, Told};
use crate::lane::report::Report;

/// One log of streams.
#[derive(Default)]
struct Held {
    end: Option<End>,
    streams: BTreeMap<u64, Stream>,
}

impl Metadata for Held {
    type Error = Infallible;

    fn stream(&self, number: u64) -> Result<Option<Stream>, Infallible> {
        Ok(self.streams.get(&number).cloned())
    }

    fn end(&self, _: &[u8]) -> Result<End, Infallible> {
        Ok(self.end.unwrap_or(End {
            version: 0,
            high_watermark: 0,
        }))
    }

    fn streams(&self, _: &[u8]) -> Result<Vec<(u64, Stream)>, Infallible> {
        let streams = self.streams.iter();
        Ok(streams
            .map(|(number, each)| (*number, each.clone()))
            .collect())
    }
}

fn held(count: u64, replicas: &[u64]) -> Held {
    let stream = Stream {
        log: vec![b'l'; 16],
        epoch: 1,
        running: true,
        committed: 1,
        last_version: 0,
        replicas: replicas.to_vec(),
    };
    Held {
        end: None,
        streams: (1..=count).map(|number| (number, stream.clone())).collect(),
    }
}

struct Bench {
    leader: Leader<()>,
    numbers: u64,
}

impl Bench {
    fn new() -> Self {
        Self {
            leader: Leader::new(2),
            numbers: 0,
        }
    }

    fn tell(&mut self, node: u64, ends: &[(u64, u64)]) {
        self.numbers += 1;
        let head = Node {
            incarnation: 1,
            number: self.numbers,
            full: false,
            features: 0,
        };
        let told = |end| Told {
            epoch: 1,
            version: 0,
            committed: 1,
            end,
            state: 2,
            damaged: false,
        };
        let streams = ends.iter().map(|(stream, end)| (*stream, told(*end), ()));
        assert!(self.leader.take(node, head, streams.collect()));
    }

    fn cut(&mut self, held: &Held) -> Vec<(u64, u64, u64, u64)> {
        let none = BTreeSet::new();
        let Ok(cut) = self.leader.cut(held, &none, &none);
        let runs = cut.into_iter().flat_map(|cut| &cut.cuts[0].runs);
        runs.map(|run| (run.stream, run.llsn, run.glsn, run.length))
            .collect()
    }
}

#[test]
fn a_cut_takes_what_all_replicas_hold() {
    let (mut bench, held) = (Bench::new(), held(2, &[1, 2]));
    bench.tell(1, &[(1, 6), (2, 4)]);
    assert!(bench.cut(&held).is_empty());
    bench.tell(2, &[(1, 4), (2, 9)]);
    assert_eq!(bench.cut(&held), [(1, 1, 1, 3), (2, 1, 4, 3)]);
}

#[test]
fn who_reports_more_than_there_are_positions_gets_none() {
    let (mut bench, mut held) = (Bench::new(), held(3, &[1]));
    held.end = Some(End {
        version: 4,
        high_watermark: 10,
    });
    let all = i64::MAX as u64;
    bench.tell(1, &[(1, all), (2, 4), (3, all - 12)]);
    assert_eq!(bench.cut(&held), [(2, 1, 11, 3), (3, 1, 14, all - 13)]);
    let mut alone = Bench::new();
    alone.tell(1, &[(1, u64::MAX)]);
    assert!(alone.cut(&held).is_empty());
}

#[test]
fn a_cut_is_proposed_once() {
    let (mut bench, held) = (Bench::new(), held(1, &[1]));
    bench.tell(1, &[(1, 3)]);
    assert!(!bench.leader.proposed(7, true));
    bench.cut(&held);
    assert!(bench.leader.proposed(7, true));
    assert!(!bench.leader.proposed(8, true));
    assert!(bench.cut(&held).is_empty());
    assert_eq!(bench.leader.flying().collect::<Vec<_>>(), [7]);
}

#[test]
fn what_was_dropped_comes_again_and_what_flies_is_built_on() {
    let (mut bench, held) = (Bench::new(), held(1, &[1]));
    bench.tell(1, &[(1, 3)]);
    let first = bench.cut(&held);
    bench.leader.dropped();
    assert!(bench.leader.has_fresh());
    assert_eq!(bench.cut(&held), first);
    bench.leader.proposed(7, true);
    bench.tell(1, &[(1, 5)]);
    assert_eq!(bench.cut(&held), [(1, 3, 3, 2)]);
}

#[test]
fn after_a_refusal_nothing_is_made_until_all_are_back() {
    let (mut bench, held) = (Bench::new(), held(1, &[1]));
    for index in [7, 8] {
        bench.tell(1, &[(1, index)]);
        bench.cut(&held);
        bench.leader.proposed(index, true);
    }
    assert_eq!(bench.leader.settled(6, true), None);
    assert_eq!(bench.leader.settled(7, true), Some(vec![vec![b'l'; 16]]));
    bench.tell(1, &[(1, 9)]);
    assert!(bench.cut(&held).is_empty());
    assert!(bench.leader.settled(8, true).is_some());
    assert_eq!(bench.cut(&held), [(1, 1, 1, 8)]);
}

#[test]
fn a_cut_is_certain_if_nothing_else_is_between() {
    let (mut bench, held) = (Bench::new(), held(1, &[1]));
    for (index, pure) in [(7, true), (8, false)] {
        bench.tell(1, &[(1, index)]);
        bench.cut(&held);
        bench.leader.proposed(index, pure);
    }
    let certain = |bench: &Bench| [6, 7, 8].map(|index| bench.leader.is_certain(index));
    assert_eq!(certain(&bench), [false, true, false]);
    assert!(bench.leader.has_proposed(8) && !bench.leader.has_proposed(6));
    // After a refusal none is: those behind it were computed from what it would have left.
    bench.leader.settled(7, true);
    assert_eq!(certain(&bench), [false, false, false]);
}

#[test]
fn a_cut_is_told_once_and_then_has_room_for_another() {
    let (mut bench, held) = (Bench::new(), held(1, &[1]));
    for index in [7, 8] {
        bench.tell(1, &[(1, index)]);
        bench.cut(&held);
        bench.leader.proposed(index, true);
    }
    bench.tell(1, &[(1, 9)]);
    assert!(bench.cut(&held).is_empty(), "two are in flight");
    assert_eq!(bench.leader.tell(6), None);
    let told = bench.leader.tell(7).map(|cut| cut.cuts[0].high_watermark);
    assert_eq!((told, bench.leader.tell(7)), (Some(6), None));
    assert!(bench.leader.is_told(7) && !bench.leader.is_told(8));
    // It is built on until it is applied, and then nobody has to be told again.
    assert_eq!(bench.cut(&held), [(1, 8, 8, 1)]);
    bench.leader.proposed(9, true);
    assert_eq!(bench.leader.flying().collect::<Vec<_>>(), [8, 9]);
    assert_eq!(bench.leader.settled(7, false), Some(vec![]));
    assert_eq!(bench.leader.settled(8, false), Some(vec![vec![b'l'; 16]]));
}

#[test]
fn a_report_is_the_bytes_of_a_message() {
    let told = Told {
        epoch: 3,
        version: 300,
        committed: 5,
        end: 70_000,
        state: 2,
        damaged: true,
    };
    let head = Node {
        incarnation: 9,
        number: 130,
        full: false,
        features: 7,
    };
    let report = Report {
        node: 4,
        head,
        streams: vec![(1, told)],
        syncs: (6, 0),
    };
    let bytes = report.encode();
    let mut expected = vec![0x98, 4, 9, 0xcc, 130, 0xc2, 0x91, 0x97, 1, 3];
    expected.extend([0xcd, 0x01, 0x2c, 5, 0xce, 0, 0x01, 0x11, 0x70, 2, 0xc3]);
    expected.extend([7, 6, 0]);
    assert_eq!(bytes, expected);
    assert_eq!(Report::decode(&bytes), Some(report));
    for end in 0..bytes.len() {
        assert_eq!(Report::decode(&bytes[..end]), None, "{end}");
    }
    // A truth is one, an array has its length, and nothing is behind.
    for (at, other) in [(0, 0x97), (5, 0), (7, 0x96)] {
        let mut wrong = bytes.clone();
        wrong[at] = other;
        assert_eq!(Report::decode(&wrong), None, "{at}");
    }
    assert_eq!(Report::decode(&[bytes, vec![0]].concat()), None);
}

#[test]
fn a_cut_is_the_bytes_of_a_call() {
    let (mut bench, held) = (Bench::new(), held(1, &[1]));
    bench.tell(1, &[(1, 300)]);
    bench.cut(&held);
    let none = BTreeSet::new();
    bench.leader.dropped();
    let Ok(cut) = bench.leader.cut(&held, &none, &none);
    let mut bytes = vec![0x92, 0x93, 8, 0x91, 0x94, 0xc4, 16];
    bytes.extend([b'l'; 16]);
    bytes.extend([
        1, 0xcd, 0x01, 0x2b, 0x91, 0x95, 1, 1, 1, 0xcd, 0x01, 0x2b, 1,
    ]);
    bytes.extend([0x90, 0xc4, 0]);
    assert_eq!(cut.map(super::Cut::encode), Some(bytes));
}
