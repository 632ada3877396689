//! Bytes of a manifest: header, edit frames, fields. Pure.
//!
//! Little-endian, fixed width.
//!
//! ```text
//! header, 64 bytes; its length and the places of magic, version and checksum never change
//!   0   u32   magic "BRMF"
//!   4   u32   format version (1)
//!   8   u128  object id
//!   24  u128  node id
//!   40  u64   manifest file number, also in the file's name
//!   48  u64   number of the first edit in this file
//!   56  u32   object kind
//!   60  u32   CRC32C of bytes 0..60
//!
//! edit frame
//!   0   u32   length of the frame, these 16 bytes included, <= MANIFEST_EDIT_BYTES_MAX
//!   4   u32   CRC32C of bytes 0..4 and 8..length, seeded with CRC32C(object id, file number)
//!   8   u64   edit number, >= 1
//!   16  ..    fields
//!
//! field
//!   0   u16   tag; bit 15: ignorable by a build that does not know it
//!   2   u32   length of the bytes that follow
//!   6   ..    bytes
//!
//! tags of the manifest itself
//!   1   snapshot: u32 snapshot edits that follow this one; the first field of each
//!   2   close: empty, alone in its edit; nothing follows
//! ```
//!
//! The seed keeps frames of another manifest or of an earlier file, left in recycled blocks, from
//! ever passing as frames of this one.

use std::path::Path;

use super::Identity;
use crate::error::{Error, Result};
use crate::limits::MANIFEST_EDIT_BYTES_MAX;

/// Bytes of the file header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a frame before its fields.
pub const FRAME_HEADER_BYTES: usize = 16;
/// Bytes of a field before its content.
pub const FIELD_HEADER_BYTES: usize = 6;
/// Most bytes of fields in an edit: with the field that marks a snapshot beside them they still
/// make one frame, so that what was committed can be written again.
pub const FIELDS_BYTES_MAX: usize =
    MANIFEST_EDIT_BYTES_MAX - FRAME_HEADER_BYTES - (FIELD_HEADER_BYTES + 4);
/// Format this build writes, and the newest it reads.
pub const FORMAT: u32 = 1;
/// Tag of the field that marks a snapshot edit.
pub const TAG_SNAPSHOT: u16 = 1;
/// Tag of the field that marks the close edit.
pub const TAG_CLOSE: u16 = 2;

const MAGIC: &[u8; 4] = b"BRMF";

/// What a file says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whose manifest it is.
    pub identity: Identity,
    /// Kind of object.
    pub kind: u32,
    /// Number of the file.
    pub file_number: u64,
    /// Number of the first edit.
    pub first_edit: u64,
}

impl Header {
    /// The bytes of the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..4].copy_from_slice(MAGIC);
        out[4..8].copy_from_slice(&FORMAT.to_le_bytes());
        out[8..24].copy_from_slice(&self.identity.object.to_le_bytes());
        out[24..40].copy_from_slice(&self.identity.node.to_le_bytes());
        out[40..48].copy_from_slice(&self.file_number.to_le_bytes());
        out[48..56].copy_from_slice(&self.first_edit.to_le_bytes());
        out[56..60].copy_from_slice(&self.kind.to_le_bytes());
        let checksum = crc32c::crc32c(&out[..60]);
        out[60..64].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Decode the first bytes of a file. The checksum is verified before the version, so that a
    /// flipped bit is called damage and not a newer format.
    pub fn decode(path: &Path, bytes: &[u8]) -> Result<Self> {
        if bytes.starts_with(&[0; 4]) {
            // What a disk gives that lost the page; nobody's magic.
            return Err(Error::corrupt(path, 0, "zeros in place of the header"));
        }
        if let Some(magic) = bytes.first_chunk::<4>()
            && magic != MAGIC
        {
            return Err(Error::Foreign {
                path: path.into(),
                what: "manifest",
            });
        }
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(Error::corrupt(path, 0, "shorter than the header"));
        };
        if u32_at(head, 60) != crc32c::crc32c(&head[..60]) {
            return Err(Error::corrupt(path, 0, "header checksum does not match"));
        }
        let found = u32_at(head, 4);
        if found > FORMAT {
            let supported = FORMAT;
            return Err(Error::Newer {
                path: path.into(),
                what: "manifest",
                found,
                supported,
            });
        }
        if found == 0 {
            return Err(Error::corrupt(path, 4, "format version 0"));
        }
        Ok(Self {
            identity: Identity {
                object: u128_at(head, 8),
                node: u128_at(head, 24),
            },
            kind: u32_at(head, 56),
            file_number: u64_at(head, 40),
            first_edit: u64_at(head, 48),
        })
    }

    /// The seed of this file's frame checksums.
    pub fn seed(&self) -> u32 {
        let seed = crc32c::crc32c(&self.identity.object.to_le_bytes());
        crc32c::crc32c_append(seed, &self.file_number.to_le_bytes())
    }
}

/// One field as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Tag, class bit included.
    pub tag: u16,
    /// Content.
    pub bytes: Vec<u8>,
}

