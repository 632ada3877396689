//! Side file of a sealed segment: its number index, checksummed.
//!
//! Little-endian, fixed width but for the samples, nothing behind the last array.
//!
//! ```text
//!  0  u32  magic "BRIX"
//!  4  u32  format version (2)
//!  8  u64  segment number
//! 16  u64  salt of the segment
//! 24  u64  sealed bytes: end of the segment's last frame
//! 32  u32  stream entries
//! 36  u32  bytes of the samples
//! 40  u32  commit runs
//! 44  u32  cuts
//! 48  u32  body checksum: CRC32C of everything behind the entries
//! 52  u32  head checksum: CRC32C of bytes 0..52 and of the entries
//! 56  stream entries of 112 bytes, ascending by (stream, lane)
//! ..  samples, varints:  see `samples.rs`
//! ..  commit runs, 24:   u64 first GLSN, u64 first LLSN, u64 length
//! ..  cuts, 16:          u64 from, u32 offset, u32 zero
//! ```
//!
//! Each array holds its elements stream by stream in the order of the entries, so an entry gives
//! only counts and every place follows from what is before it. The head has a checksum of its
//! own: listing thousands of files reads and verifies heads alone ([`decode_summary`]).

mod arrays;
mod entry;
mod samples;

use std::ops::Range;

use super::segment::SegmentIndex;
use super::stream::{Position, StreamIndex};
use crate::error::{Error, Result};
use entry::{ENTRY_BYTES, Entry};

const MAGIC: u32 = u32::from_le_bytes(*b"BRIX");
const VERSION: u32 = 2;
const WHAT: &str = "index side file";

/// Bytes before the stream entries.
pub const HEADER_BYTES: usize = 56;

/// What a side file says of its segment. The caller compares it with what it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideHeader {
    /// Segment number.
    pub segment: u64,
    /// Salt of the segment.
    pub salt: u64,
    /// End of the last frame of the segment.
    pub sealed_bytes: u64,
    /// Number of stream entries.
    pub streams: u32,
    /// Length of the whole side file.
    pub file_bytes: u64,
}

/// What the head of a side file says of one stream: enough to find the segment that a number, a
/// GLSN or a time is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSummary {
    /// The stream.
    pub stream: u32,
    /// [`NATIVE`](super::NATIVE), or a lane of frames that the cleaner copied forward.
    pub lane: u32,
    /// See [`StreamIndex::range`].
    pub range: Option<Range<u64>>,
    /// See [`StreamIndex::first`].
    pub first: Option<Position>,
    /// See [`StreamIndex::last`].
    pub last: Option<Position>,
    /// From the first to behind the last GLSN of the commit runs; other streams' lie between.
    pub glsns: Option<Range<u64>>,
    /// See [`StreamIndex::frames`].
    pub frames: u64,
    /// See [`StreamIndex::bytes`].
    pub bytes: u64,
    /// See [`StreamIndex::timestamps`].
    pub timestamps: Option<(i64, i64)>,
}

impl SegmentIndex {
    /// What the head of the side file would say of each stream.
    pub fn summaries(&self) -> Vec<StreamSummary> {
        let entries = self.streams.iter();
        entries
            .map(|((stream, lane), index)| Entry::of(*stream, *lane, index).summary())
            .collect()
    }

    /// Encode as the side file of a segment whose last frame ends at `sealed_bytes`.
    pub fn encode(&self, segment: u64, salt: u64, sealed_bytes: u64) -> Vec<u8> {
        let entries: Vec<Entry> = self
            .streams
            .iter()
            .map(|((stream, lane), index)| Entry::of(*stream, *lane, index))
            .collect();
        let mut sampled = Vec::new();
        for index in self.streams.values() {
            samples::put(&index.samples, &mut sampled);
        }
        let totals = Totals::of(&entries, sampled.len() as u64);
        let mut out = Vec::with_capacity(totals.file_bytes(entries.len() as u64) as usize);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&segment.to_le_bytes());
        out.extend_from_slice(&salt.to_le_bytes());
        out.extend_from_slice(&sealed_bytes.to_le_bytes());
        // A segment has less than 2^32 bytes, so it cannot hold 2^32 of anything, and a sample
        // takes less than its frame.
        for count in [
            entries.len() as u64,
            totals.samples_bytes,
            totals.runs,
            totals.cuts,
        ] {
            out.extend_from_slice(&(count as u32).to_le_bytes());
        }
        out.extend_from_slice(&[0; 8]);
        for entry in &entries {
            entry.put(&mut out);
        }
        let head = out.len();
        out.extend_from_slice(&sampled);
        arrays::put(self.streams.values(), &mut out);

        let body_crc = crc32c::crc32c(&out[head..]);
        out[48..52].copy_from_slice(&body_crc.to_le_bytes());
        let head_crc = head_checksum(&out[..head]);
        out[52..56].copy_from_slice(&head_crc.to_le_bytes());
        out
    }
}

