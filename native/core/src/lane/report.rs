//! Head of what a node tells the leader of its replicas: the bytes that Python's codec makes and takes.

use super::head::{Fields, put_array, put_number, put_truth};
use super::leader::{Node, Told};

/// Number of the message.
pub const REPORT: u8 = 36;

/// What a node says of itself and its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The node.
    pub node: u64,
    /// Its start, and the number of the report.
    pub head: Node,
    /// Replicas, each with its stream.
    pub streams: Vec<(u64, Told)>,
    /// How long its syncs take and usually take, in microseconds.
    pub syncs: (u64, u64),
}

impl Report {
    /// The head.
    pub fn encode(&self) -> Vec<u8> {
        let mut head = Vec::new();
        put_array(&mut head, 8);
        for value in [self.node, self.head.incarnation, self.head.number] {
            put_number(&mut head, value);
        }
        put_truth(&mut head, self.head.full);
        put_array(&mut head, self.streams.len());
        for (stream, told) in &self.streams {
            put_array(&mut head, 7);
            let ends = [told.epoch, told.version, told.committed, told.end];
            put_number(&mut head, *stream);
            for value in ends {
                put_number(&mut head, value);
            }
            put_number(&mut head, told.state);
            put_truth(&mut head, told.damaged);
        }
        for value in [self.head.features, self.syncs.0, self.syncs.1] {
            put_number(&mut head, value);
        }
        head
    }

    /// What a head says; `None` is no verdict.
    pub fn decode(head: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(head)?;
        fields.is_array_of(8)?;
        let (node, incarnation, number) = (fields.number()?, fields.number()?, fields.number()?);
        let full = fields.truth()?;
        let count = fields.array()?;
        // Each takes eight bytes at least.
        let mut streams = Vec::with_capacity(count.min(head.len() / 8));
        for _ in 0..count {
            fields.is_array_of(7)?;
            let stream = fields.number()?;
            streams.push((
                stream,
                Told {
                    epoch: fields.number()?,
                    version: fields.number()?,
                    committed: fields.number()?,
                    end: fields.number()?,
                    state: fields.number()?,
                    damaged: fields.truth()?,
                },
            ));
        }
        let head = Node {
            incarnation,
            number,
            full,
            features: fields.number()?,
        };
        let syncs = (fields.number()?, fields.number()?);
        fields.is_empty().then_some(Self {
            node,
            head,
            streams,
            syncs,
        })
    }
}
