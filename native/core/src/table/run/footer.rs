//! Footer of a run: the last 128 bytes of the file.
//!
//! ```text
//!   0  u32   magic "BRUN"
//!   4  u32   format version (1)
//!   8  u128  node id
//!  24  u128  tree id
//!  40  u64   run number
//!  48  u64   entries
//!  56  u64   distinct keys
//!  64  u64   tombstones
//!  72  u64   smallest position
//!  80  u64   largest position
//!  88  u64   bytes of all pages
//!  96  u32   pages
//! 100  u32   bytes of the page index
//! 104  u32   bytes of the filter
//! 108  u32   bits of the filter for each key; 0 without a filter
//! 112  u32   CRC32C of the page index
//! 116  u32   CRC32C of the filter
//! 120  u32   zero
//! 124  u32   CRC32C of bytes 0..124
//! ```

use std::path::Path;

use super::filter::{BLOCK_BYTES, PROBES_MAX};
use super::info::RunIdentity;
use crate::codec::{Put, Take};
use crate::error::{Error, Result};
use crate::limits::RUN_INDEX_BYTES_MAX;

/// Bytes of the footer. Length and places of magic, version and checksum never change.
pub(super) const FOOTER_BYTES: usize = 128;

const MAGIC: u32 = u32::from_le_bytes(*b"BRUN");
const FORMAT: u32 = 1;
const CHECKSUM_AT: usize = FOOTER_BYTES - 4;

/// What the footer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) identity: RunIdentity,
    pub(super) entries: u64,
    pub(super) keys: u64,
    pub(super) tombstones: u64,
    pub(super) position_min: u64,
    pub(super) position_max: u64,
    pub(super) pages_bytes: u64,
    pub(super) pages: u32,
    pub(super) index_bytes: u32,
    pub(super) filter_bytes: u32,
    pub(super) probes: u32,
    pub(super) index_crc: u32,
    pub(super) filter_crc: u32,
}

impl Footer {
    /// The bytes of the footer, and its checksum.
    pub(super) fn encode(&self) -> (Vec<u8>, u32) {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.put_u32(MAGIC);
        out.put_u32(FORMAT);
        out.put_u128(self.identity.node);
        out.put_u128(self.identity.tree);
        out.put_u64(self.identity.number);
        out.put_u64(self.entries);
        out.put_u64(self.keys);
        out.put_u64(self.tombstones);
        out.put_u64(self.position_min);
        out.put_u64(self.position_max);
        out.put_u64(self.pages_bytes);
        out.put_u32(self.pages);
        out.put_u32(self.index_bytes);
        out.put_u32(self.filter_bytes);
        out.put_u32(self.probes);
        out.put_u32(self.index_crc);
        out.put_u32(self.filter_crc);
        out.put_u32(0);
        let checksum = crc32c::crc32c(&out);
        out.put_u32(checksum);
        (out, checksum)
    }

    /// Decode the footer that begins at `offset` of a file, and its checksum. The checksum is verified before
    /// the version, so that a flipped bit is called damage and not a newer format.
    pub(super) fn decode(
        path: &Path,
        offset: u64,
        bytes: &[u8; FOOTER_BYTES],
    ) -> Result<(Self, u32)> {
        if *bytes == [0; FOOTER_BYTES] {
            return Err(Error::corrupt(path, offset, "zeros in place of the footer"));
        }
        let mut take = Take::new("run footer", bytes);
        let corrupt = |reason: &str| Error::corrupt(path, offset, reason);
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
        if bytes[CHECKSUM_AT..] != checksum.to_le_bytes() {
            return Err(corrupt("footer checksum does not match"));
        }
        if take.u32()? != MAGIC {
            return Err(Error::Foreign {
                path: path.into(),
                what: "run",
            });
        }
        match take.u32()? {
            FORMAT => {}
            0 => return Err(corrupt("format version 0")),
            found => {
                return Err(Error::Newer {
                    path: path.into(),
                    what: "run",
                    found,
                    supported: FORMAT,
                });
            }
        }
        let footer = Self::take(&mut take)?;
        if take.u32()? != 0 {
            return Err(corrupt("spare bytes of the footer are not zero"));
        }
        match footer.contradiction() {
            None => Ok((footer, checksum)),
            Some(reason) => Err(corrupt(reason)),
        }
    }

    fn take(take: &mut Take) -> Result<Self> {
        Ok(Self {
            identity: RunIdentity {
                node: take.u128()?,
                tree: take.u128()?,
                number: take.u64()?,
            },
            entries: take.u64()?,
            keys: take.u64()?,
            tombstones: take.u64()?,
            position_min: take.u64()?,
            position_max: take.u64()?,
            pages_bytes: take.u64()?,
            pages: take.u32()?,
            index_bytes: take.u32()?,
            filter_bytes: take.u32()?,
            probes: take.u32()?,
            index_crc: take.u32()?,
            filter_crc: take.u32()?,
        })
    }

    /// What would make the reader divide by zero, allocate without bound or read outside.
    fn contradiction(&self) -> Option<&'static str> {
        let max = RUN_INDEX_BYTES_MAX as u64;
        if u64::from(self.index_bytes) > max || u64::from(self.filter_bytes) > max {
            Some("index or filter larger than any can be")
        } else if !(self.filter_bytes as usize).is_multiple_of(BLOCK_BYTES)
            || (self.filter_bytes == 0) != (self.probes == 0)
            || self.probes > PROBES_MAX
        {
            Some("a filter of impossible shape")
        } else if self.pages == 0 || u64::from(self.pages) > self.entries {
            Some("more pages than entries, or none")
        } else {
            None
        }
    }

    /// Length of the whole file, if it can be that of any file.
    pub(super) fn file_bytes(&self) -> Option<u64> {
        let tail = u64::from(self.index_bytes) + u64::from(self.filter_bytes);
        self.pages_bytes.checked_add(tail + FOOTER_BYTES as u64)
    }
}
