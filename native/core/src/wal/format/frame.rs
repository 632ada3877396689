//! Frames: what a segment is made of.
//!
//! # Layout
//!
//! ```text
//! 0   u32 length of the frame (header, payload, padding), a multiple of 8
//! 4   u32 CRC32C of bytes 0..4, 8..48 and the first `head` payload bytes, seeded
//! 8   u8  kind    9 u8 flags    10 u16 padding bytes at the end
//! 12  u32 head: payload bytes under this checksum
//! 16  u32 stream
//! 20  u32 count of records
//! 24  u64 epoch
//! 32  u64 first LLSN
//! 40  u32 durable: offset below which the segment was durable when the frame was built
//! 44  u32 ordinal of the frame in its segment
//! 48  payload
//! ```
//!
//! # Invariants
//!
//! - The checksum is seeded with (salt, segment number, offset): bytes of an earlier lap, of another
//!   segment, or a copy of the log stored inside a record never pass.
//! - Only batches have payload outside `head`; their head carries the checksums of the rest.
//! - Kind numbers are stored and never reused.

use crate::error::{Error, Result};
use crate::limits::BATCH_BYTES_MAX;

/// Bytes of a frame header.
pub const FRAME_HEADER: usize = 48;

/// Frames begin on multiples of this.
pub const FRAME_ALIGN: usize = 8;

/// Largest frame: the largest batch, its header and padding.
pub const FRAME_BYTES_MAX: usize = BATCH_BYTES_MAX + FRAME_HEADER + FRAME_ALIGN;

/// What a frame holds. Stored: never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A record batch of one stream at its LLSN.
    Batch = 1,
    /// A record batch the cleaner copied forward; the LLSN is the original one.
    Moved = 2,
    /// A commit: positions of the stream became part of the total order.
    Commit = 3,
    /// The tail of a stream from this LLSN on never happened.
    Rollback = 4,
    /// The head of a stream below this LLSN may go.
    Trim = 5,
    /// A change of the catalog: a log created, altered, deleted.
    Catalog = 6,
    /// A cursor moved, created or deleted.
    Cursor = 7,
    /// State at the head of a segment.
    Preamble = 8,
    /// The store was closed in good order; nothing follows in flight.
    Close = 9,
    /// The stream entered a new epoch.
    Epoch = 10,
    /// Commit runs of batches the cleaner copied forward.
    MovedRuns = 11,
    /// A stream joined the order of its log, or left it.
    Order = 12,
}

impl Kind {
    /// The kind with this stored number.
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Batch,
            2 => Self::Moved,
            3 => Self::Commit,
            4 => Self::Rollback,
            5 => Self::Trim,
            6 => Self::Catalog,
            7 => Self::Cursor,
            8 => Self::Preamble,
            9 => Self::Close,
            10 => Self::Epoch,
            11 => Self::MovedRuns,
            12 => Self::Order,
            _ => return None,
        })
    }

    /// Whether frames of this kind carry records.
    pub fn is_data(self) -> bool {
        matches!(self, Self::Batch | Self::Moved)
    }

    /// Lower-case name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Moved => "moved",
            Self::Commit => "commit",
            Self::Rollback => "rollback",
            Self::Trim => "trim",
            Self::Catalog => "catalog",
            Self::Cursor => "cursor",
            Self::Preamble => "preamble",
            Self::Close => "close",
            Self::Epoch => "epoch",
            Self::MovedRuns => "moved-runs",
            Self::Order => "order",
        }
    }
}

/// Where a segment's checksums get their seed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed {
    /// Random per lap of a slot.
    pub salt: u64,
    /// Segment number.
    pub segment: u64,
}

impl Seed {
    /// Checksum state for a frame at `offset`.
    fn at(self, offset: u32) -> u32 {
        let mut bytes = [0u8; 20];
        bytes[..8].copy_from_slice(&self.salt.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.segment.to_le_bytes());
        bytes[16..].copy_from_slice(&offset.to_le_bytes());
        crc32c::crc32c(&bytes)
    }
}