/// Decode a side file. `Malformed` for anything that [`SegmentIndex::encode`] cannot have
/// written; allocates no more than a small multiple of the input.
pub fn decode(bytes: &[u8]) -> Result<(SideHeader, SegmentIndex)> {
    let head = Head::decode(bytes)?;
    if bytes.len() as u64 != head.header.file_bytes {
        let reason = format!(
            "{} bytes, should be {}",
            bytes.len(),
            head.header.file_bytes
        );
        return Err(malformed(bytes.len(), reason));
    }
    let body = &bytes[head.bytes..];
    if crc32c::crc32c(body) != u32_at(bytes, 48) {
        return Err(malformed(head.bytes, "body checksum does not match"));
    }
    let mut places = arrays::Places::new(body, &head.totals);
    let mut index = SegmentIndex::new();
    for (at, entry) in head.entries.iter().enumerate() {
        let key = (entry.stream, entry.lane);
        let stream: StreamIndex = places
            .take(entry)
            .map_err(|reason| malformed(HEADER_BYTES + at * ENTRY_BYTES, reason))?;
        index.streams.insert(key, stream);
    }
    if places.left() > 0 {
        return Err(malformed(head.bytes, "more bytes than samples"));
    }
    Ok((head.header, index))
}

/// Decode the head of a side file; `bytes` is the file or a prefix of [`summary_bytes`].
/// The samples, runs and cuts are neither needed nor verified.
pub fn decode_summary(bytes: &[u8]) -> Result<(SideHeader, Vec<StreamSummary>)> {
    let head = Head::decode(bytes)?;
    Ok((
        head.header,
        head.entries.iter().map(Entry::summary).collect(),
    ))
}

/// How long a prefix [`decode_summary`] needs, from the first [`HEADER_BYTES`] of the file.
/// Nothing is verified yet: bound it by the length of the file.
pub fn summary_bytes(bytes: &[u8]) -> Result<u64> {
    if bytes.len() < HEADER_BYTES {
        return Err(malformed(bytes.len(), "shorter than its header"));
    }
    if u32_at(bytes, 0) != MAGIC {
        return Err(malformed(0, "wrong magic"));
    }
    let version = u32_at(bytes, 4);
    if version != VERSION {
        return Err(malformed(
            4,
            format!("version {version}, this build reads {VERSION}"),
        ));
    }
    Ok(HEADER_BYTES as u64 + u64::from(u32_at(bytes, 32)) * ENTRY_BYTES as u64)
}

/// A verified head.
struct Head {
    header: SideHeader,
    entries: Vec<Entry>,
    totals: Totals,
    /// Where the body begins.
    bytes: usize,
}

impl Head {
    fn decode(bytes: &[u8]) -> Result<Self> {
        let head = summary_bytes(bytes)?;
        let head = usize::try_from(head)
            .ok()
            .filter(|head| *head <= bytes.len())
            .ok_or_else(|| malformed(bytes.len(), "shorter than its stream entries"))?;
        if head_checksum(&bytes[..head]) != u32_at(bytes, 52) {
            return Err(malformed(52, "head checksum does not match"));
        }
        let sealed_bytes = u64_at(bytes, 24);
        let mut entries: Vec<Entry> = Vec::with_capacity((head - HEADER_BYTES) / ENTRY_BYTES);
        for (at, entry) in bytes[HEADER_BYTES..head]
            .chunks_exact(ENTRY_BYTES)
            .enumerate()
        {
            let entry = Entry::take(entry, sealed_bytes)
                .and_then(|entry| match entries.last() {
                    Some(last) if (last.stream, last.lane) >= (entry.stream, entry.lane) => {
                        Err("streams out of order")
                    }
                    _ => Ok(entry),
                })
                .map_err(|reason| malformed(HEADER_BYTES + at * ENTRY_BYTES, reason))?;
            entries.push(entry);
        }
        let [samples_bytes, runs, cuts] = [36, 40, 44].map(|at| u64::from(u32_at(bytes, at)));
        let totals = Totals::of(&entries, samples_bytes);
        if [runs, cuts] != [totals.runs, totals.cuts] {
            return Err(malformed(40, "totals do not match the stream entries"));
        }
        let header = SideHeader {
            segment: u64_at(bytes, 8),
            salt: u64_at(bytes, 16),
            sealed_bytes,
            streams: u32_at(bytes, 32),
            file_bytes: totals.file_bytes(entries.len() as u64),
        };
        Ok(Self {
            header,
            entries,
            totals,
            bytes: head,
        })
    }
}

/// What each array has over all streams. Sums of 32-bit counts: they cannot overflow.
struct Totals {
    /// Samples have no fixed size, so the entries do not say how long they are.
    samples_bytes: u64,
    runs: u64,
    cuts: u64,
}

impl Totals {
    fn of(entries: &[Entry], samples_bytes: u64) -> Self {
        let sum = |count: fn(&Entry) -> u32| entries.iter().map(|e| u64::from(count(e))).sum();
        Self {
            samples_bytes,
            runs: sum(|e| e.runs),
            cuts: sum(|e| e.cuts),
        }
    }

    fn file_bytes(&self, streams: u64) -> u64 {
        HEADER_BYTES as u64
            + streams * ENTRY_BYTES as u64
            + self.samples_bytes
            + self.runs * arrays::RUN as u64
            + self.cuts * arrays::CUT as u64
    }
}

/// CRC32C of the header without its last field, and of the entries.
fn head_checksum(head: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&head[..52]), &head[HEADER_BYTES..])
}

fn malformed(offset: usize, reason: impl Into<String>) -> Error {
    Error::malformed(WHAT, offset as u64, reason)
}

/// Little-endian integer at `at`; the caller has checked the length.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(raw)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}
