//! What the nodes said last.

use std::collections::{BTreeMap, BTreeSet};

/// States in which what a replica reports can be relied on for a cut: it runs, is sealed, or catches up.
const COUNTED: [u64; 3] = [2, 3, 7];

/// What one replica holds on its disk, as it was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The epoch that it has entered.
    pub epoch: u64,
    /// The last cut whose commit is durable there.
    pub version: u64,
    /// First record that is not committed there.
    pub committed: u64,
    /// First record that is not durable there.
    pub end: u64,
    /// Number of its state.
    pub state: u64,
    /// Whether some of its records cannot be read.
    pub damaged: bool,
}

impl Told {
    /// How far it holds a stream that is in `epoch`; `None` if it does not count.
    pub fn end_in(&self, epoch: u64) -> Option<u64> {
        (self.epoch == epoch && COUNTED.contains(&self.state)).then_some(self.end)
    }

    /// What tells more than that a replica has gone on.
    fn standing(&self) -> (u64, u64, bool) {
        (self.epoch, self.state, self.damaged)
    }
}

/// What a node said last of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Number of its start.
    pub incarnation: u64,
    /// Number of the report.
    pub number: u64,
    /// Whether all of its replicas are known.
    pub full: bool,
    /// What its version knows.
    pub features: u64,
}

/// What a report changes.
pub struct News {
    /// Whether a replica is in another standing than before, new, or gone.
    pub stirred: bool,
    /// The streams of which something is new: a heartbeat that repeats what is known lets nothing be committed.
    pub fresh: Vec<u64>,
}

struct Known<T> {
    /// Nodes are listed in the order in which they were heard first.
    order: u64,
    node: Node,
    streams: BTreeMap<u64, (Told, T)>,
}

/// The latest report of each node.
pub struct Reports<T> {
    nodes: BTreeMap<u64, Known<T>>,
    heard: u64,
}

impl<T> Default for Reports<T> {
    fn default() -> Self {
        Self {
            nodes: BTreeMap::new(),
            heard: 0,
        }
    }
}

impl<T> Reports<T> {
    /// Note a report; `None` if it is older than what is known.
    pub fn take(
        &mut self,
        node: u64,
        mut head: Node,
        streams: Vec<(u64, Told, T)>,
    ) -> Option<News> {
        let order = self.heard;
        let known = self.nodes.entry(node).or_insert_with(|| Known {
            order,
            node: Node {
                full: false,
                ..head
            },
            streams: BTreeMap::new(),
        });
        if known.order == order {
            self.heard += 1;
        } else if known.node.incarnation < head.incarnation {
            known.node.full = false;
            known.streams.clear();
        } else if known.node.incarnation > head.incarnation || known.node.number >= head.number {
            return None;
        }
        let before = if head.full {
            std::mem::take(&mut known.streams)
        } else {
            BTreeMap::new()
        };
        head.full |= known.node.full;
        known.node = head;
        let mut news = News {
            stirred: false,
            fresh: Vec::new(),
        };
        for (stream, told, object) in streams {
            let replaced = known.streams.insert(stream, (told, object));
            // One that is full replaces what was known before it, one that is not what is known now.
            let replaced = replaced.as_ref().filter(|_| before.is_empty());
            let last = before.get(&stream).or(replaced).map(|(last, _)| last);
            news.stirred |= last.is_none_or(|last| last.standing() != told.standing());
            if last != Some(&told) {
                news.fresh.push(stream);
            }
        }
        // A full report may lack what the one before had.
        news.stirred |= before
            .keys()
            .any(|stream| !known.streams.contains_key(stream));
        Some(news)
    }

    /// Drop what other nodes than these have said.
    pub fn keep(&mut self, known: &BTreeSet<u64>) {
        self.nodes.retain(|node, _| known.contains(node));
    }

    /// The nodes that were heard, in the order in which they were heard first.
    pub fn nodes(&self) -> Vec<(u64, Node)> {
        let mut nodes: Vec<_> = self.nodes.iter().collect();
        nodes.sort_by_key(|(_, known)| known.order);
        nodes
            .into_iter()
            .map(|(id, known)| (*id, known.node))
            .collect()
    }

    /// What a node said of itself.
    pub fn node(&self, node: u64) -> Option<Node> {
        self.nodes.get(&node).map(|known| known.node)
    }

    /// What a node said of its replicas.
    pub fn streams(&self, node: u64) -> impl Iterator<Item = (u64, &T)> {
        let known = self.nodes.get(&node).into_iter();
        known.flat_map(|known| {
            known
                .streams
                .iter()
                .map(|(number, (_, object))| (*number, object))
        })
    }

    /// What a node said of one replica, as it was given.
    pub fn report(&self, node: u64, stream: u64) -> Option<&T> {
        Some(&self.nodes.get(&node)?.streams.get(&stream)?.1)
    }

    /// What a node said of one replica.
    pub fn told(&self, node: u64, stream: u64) -> Option<&Told> {
        Some(&self.nodes.get(&node)?.streams.get(&stream)?.0)
    }

    /// How far a node holds a stream that is in `epoch`; `None` if it does not count.
    pub fn end(&self, node: u64, stream: u64, epoch: u64) -> Option<u64> {
        self.told(node, stream)?.end_in(epoch)
    }
}