/// Append one field; `content` writes its bytes.
///
/// Nothing is lost when the content is over the limit: the length is then wrong, but
/// [`encode_frame`] refuses the edit for its size.
pub fn push_field(fields: &mut Vec<u8>, tag: u16, content: impl FnOnce(&mut Vec<u8>)) {
    fields.extend_from_slice(&tag.to_le_bytes());
    let length_at = fields.len();
    fields.extend_from_slice(&[0; 4]);
    content(fields);
    let length = u32::try_from(fields.len() - length_at - 4).unwrap_or(u32::MAX);
    fields[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
}

/// Append the frame of one edit.
pub fn encode_frame(out: &mut Vec<u8>, seed: u32, number: u64, fields: &[u8]) -> Result<()> {
    let size = FRAME_HEADER_BYTES + fields.len();
    check_size(size, MANIFEST_EDIT_BYTES_MAX)?;
    let length = (size as u32).to_le_bytes();
    let number = number.to_le_bytes();
    let checksum = crc32c::crc32c_append(seed, &length);
    let checksum = crc32c::crc32c_append(checksum, &number);
    let checksum = crc32c::crc32c_append(checksum, fields);
    out.extend_from_slice(&length);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(&number);
    out.extend_from_slice(fields);
    Ok(())
}

fn check_size(size: usize, max: usize) -> Result<()> {
    if size <= max {
        return Ok(());
    }
    let (size, max) = (size as u64, max as u64);
    Err(Error::TooLarge {
        what: "manifest edit",
        size,
        max,
    })
}

/// Refuse the fields of an edit that would not fit.
pub fn check_fields(fields: &[u8]) -> Result<()> {
    check_size(fields.len(), FIELDS_BYTES_MAX)
}

/// A frame whose checksum matches.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Edit number.
    pub number: u64,
    /// The encoded fields.
    pub fields: &'a [u8],
    /// Bytes of the whole frame.
    pub length: usize,
}

/// The frame at the beginning of `bytes`, or why there is none.
pub fn decode_frame(bytes: &[u8], seed: u32) -> std::result::Result<Frame<'_>, &'static str> {
    if bytes.len() < FRAME_HEADER_BYTES {
        return Err("shorter than an edit header");
    }
    let length = u32_at(bytes, 0) as usize;
    if !(FRAME_HEADER_BYTES..=MANIFEST_EDIT_BYTES_MAX).contains(&length) {
        return Err("edit length out of range");
    }
    if length > bytes.len() {
        return Err("edit reaches beyond the end of the file");
    }
    let checksum = crc32c::crc32c_append(seed, &bytes[..4]);
    if u32_at(bytes, 4) != crc32c::crc32c_append(checksum, &bytes[8..length]) {
        return Err("edit checksum does not match");
    }
    Ok(Frame {
        number: u64_at(bytes, 8),
        fields: &bytes[FRAME_HEADER_BYTES..length],
        length,
    })
}

/// Look for a valid frame anywhere in `bytes`, which begins with a bad one that should have had
/// the number `expected`. Its offset says that the bad one was followed by others once.
///
/// Numbers outside of what could still fit are ruled out before a checksum is computed, which
/// keeps the scan linear for all but contrived input.
pub fn resync(bytes: &[u8], seed: u32, expected: u64) -> Option<usize> {
    let most = expected.saturating_add((bytes.len() / FRAME_HEADER_BYTES) as u64);
    (1..bytes.len().saturating_sub(FRAME_HEADER_BYTES - 1)).find(|&at| {
        let number = u64_at(bytes, at + 8);
        (expected..=most).contains(&number) && decode_frame(&bytes[at..], seed).is_ok()
    })
}

/// Iterate over encoded fields; an error is the offset at which they stop making sense.
pub fn fields(bytes: &[u8]) -> impl Iterator<Item = std::result::Result<(u16, &[u8]), usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let begin = at;
        // An error ends the iteration.
        at = bytes.len();
        if rest.len() < FIELD_HEADER_BYTES {
            return Some(Err(begin));
        }
        let length = u32_at(rest, 2) as usize;
        let Some(content) = rest[FIELD_HEADER_BYTES..].get(..length) else {
            return Some(Err(begin));
        };
        at = begin + FIELD_HEADER_BYTES + length;
        Some(Ok((u16::from_le_bytes([rest[0], rest[1]]), content)))
    })
}

/// Reads the fixed-width values of one field.
pub struct FieldReader<'a>(&'a [u8]);

impl<'a> FieldReader<'a> {
    /// Begin at the first byte of a field's content.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next 4 bytes.
    pub fn u32(&mut self) -> std::result::Result<u32, String> {
        self.take().map(u32::from_le_bytes)
    }

    /// The next 8 bytes.
    pub fn u64(&mut self) -> std::result::Result<u64, String> {
        self.take().map(u64::from_le_bytes)
    }

    /// Refuse bytes that nobody asked for.
    pub fn end(&self) -> std::result::Result<(), String> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(format!("{} bytes too many", self.0.len()))
        }
    }

    fn take<const N: usize>(&mut self) -> std::result::Result<[u8; N], String> {
        let (value, rest) = self.0.split_first_chunk::<N>().ok_or("field too short")?;
        self.0 = rest;
        Ok(*value)
    }
}

// Callers have checked that the bytes are there.

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(value)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

fn u128_at(bytes: &[u8], at: usize) -> u128 {
    let mut value = [0; 16];
    value.copy_from_slice(&bytes[at..at + 16]);
    u128::from_le_bytes(value)
}
