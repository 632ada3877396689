//! What a table counted, and the file that keeps it over restarts: `COUNTERS`.
//!
//! ```text
//!  0  u32   magic "BRTC"      4  u32  format version (2)
//!  8  u128  table id
//! 24  u64   position: everything up to it is counted
//! 32  u64   last: digest of the record at the position; 0 if it is not known, and not there in format 1
//! 40  u64   records
//! 48  refusals without key, with too long a key, lost: three `refusals`
//! ..  u32   indexes, each: u128 tree id, u64 position, refusals
//! ..  u32   CRC32C of everything before
//!
//! refusals: u64 count, u32 number, each: u64 position, text reason
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use super::small_file::SmallFile;
use crate::codec::{Put, Take};
use crate::error::Result;
use crate::limits::TABLE_REFUSALS_LISTED_MAX;
use crate::vfs::Vfs;

/// Name of the file.
pub(super) const COUNTERS: &str = "COUNTERS";

const FILE: SmallFile = SmallFile {
    name: COUNTERS,
    what: "file of counters",
    magic: u32::from_le_bytes(*b"BRTC"),
    format: 2,
};
const BYTES_MAX: u64 = 64 << 20;

/// Records that could not be taken in: how many, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// How many there are.
    pub count: u64,
    /// Position of each of the first ones, and why.
    pub first: Vec<(u64, String)>,
}

impl Refusals {
    /// Count one.
    pub(super) fn note(&mut self, position: u64, reason: &str) {
        self.count += 1;
        if self.first.len() < TABLE_REFUSALS_LISTED_MAX {
            self.first.push((position, reason.into()));
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.count);
        out.put_u32(self.first.len() as u32);
        for (position, reason) in &self.first {
            out.put_u64(*position);
            out.put_bytes(reason.as_bytes());
        }
    }

    pub(super) fn decode(take: &mut Take) -> Result<Self> {
        let count = take.u64()?;
        let listed = take.count(12)?;
        if listed as u64 > count || listed > TABLE_REFUSALS_LISTED_MAX {
            return Err(take.error(format!("{listed} refusals are listed of {count}")));
        }
        let mut first = Vec::with_capacity(listed);
        for _ in 0..listed {
            first.push((take.u64()?, take.string()?));
        }
        Ok(Self { count, first })
    }
}

/// What a table counted of the log up to a position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Everything up to it is counted.
    pub position: u64,
    /// Digest of the record there; 0 if it is not known.
    pub last: u64,
    /// Records, those included that are not in the table.
    pub records: u64,
    /// Records without a key.
    pub without_key: Refusals,
    /// Records whose key is longer than that of a table may be.
    pub long_keys: Refusals,
    /// Records that a repair of the log could not save.
    pub lost: Refusals,
}

/// What an index counted, up to a position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexCounters {
    /// Everything up to it is counted.
    pub position: u64,
    /// Records that should be in the index and cannot be.
    pub refused: Refusals,
}

/// What the file has: what the table counted, and its indexes by their trees.
pub type Saved = (Counters, BTreeMap<u128, IndexCounters>);

pub(super) fn save(vfs: &dyn Vfs, dir: &Path, table: u128, saved: &Saved) -> Result<()> {
    vfs.replace(&dir.join(COUNTERS), &encode(table, saved))
}

/// The content of the file.
pub fn encode(table: u128, (counters, indexes): &Saved) -> Vec<u8> {
    FILE.encode(table, |out| {
        out.put_u64(counters.position);
        out.put_u64(counters.last);
        out.put_u64(counters.records);
        for refusals in [&counters.without_key, &counters.long_keys, &counters.lost] {
            refusals.encode(out);
        }
        out.put_u32(indexes.len() as u32);
        for (tree, index) in indexes {
            out.put_u128(*tree);
            out.put_u64(index.position);
            index.refused.encode(out);
        }
    })
}

/// What was saved; nothing if it never was.
pub(super) fn load(vfs: &dyn Vfs, dir: &Path, table: u128) -> Result<Option<Saved>> {
    let path = dir.join(COUNTERS);
    if !vfs.exists(&path)? {
        return Ok(None);
    }
    decode(&path, &vfs.read(&path, BYTES_MAX)?, table).map(Some)
}

/// The bytes that were saved, and what the table counted; nothing if none ever were.
pub(super) fn saved(vfs: &dyn Vfs, dir: &Path, table: u128) -> Result<Option<(Vec<u8>, Counters)>> {
    let path = dir.join(COUNTERS);
    if !vfs.exists(&path)? {
        return Ok(None);
    }
    let bytes = vfs.read(&path, BYTES_MAX)?;
    let (counters, _) = decode(&path, &bytes, table)?;
    Ok(Some((bytes, counters)))
}

/// Save bytes that were saved elsewhere.
pub(super) fn put(vfs: &dyn Vfs, dir: &Path, table: u128, bytes: &[u8]) -> Result<()> {
    let path = dir.join(COUNTERS);
    decode(&path, bytes, table)?;
    vfs.replace(&path, bytes)
}

/// What the content of a table's file says.
///
/// # Errors
/// [`Error::Corruption`], [`Error::Foreign`], [`Error::Newer`] or [`Error::WrongIdentity`] for what [`encode`] did not write of
/// this table.
pub fn decode(path: &Path, bytes: &[u8], table: u128) -> Result<Saved> {
    FILE.decode(path, bytes, table, take_saved)
}

fn take_saved(take: &mut Take, format: u32) -> Result<Saved> {
    let counters = Counters {
        position: take.u64()?,
        last: if format > 1 { take.u64()? } else { 0 },
        records: take.u64()?,
        without_key: Refusals::decode(take)?,
        long_keys: Refusals::decode(take)?,
        lost: Refusals::decode(take)?,
    };
    let mut indexes = BTreeMap::<u128, _>::new();
    for _ in 0..take.count(36)? {
        let tree = take.u128()?;
        if indexes
            .last_key_value()
            .is_some_and(|(last, _)| *last >= tree)
        {
            return Err(take.error("indexes out of order"));
        }
        let index = IndexCounters {
            position: take.u64()?,
            refused: Refusals::decode(take)?,
        };
        indexes.insert(tree, index);
    }
    Ok((counters, indexes))
}
