//! The identity file of a node directory, written once.
//!
//! ```text
//! 0  u32 magic "BRID"   4 u32 format   8 u128 node id   24 u128 log id   40 u32 segment bytes
//! 44 u32 CRC32C of bytes 0..44
//! ```

use std::path::Path;

use crate::codec::{Put, Take};
use crate::error::{Error, Result};
use crate::limits::{BLOCK_BYTES, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use crate::vfs::Vfs;

const MAGIC: u32 = u32::from_le_bytes(*b"BRID");

/// Newest directory format this build reads; that of a directory that may have tables.
pub const FORMAT: u32 = 3;

/// That of a directory that may have declared holes, and no tables.
const FORMAT_HOLES: u32 = 2;

/// What a directory with neither is written as: older builds read it.
const FORMAT_DENSE: u32 = 1;

/// Name of the file in the node directory.
pub const IDENTITY: &str = "IDENTITY";

/// Who a directory belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Random id of the node.
    pub node: u128,
    /// Random id of its write-ahead log.
    pub wal: u128,
    /// Length of every segment file.
    pub segment_bytes: u32,
    /// Whether there may be declared holes, which older builds cannot read.
    pub holes: bool,
    /// Whether there may be tables, which older builds do not know; then there may be holes too.
    pub tables: bool,
}

impl NodeIdentity {
    fn format(&self) -> u32 {
        match (self.tables, self.holes) {
            (true, _) => FORMAT,
            (false, true) => FORMAT_HOLES,
            (false, false) => FORMAT_DENSE,
        }
    }

    /// The file's content.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(MAGIC);
        out.put_u32(self.format());
        out.put_u128(self.node);
        out.put_u128(self.wal);
        out.put_u32(self.segment_bytes);
        out.put_u32(crc32c::crc32c(&out));
        out
    }

    /// Read the identity of a directory; `None` if it has none.
    pub fn read(vfs: &dyn Vfs, dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(IDENTITY);
        if !vfs.exists(&path)? {
            return Ok(None);
        }
        match vfs.read(&path, 4096) {
            Err(Error::TooLarge { .. }) => Err(Error::Foreign {
                path,
                what: "node directory",
            }),
            read => Self::decode(&read?, &path).map(Some),
        }
    }

    /// Check a file's content.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<Self> {
        let mut take = Take::new("identity", bytes);
        let corrupt = |error: Error| Error::corrupt(path, 0, error.to_string());
        let magic = take.u32().map_err(corrupt)?;
        if magic == 0 {
            // What a disk gives that lost the page; nobody's magic.
            return Err(Error::corrupt(path, 0, "zeros in place of the identity"));
        }
        if magic != MAGIC {
            return Err(Error::Foreign {
                path: path.into(),
                what: "node directory",
            });
        }
        let format = take.u32().map_err(corrupt)?;
        if format > FORMAT {
            let (path, what) = (path.into(), "node directory");
            return Err(Error::Newer {
                path,
                what,
                found: format,
                supported: FORMAT,
            });
        }
        let fields = |take: &mut Take<'_>| -> Result<(Self, u32)> {
            let identity = Self {
                node: take.u128()?,
                wal: take.u128()?,
                segment_bytes: take.u32()?,
                holes: format >= FORMAT_HOLES,
                tables: format >= FORMAT,
            };
            Ok((identity, take.u32()?))
        };
        let (identity, crc) = fields(&mut take).map_err(corrupt)?;
        take.finish().map_err(corrupt)?;
        if crc32c::crc32c(&bytes[..44]) != crc {
            return Err(Error::corrupt(path, 0, "checksum does not match"));
        }
        if format == 0 {
            return Err(Error::corrupt(path, 4, "format version 0"));
        }
        let bytes = u64::from(identity.segment_bytes);
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes)
            || !bytes.is_multiple_of(BLOCK_BYTES as u64)
        {
            let reason = format!("segments of {bytes} bytes");
            return Err(Error::corrupt(path, 40, reason));
        }
        Ok(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(segment_bytes: u32) -> Vec<u8> {
        let identity = NodeIdentity {
            node: 1,
            wal: 2,
            segment_bytes,
            holes: false,
            tables: false,
        };
        identity.encode()
    }

    fn decode(bytes: &[u8]) -> Result<NodeIdentity> {
        NodeIdentity::decode(bytes, Path::new(IDENTITY))
    }

    #[test]
    fn sizes_that_no_segment_has_are_refused() {
        assert!(decode(&sample(64 << 10)).is_ok());
        assert!(decode(&sample(2 << 30)).is_ok());
        for bytes in [0, 1, 4096, (64 << 10) + 8, (2 << 30) + 4096, u32::MAX] {
            let error = decode(&sample(bytes));
            assert!(
                matches!(error, Err(Error::Corruption { offset: 40, .. })),
                "{bytes}: {error:?}"
            );
        }
    }

    #[test]
    fn zeros_are_damage_and_no_other_program() {
        let lost = decode(&[0; 4096]);
        assert!(matches!(lost, Err(Error::Corruption { offset: 0, .. })));
        assert!(matches!(decode(&[7; 48]), Err(Error::Foreign { .. })));
    }

    #[test]
    fn format_0_is_no_format() {
        let mut bytes = sample(64 << 10);
        bytes[4] = 0;
        let crc = crc32c::crc32c(&bytes[..44]);
        bytes[44..].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(
            decode(&bytes),
            Err(Error::Corruption { offset: 4, .. })
        ));
    }
}
