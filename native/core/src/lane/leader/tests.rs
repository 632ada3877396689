use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use super::{End, Leader, Metadata, Node, Stream, Told};

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
fn a_cut_is_proposed_once() {
    let (mut bench, held) = (Bench::new(), held(1, &[1]));
    bench.tell(1, &[(1, 3)]);
    assert!(!bench.leader.proposed(7));
    bench.cut(&held);
    assert!(bench.leader.proposed(7));
    assert!(!bench.leader.proposed(8));
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
    bench.leader.proposed(7);
    bench.tell(1, &[(1, 5)]);
    assert_eq!(bench.cut(&held), [(1, 3, 3, 2)]);
}

#[test]
fn after_a_refusal_nothing_is_made_until_all_are_back() {
    let (mut bench, held) = (Bench::new(), held(1, &[1]));
    for index in [7, 8] {
        bench.tell(1, &[(1, index)]);
        bench.cut(&held);
        bench.leader.proposed(index);
    }
    assert_eq!(bench.leader.settled(6, true), None);
    assert_eq!(bench.leader.settled(7, true), Some(vec![vec![b'l'; 16]]));
    bench.tell(1, &[(1, 9)]);
    assert!(bench.cut(&held).is_empty());
    assert!(bench.leader.settled(8, true).is_some());
    assert_eq!(bench.cut(&held), [(1, 1, 1, 8)]);
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
