//! The header block of a segment: one device block before the first frame.
//!
//! ```text
//! 0   u32  magic "BRWS"
//! 4   u32  format version
//! 8   u128 node id
//! 24  u64  segment number
//! 32  u64  salt of this lap
//! 40  u64  segment bytes (length of the file)
//! 48  u32  CRC32C of bytes 0..48
//! 52  zeros up to 4096
//! ```

use std::path::Path;

use crate::codec::{Put, Take};
use crate::error::{Error, Result};
use crate::limits::BLOCK_BYTES;

const MAGIC: u32 = u32::from_le_bytes(*b"BRWS");

/// Newest segment format this build reads and the one it writes.
pub const FORMAT: u32 = 2;

/// First segment format with order frames.
pub const FORMAT_ORDERS: u32 = 2;

/// Offset of the first frame.
pub const FIRST_FRAME: u32 = BLOCK_BYTES as u32;

/// Identity of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The node that wrote it.
    pub node: u128,
    /// Segment number, from 1.
    pub number: u64,
    /// Random per lap.
    pub salt: u64,
    /// File length.
    pub bytes: u64,
}

impl SegmentHeader {
    /// The header block.
    pub fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        block.put_u32(MAGIC);
        block.put_u32(FORMAT);
        block.put_u128(self.node);
        block.put_u64(self.number);
        block.put_u64(self.salt);
        block.put_u64(self.bytes);
        block.put_u32(crc32c::crc32c(&block));
        block.resize(BLOCK_BYTES, 0);
        block
    }

    /// Whether segments of the format that this block names hold order frames.
    pub fn has_orders(block: &[u8]) -> bool {
        let mut take = Take::new("segment header", block);
        take.u32().is_ok() && take.u32().is_ok_and(|format| format >= FORMAT_ORDERS)
    }

    /// Check a header block read from `path`.
    pub fn decode(block: &[u8], path: &Path) -> Result<Self> {
        let corrupt = |reason: String| Error::corrupt(path, 0, reason);
        let mut take = Take::new("segment header", block);
        let result = (|| -> Result<(u32, u32, Self, u32)> {
            let magic = take.u32()?;
            let format = take.u32()?;
            let header = Self {
                node: take.u128()?,
                number: take.u64()?,
                salt: take.u64()?,
                bytes: take.u64()?,
            };
            Ok((magic, format, header, take.u32()?))
        })();
        let (magic, format, header, crc) = result.map_err(|e| corrupt(e.to_string()))?;
        if crc32c::crc32c(&block[..48]) != crc {
            if magic != MAGIC && magic != 0 {
                return Err(Error::Foreign {
                    path: path.into(),
                    what: "segment",
                });
            }
            return Err(corrupt("segment header checksum does not match".into()));
        }
        if magic != MAGIC {
            return Err(Error::Foreign {
                path: path.into(),
                what: "segment",
            });
        }
        if format > FORMAT {
            let (path, what) = (path.into(), "segment");
            return Err(Error::Newer {
                path,
                what,
                found: format,
                supported: FORMAT,
            });
        }
        if format == 0 {
            return Err(Error::corrupt(path, 4, "format version 0"));
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_0_is_no_format() {
        let header = SegmentHeader {
            node: 1,
            number: 2,
            salt: 3,
            bytes: 65536,
        };
        let mut block = header.encode();
        let path = Path::new("slot");
        assert!(matches!(SegmentHeader::decode(&block, path), Ok(found) if found == header));
        block[4] = 0;
        let crc = crc32c::crc32c(&block[..48]);
        block[48..52].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(
            SegmentHeader::decode(&block, path),
            Err(Error::Corruption { offset: 4, .. })
        ));
    }
}
