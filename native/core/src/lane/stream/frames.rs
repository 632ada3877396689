//! Heads of what replicas of a stream are sent: the same bytes that Python's codec makes and takes.
//!
//! What is decoded here is encoded as our encoder does it. `None` is no verdict: the frame goes the way of all
//! other messages, which accepts or refuses it.

use crate::lane::head::{Fields, put_array, put_number};
use crate::lane::leader::{LogCut, Run};

/// Number of the message of a primary to a backup.
pub const REPLICATE: u8 = 33;
/// Number of the message that tells a node of cuts.
pub const COMMIT: u8 = 37;

/// What a primary says of the batches behind the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batches {
    /// Their stream.
    pub stream: u64,
    /// The epoch of the primary.
    pub epoch: u64,
    /// First record of the first one.
    pub llsn: u64,
    /// Bytes of each.
    pub sizes: Vec<usize>,
}

impl Batches {
    /// The batches in a payload, if it has just these.
    pub fn split<'a>(&self, payload: &'a [u8]) -> Option<Vec<&'a [u8]>> {
        let mut rest = payload;
        let mut found = Vec::with_capacity(self.sizes.len());
        for size in &self.sizes {
            let (batch, behind) = rest.split_at_checked(*size)?;
            found.push(batch);
            rest = behind;
        }
        rest.is_empty().then_some(found)
    }
}

/// A cut of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut<'a> {
    /// Identity of the log.
    pub log: &'a [u8],
    /// Number of the cut.
    pub version: u64,
    /// Last position of the log with it.
    pub high_watermark: u64,
    /// What it gave.
    pub runs: Vec<Run>,
}

impl Cut<'_> {
    /// Records of all runs.
    pub fn given(&self) -> Option<u64> {
        let mut lengths = self.runs.iter().map(|run| run.length);
        lengths.try_fold(0_u64, u64::checked_add)
    }
}

/// The head of a [`REPLICATE`] for batches of these sizes.
pub fn encode_replicate(
    stream: u64,
    epoch: u64,
    llsn: u64,
    sizes: impl ExactSizeIterator<Item = usize>,
) -> Vec<u8> {
    let mut head = Vec::new();
    put_array(&mut head, 4);
    for value in [stream, epoch, llsn] {
        put_number(&mut head, value);
    }
    put_array(&mut head, sizes.len());
    for size in sizes {
        put_number(&mut head, size as u64);
    }
    head
}

/// What the head of a [`REPLICATE`] says.
pub fn replicate(head: &[u8]) -> Option<Batches> {
    let mut fields = Fields::of(head)?;
    fields.is_array_of(4)?;
    let (stream, epoch, llsn) = (fields.number()?, fields.number()?, fields.number()?);
    let count = fields.array()?;
    // Each takes a byte at least.
    let mut sizes = Vec::with_capacity(count.min(head.len()));
    for _ in 0..count {
        sizes.push(usize::try_from(fields.number()?).ok()?);
    }
    fields.is_empty().then_some(Batches {
        stream,
        epoch,
        llsn,
        sizes,
    })
}

/// The head of a [`COMMIT`] with these cuts, in the order of their logs and versions.
pub fn encode_commit(cuts: &[&LogCut]) -> Vec<u8> {
    let mut head = Vec::new();
    put_array(&mut head, 1);
    put_array(&mut head, cuts.len());
    for cut in cuts {
        cut.put(&mut head);
    }
    head
}

/// The cuts that the head of a [`COMMIT`] has, in their order.
pub fn commits(head: &[u8]) -> Option<Vec<Cut<'_>>> {
    let mut fields = Fields::of(head)?;
    fields.is_array_of(1)?;
    let count = fields.array()?;
    let mut cuts = Vec::with_capacity(count.min(head.len()));
    for _ in 0..count {
        fields.is_array_of(4)?;
        let (log, version, high_watermark) = (fields.bytes()?, fields.number()?, fields.number()?);
        let count = fields.array()?;
        let mut runs = Vec::with_capacity(count.min(head.len()));
        for _ in 0..count {
            fields.is_array_of(5)?;
            runs.push(Run {
                stream: fields.number()?,
                llsn: fields.number()?,
                glsn: fields.number()?,
                length: fields.number()?,
                epoch: fields.number()?,
            });
        }
        cuts.push(Cut {
            log,
            version,
            high_watermark,
            runs,
        });
    }
    let rises = |pair: &[Cut<'_>]| pair[0].log != pair[1].log || pair[0].version < pair[1].version;
    (fields.is_empty() && cuts.windows(2).all(rises)).then_some(cuts)
}
