//! The identity file of a node directory, written once.
//!
//! ```text
//! 0  u32 magic "BRID"   4 u32 format   8 u128 node id   24 u128 log id   40 u32 segment bytes
//! 44 u32 CRC32C of bytes 0..44
//! ```

use std::path::Path;

use crate::codec::{Put, Take};
use crate::error::{Error, Result};
use crate::vfs::Vfs;

const MAGIC: u32 = u32::from_le_bytes(*b"BRID");

/// Newest directory format this build reads, and the one it writes.
pub const FORMAT: u32 = 1;

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
}

impl NodeIdentity {
    /// The file's content.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(MAGIC);
        out.put_u32(FORMAT);
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
            };
            Ok((identity, take.u32()?))
        };
        let (identity, crc) = fields(&mut take).map_err(corrupt)?;
        take.finish().map_err(corrupt)?;
        if crc32c::crc32c(&bytes[..44]) != crc {
            return Err(Error::corrupt(path, 0, "checksum does not match"));
        }
        Ok(identity)
    }
}
