//! Heads of what replicas of a stream are sent: the same bytes that Python's codec makes and takes.
//!
//! What is decoded here is encoded as our encoder does it. `None` is no verdict: the frame goes the way of all
//! other messages, which accepts or refuses it.

use crate::lane::leader::Run;
use crate::wire::number;

/// Number of the message of a primary to a backup.
pub const REPLICATE: u8 = 33;
/// Number of the message that tells a node of cuts.
pub const COMMIT: u8 = 37;

/// Longer heads are cold.
const HEAD_BYTES_MAX: usize = 64 << 10;

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
    fields.0.is_empty().then_some(Batches {
        stream,
        epoch,
        llsn,
        sizes,
    })
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
    (fields.0.is_empty() && cuts.windows(2).all(rises)).then_some(cuts)
}

/// Takes `MessagePack` values off the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// A head that is short: what is decoded takes many times its bytes.
    fn of(head: &'a [u8]) -> Option<Self> {
        (head.len() <= HEAD_BYTES_MAX).then_some(Self(head))
    }

    fn number(&mut self) -> Option<u64> {
        let (value, rest) = number(self.0)?;
        self.0 = rest;
        Some(value)
    }

    fn array(&mut self) -> Option<usize> {
        let (first, rest) = self.0.split_first()?;
        let (count, rest) = match first {
            0x90..=0x9f => (u32::from(first & 0xf), rest),
            0xdc => {
                let (digits, rest) = rest.split_first_chunk()?;
                (u32::from(u16::from_be_bytes(*digits)), rest)
            }
            0xdd => {
                let (digits, rest) = rest.split_first_chunk()?;
                (u32::from_be_bytes(*digits), rest)
            }
            _ => return None,
        };
        self.0 = rest;
        usize::try_from(count).ok()
    }

    fn is_array_of(&mut self, count: usize) -> Option<()> {
        (self.array()? == count).then_some(())
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        // Identities are short.
        let (mark, rest) = self.0.split_first_chunk::<2>()?;
        let (value, rest) = rest.split_at_checked(usize::from(mark[1]))?;
        self.0 = rest;
        (mark[0] == 0xc4).then_some(value)
    }
}