/// A frame's header without its derived fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the payload is.
    pub kind: Kind,
    /// Kind-specific bits; [`FLAG_MORE`] on preambles.
    pub flags: u8,
    /// Stream, 0 for none.
    pub stream: u32,
    /// Records of the batch that count; the batch may hold more if a rollback cut it before it was moved.
    pub count: u32,
    /// Epoch of the stream.
    pub epoch: u64,
    /// First LLSN.
    pub llsn: u64,
    /// Offset below which the segment was durable when this frame was built.
    pub durable: u32,
    /// Number of the frame in its segment.
    pub ordinal: u32,
}

/// On a preamble frame: another preamble frame follows.
pub const FLAG_MORE: u8 = 1;

/// A decoded header with the frame's extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The fields.
    pub header: FrameHeader,
    /// Offset in the segment.
    pub offset: u32,
    /// Bytes of the whole frame.
    pub length: u32,
    /// Bytes of the payload.
    pub payload: u32,
    /// Payload bytes under the frame's checksum.
    pub head: u32,
}

impl Frame {
    /// First byte behind the frame.
    pub fn end(&self) -> u32 {
        self.offset + self.length
    }
}

/// Bytes a frame takes for a payload of this length.
pub fn frame_len(payload: usize) -> usize {
    (FRAME_HEADER + payload).next_multiple_of(FRAME_ALIGN)
}

fn checksum(seed: Seed, offset: u32, bytes: &[u8], head: usize) -> u32 {
    let crc = crc32c::crc32c_append(seed.at(offset), &bytes[..4]);
    crc32c::crc32c_append(crc, &bytes[8..FRAME_HEADER + head])
}

