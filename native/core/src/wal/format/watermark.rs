//! The watermark file: how far the writer's log is durable, for other processes and for recovery.
//!
//! ```text
//! 0   u32 magic "BRWM"   4 u32 format   8 u64 segment   16 u64 salt   24 u32 durable offset   28 u32 reach
//! 32  u32 CRC32C of bytes 0..32
//! ```
//!
//! It is written after every sync: the durable offset may be old, never ahead. Followers read up to it; recovery
//! takes it as evidence that a frame which does not check was once durable. *Reach* says where no write of this
//! lap ended beyond, and is synced before one does: behind it no lost group has left anything.
//!
//! Format 1 had no reach, and its checksum at 28. It is read as one that reaches to the end.

use std::path::Path;

use crate::codec::{Put, Take};
use crate::error::{Error, Result};
use crate::vfs::Vfs;
use crate::wal::format::frame::Seed;

const MAGIC: u32 = u32::from_le_bytes(*b"BRWM");
const FORMAT: u32 = 2;

/// Bytes of the file.
pub const WATERMARK_BYTES: usize = 36;

/// Name of the file in the node directory.
pub const WATERMARK: &str = "WATERMARK";

/// How far the log is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Watermark {
    /// Newest segment.
    pub segment: u64,
    /// Its salt.
    pub salt: u64,
    /// Offset below which it is durable.
    pub durable: u32,
    /// Offset that no write of this lap has gone beyond.
    pub reach: u32,
}

impl Watermark {
    /// What the checksums of the segment are seeded with.
    pub fn seed(&self) -> Seed {
        let (salt, segment) = (self.salt, self.segment);
        Seed { salt, segment }
    }

    /// The file's content.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(WATERMARK_BYTES);
        out.put_u32(MAGIC);
        out.put_u32(FORMAT);
        out.put_u64(self.segment);
        out.put_u64(self.salt);
        out.put_u32(self.durable);
        out.put_u32(self.reach);
        out.put_u32(crc32c::crc32c(&out));
        out
    }

    /// Decode; `None` if it is not a whole watermark (a crash may leave anything here).
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut take = Take::new("watermark", bytes);
        let (magic, format) = (take.u32().ok()?, take.u32().ok()?);
        let (segment, salt, durable) = (take.u64().ok()?, take.u64().ok()?, take.u32().ok()?);
        let (reach, checked) = match format {
            1 => (u32::MAX, 28),
            FORMAT => (take.u32().ok()?, 32),
            _ => return None,
        };
        let whole = take.u32().ok()? == crc32c::crc32c(&bytes[..checked]);
        (magic == MAGIC && whole).then_some(Self {
            segment,
            salt,
            durable,
            reach,
        })
    }

    /// Read it from a node directory; `None` if there is none or it is not whole.
    pub fn read(vfs: &dyn Vfs, dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(WATERMARK);
        if !vfs.exists(&path)? {
            return Ok(None);
        }
        match vfs.read(&path, 4096) {
            Err(Error::TooLarge { .. }) => Ok(None),
            read => Ok(Self::decode(&read?)),
        }
    }
}
