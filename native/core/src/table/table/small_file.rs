//! What the small files of a table have in common: a head before their fields, and a checksum behind them.
//!
//! ```text
//!  0  u32   magic      4  u32  format version
//!  8  u128  table id
//! 24  the fields
//! ..  u32   CRC32C of everything before
//! ```

use std::path::Path;

use crate::codec::{Put, Take};
use crate::error::{Error, Result};

/// A kind of file.
pub(super) struct SmallFile {
    /// Name of the file.
    pub name: &'static str,
    /// What it is, for messages.
    pub what: &'static str,
    pub magic: u32,
    /// The format that is written, and the newest one that is read.
    pub format: u32,
}

impl SmallFile {
    /// The content of a file with what `fill` appends.
    pub fn encode(&self, table: u128, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(self.magic);
        out.put_u32(self.format);
        out.put_u128(table);
        fill(&mut out);
        let checksum = crc32c::crc32c(&out);
        out.put_u32(checksum);
        out
    }

    /// What `fields` takes, all of it, from the content of a file of this table; it is told the format.
    ///
    /// # Errors
    /// [`Error::Corruption`], [`Error::Foreign`], [`Error::Newer`] or [`Error::WrongIdentity`].
    pub fn decode<T>(
        &self,
        path: &Path,
        bytes: &[u8],
        table: u128,
        fields: impl FnOnce(&mut Take, u32) -> Result<T>,
    ) -> Result<T> {
        // The bytes come from a disk: whatever is wrong with them is damage.
        let damaged = |error: Error| Error::corrupt(path, 0, error.to_string());
        let corrupt = |reason: &str| Error::corrupt(path, 0, reason);
        let Some((body, checksum)) = bytes.split_last_chunk::<4>() else {
            return Err(corrupt("shorter than its checksum"));
        };
        if *checksum != crc32c::crc32c(body).to_le_bytes() {
            return Err(corrupt("checksum does not match"));
        }
        let mut take = Take::new(self.name, body);
        let mut head = || -> Result<_> { Ok((take.u32()?, take.u32()?, take.u128()?)) };
        let (magic, found, id) = head().map_err(damaged)?;
        let what = self.what;
        if magic != self.magic {
            return Err(Error::Foreign {
                path: path.into(),
                what,
            });
        }
        if found > self.format {
            return Err(Error::Newer {
                path: path.into(),
                what,
                found,
                supported: self.format,
            });
        }
        if found == 0 {
            return Err(corrupt("format version 0"));
        }
        if id != table {
            return Err(Error::WrongIdentity {
                path: path.into(),
                what: "table",
                found: format!("{id:032x}"),
                expected: format!("{table:032x}"),
            });
        }
        fields(&mut take, found)
            .and_then(|value| take.finish().map(|()| value))
            .map_err(damaged)
    }
}