/// Fill in the header of a frame whose payload already stands at `frame[FRAME_HEADER..]`, padding
/// included. `payload` is the unpadded payload length, `head` how much of it the checksum covers.
pub fn seal(
    frame: &mut [u8],
    header: &FrameHeader,
    seed: Seed,
    offset: u32,
    payload: usize,
    head: usize,
) {
    let length = frame.len();
    let padding = length - FRAME_HEADER - payload;
    frame[0..4].copy_from_slice(&(length as u32).to_le_bytes());
    frame[8] = header.kind as u8;
    frame[9] = header.flags;
    frame[10..12].copy_from_slice(&(padding as u16).to_le_bytes());
    frame[12..16].copy_from_slice(&(head as u32).to_le_bytes());
    frame[16..20].copy_from_slice(&header.stream.to_le_bytes());
    frame[20..24].copy_from_slice(&header.count.to_le_bytes());
    frame[24..32].copy_from_slice(&header.epoch.to_le_bytes());
    frame[32..40].copy_from_slice(&header.llsn.to_le_bytes());
    frame[40..44].copy_from_slice(&header.durable.to_le_bytes());
    frame[44..48].copy_from_slice(&header.ordinal.to_le_bytes());
    let crc = checksum(seed, offset, frame, head);
    frame[4..8].copy_from_slice(&crc.to_le_bytes());
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

/// Whether the bytes at a frame boundary could begin a frame at all. Cheap: no checksum.
pub fn plausible(bytes: &[u8]) -> bool {
    bytes.len() >= FRAME_HEADER && {
        let length = word(bytes, 0) as usize;
        let padding = usize::from(bytes[10]) | usize::from(bytes[11]) << 8;
        let head = word(bytes, 12) as usize;
        length >= FRAME_HEADER
            && length.is_multiple_of(FRAME_ALIGN)
            && length <= FRAME_BYTES_MAX
            && padding < FRAME_ALIGN
            && head + padding + FRAME_HEADER <= length
            && Kind::from_number(bytes[8]).is_some()
    }
}

/// Bytes needed from the start of a frame to check it: header and head, or only the header if
/// nothing more is known yet.
pub fn bytes_to_check(bytes: &[u8]) -> usize {
    if plausible(bytes) {
        FRAME_HEADER + word(bytes, 12) as usize
    } else {
        FRAME_HEADER
    }
}

/// The fields of a header that no checksum vouches for.
pub fn peek(bytes: &[u8]) -> Option<FrameHeader> {
    if !plausible(bytes) {
        return None;
    }
    Some(FrameHeader {
        kind: Kind::from_number(bytes[8])?,
        flags: bytes[9],
        stream: word(bytes, 16),
        count: word(bytes, 20),
        epoch: long(bytes, 24),
        llsn: long(bytes, 32),
        durable: word(bytes, 40),
        ordinal: word(bytes, 44),
    })
}

/// Payload bytes of a plausible header.
pub fn extent(bytes: &[u8]) -> usize {
    let padding = usize::from(bytes[10]) | usize::from(bytes[11]) << 8;
    (word(bytes, 0) as usize).saturating_sub(FRAME_HEADER + padding)
}

/// Decode and check the frame at `offset`, of which `bytes` holds at least header and head.
///
/// `Err(Malformed)` says why there is no frame; the caller decides whether that is a torn tail or
/// corruption.
pub fn parse(bytes: &[u8], seed: Seed, offset: u32) -> Result<Frame> {
    let refuse = |reason: &str| Error::malformed("frame", u64::from(offset), reason);
    if bytes.len() < FRAME_HEADER {
        return Err(refuse("header is cut short"));
    }
    if !plausible(bytes) {
        return Err(refuse("not a frame header"));
    }
    let length = word(bytes, 0);
    let head = word(bytes, 12);
    if bytes.len() < FRAME_HEADER + head as usize {
        return Err(refuse("head is cut short"));
    }
    if checksum(seed, offset, bytes, head as usize) != word(bytes, 4) {
        return Err(refuse("checksum does not match"));
    }
    let header = peek(bytes).ok_or_else(|| refuse("not a frame header"))?;
    let payload = extent(bytes) as u32;
    if !matches!(header.kind, Kind::Batch | Kind::Moved) && head != payload {
        return Err(refuse("only batches have bytes outside the head"));
    }
    Ok(Frame {
        header,
        offset,
        length,
        payload,
        head,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Seed = Seed {
        salt: 0x1234_5678_9abc_def0,
        segment: 7,
    };

    fn sample(payload: &[u8], offset: u32) -> Vec<u8> {
        let mut frame = vec![0; frame_len(payload.len())];
        frame[FRAME_HEADER..FRAME_HEADER + payload.len()].copy_from_slice(payload);
        let header = FrameHeader {
            kind: Kind::Catalog,
            flags: 0,
            stream: 3,
            count: 0,
            epoch: 9,
            llsn: 11,
            durable: 4096,
            ordinal: 5,
        };
        seal(
            &mut frame,
            &header,
            SEED,
            offset,
            payload.len(),
            payload.len(),
        );
        frame
    }

    #[test]
    fn round_trip() {
        let bytes = sample(b"hello", 4096);
        let frame = parse(&bytes, SEED, 4096).unwrap();
        assert_eq!(frame.length as usize, bytes.len());
        assert_eq!(frame.payload, 5);
        assert_eq!(frame.header.stream, 3);
        assert_eq!(frame.header.ordinal, 5);
    }

    #[test]
    fn another_lap_segment_or_offset_never_passes() {
        let bytes = sample(b"hello", 4096);
        assert!(parse(&bytes, Seed { salt: 1, ..SEED }, 4096).is_err());
        assert!(parse(&bytes, Seed { segment: 8, ..SEED }, 4096).is_err());
        assert!(parse(&bytes, SEED, 4104).is_err());
    }

    #[test]
    fn every_bit_flip_is_refused_but_padding() {
        let bytes = sample(b"hello", 4096);
        for bit in 0..(FRAME_HEADER + 5) * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&damaged, SEED, 4096).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn every_truncation_is_refused() {
        let bytes = sample(b"hello", 4096);
        for len in 0..FRAME_HEADER + 5 {
            assert!(parse(&bytes[..len], SEED, 4096).is_err(), "length {len}");
        }
    }
}
