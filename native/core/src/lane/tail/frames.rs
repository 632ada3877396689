//! Bytes of an append and of its answer, as Python's codec of the group has them.
//!
//! ```text
//! 0   u8   version (1)          little-endian, no padding
//! 1   u8   kind: 5 an append, 6 its answer
//! 2   u16  zero
//! 4   u32  CRC-32 of bytes 0..4 and of everything behind byte 8
//! 8   u64  sender, receiver, term, epoch of the sender's membership
//! 40  an append:  u64 previous index, its term, commit index; u32 count, and so many entries of
//!                 u64 index, u64 term, u8 kind, u32 length, data
//!     an answer:  u8 rejected; u64 index, hint index, hint term
//! ```
//!
//! What is hot is decided here, on the cheapest fields first: bytes that are no frame at all are cold as well, and
//! the owner says what is wrong with them.

use super::{Entry, PLAIN, Steady};
use crate::crc32;

const VERSION: u8 = 1;
const APPEND: u8 = 5;
const ANSWER: u8 = 6;
const HEADER: usize = 8;
/// Bytes of an append before its entries, of an entry before its data, and of an answer.
const APPEND_HEAD: usize = HEADER + 7 * 8 + 4;
const ENTRY_HEAD: usize = 8 + 8 + 1 + 4;
const ANSWER_BYTES: usize = HEADER + 4 * 8 + 1 + 3 * 8;

/// What an append says beside its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heading {
    /// The leader.
    pub sender: u64,
    /// The follower.
    pub receiver: u64,
    /// Term of the leader.
    pub term: u64,
    /// Epoch of its membership.
    pub epoch: u64,
    /// Index of the entry before the first one.
    pub previous: u64,
    /// Term of that entry.
    pub previous_term: u64,
    /// Up to where the leader's log is committed.
    pub commit: u64,
}

/// An acceptance: the log equals the leader's up to an index, durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The follower.
    pub sender: u64,
    /// The leader.
    pub receiver: u64,
    /// Term of the follower.
    pub term: u64,
    /// Epoch of its membership.
    pub epoch: u64,
    /// Up to where the logs are equal.
    pub index: u64,
}

/// An append that continues the log.
pub(super) struct HotAppend<'a> {
    pub(super) commit: u64,
    pub(super) entries: Vec<&'a [u8]>,
}

/// The bytes of an append with the entries that follow `heading.previous`, whose data `bytes` shows.
pub fn encode_append<'a, D: 'a>(
    heading: &Heading,
    entries: impl ExactSizeIterator<Item = &'a Entry<D>> + Clone,
    bytes: impl Fn(&'a D) -> &'a [u8],
) -> Vec<u8> {
    let sizes = entries.clone().map(|each| each.size as usize + ENTRY_HEAD);
    let mut out = begin(APPEND, APPEND_HEAD + sizes.sum::<usize>());
    for number in [
        heading.sender,
        heading.receiver,
        heading.term,
        heading.epoch,
        heading.previous,
        heading.previous_term,
        heading.commit,
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    for (index, entry) in (heading.previous + 1..).zip(entries) {
        let data = bytes(&entry.data);
        out.extend_from_slice(&index.to_le_bytes());
        out.extend_from_slice(&entry.term.to_le_bytes());
        out.push(entry.kind);
        out.extend_from_slice(&(data.len() as u32).to_le_bytes());
        out.extend_from_slice(data);
    }
    sealed(out)
}

/// The bytes of an acceptance.
pub fn encode_answer(answer: &Answer) -> Vec<u8> {
    let mut out = begin(ANSWER, ANSWER_BYTES);
    for number in [answer.sender, answer.receiver, answer.term, answer.epoch] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.push(0);
    for number in [answer.index, 0, 0] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    sealed(out)
}

/// The append, if it continues the log behind an entry of that index and term.
pub(super) fn hot_append<'a>(
    frame: &'a [u8],
    steady: &Steady,
    behind: (u64, u64),
) -> Option<HotAppend<'a>> {
    let mut fields = Fields(header(frame, APPEND)?);
    let of_the_leader = fields.number()? == steady.leader
        && steady.leader != 0
        && steady.leader != steady.id
        && fields.number()? == steady.id
        && fields.number()? == steady.term;
    if !of_the_leader {
        return None;
    }
    // The epoch of the sender counts for nothing.
    fields.number()?;
    let previous = (fields.number()?, fields.number()?);
    // Index and term are 0 together, or the frame contradicts itself.
    if previous != behind || (previous.0 == 0) != (previous.1 == 0) || !is_whole(frame) {
        return None;
    }
    let commit = fields.number()?;
    let count = fields.count()?;
    // A count that the bytes cannot hold ends at the first entry that is missing.
    let mut entries = Vec::with_capacity(count.min(fields.0.len() / ENTRY_HEAD));
    for index in (previous.0 + 1..).take(count) {
        let plain = fields.number()? == index
            && fields.number()? == steady.term
            && fields.take(1)? == [PLAIN];
        if !plain {
            return None;
        }
        let size = fields.count()?;
        entries.push(fields.take(size)?);
    }
    let whole = entries.len() == count && fields.0.is_empty();
    whole.then_some(HotAppend { commit, entries })
}

/// The acceptance of a peer in the own term, if it names nothing beyond the end of the log.
pub(super) fn hot_answer(frame: &[u8], steady: &Steady, last: u64) -> Option<Answer> {
    let mut fields = Fields(header(frame, ANSWER)?);
    let answer = Answer {
        sender: fields.number()?,
        receiver: fields.number()?,
        term: fields.number()?,
        epoch: fields.number()?,
        index: {
            // A rejection goes to the owner.
            if fields.take(1)? != [0] {
                return None;
            }
            fields.number()?
        },
    };
    let hint = fields.number()?;
    fields.number()?;
    let hot = answer.receiver == steady.id
        && answer.term == steady.term
        && answer.index.max(hint) <= last
        && fields.0.is_empty();
    (hot && is_whole(frame)).then_some(answer)
}

fn begin(kind: u8, size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(size);
    out.extend_from_slice(&[VERSION, kind, 0, 0, 0, 0, 0, 0]);
    out
}

fn sealed(mut out: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&out);
    out[4..HEADER].copy_from_slice(&sum.to_le_bytes());
    out
}

/// What is behind the header of a frame of that kind.
fn header(frame: &[u8], kind: u8) -> Option<&[u8]> {
    let (header, rest) = frame.split_first_chunk::<HEADER>()?;
    (header[..4] == [VERSION, kind, 0, 0]).then_some(rest)
}

/// Whether a frame that has a header is as it was sent.
fn is_whole(frame: &[u8]) -> bool {
    frame[4..HEADER] == checksum(frame).to_le_bytes()
}

fn checksum(frame: &[u8]) -> u32 {
    crc32::extend(crc32::crc32(&frame[..4]), &frame[HEADER..])
}

/// Takes values off the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, size: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*taken))
    }

    fn count(&mut self) -> Option<usize> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        usize::try_from(u32::from_le_bytes(*taken)).ok()
    }
}
