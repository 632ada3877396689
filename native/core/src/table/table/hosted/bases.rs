//! Where the indexes of a hosted table begin: the file `BASES`.
//!
//! ```text
//!  0  u32   magic "BRTB"      4  u32  format version (1)
//!  8  u128  table id
//! 24  u32   indexes, each: u128 tree id, u64 base
//! ..  u32   CRC32C of everything before
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use super::super::small_file::SmallFile;
use crate::codec::Put;
use crate::error::Result;
use crate::vfs::Vfs;

/// Name of the file.
pub(super) const BASES: &str = "BASES";

const FILE: SmallFile = SmallFile {
    name: BASES,
    what: "file of bases",
    magic: u32::from_le_bytes(*b"BRTB"),
    format: 1,
};
const BYTES_MAX: u64 = 1 << 20;

/// The base of each index, by its tree.
pub type Bases = BTreeMap<u128, u64>;

/// The content of the file.
pub fn encode(table: u128, bases: &Bases) -> Vec<u8> {
    FILE.encode(table, |out| {
        out.put_u32(bases.len() as u32);
        for (tree, base) in bases {
            out.put_u128(*tree);
            out.put_u64(*base);
        }
    })
}

pub(super) fn save(vfs: &dyn Vfs, dir: &Path, table: u128, bases: &Bases) -> Result<()> {
    vfs.replace(&dir.join(BASES), &encode(table, bases))
}

/// Where the indexes of a table begin, of the bytes of its file: base by tree.
///
/// # Errors
/// [`Error::Corruption`] and [`Error::WrongIdentity`] where they are not that file.
pub fn bases_of(table: u128, bytes: &[u8]) -> Result<Vec<(u128, u64)>> {
    decode(Path::new(BASES), bytes, table).map(|bases| bases.into_iter().collect())
}

/// Save where the indexes of a table begin that another node, or a directory, had; `dir` is that of the table.
///
/// # Errors
/// Those of the file system.
pub fn put_bases(vfs: &dyn Vfs, dir: &Path, table: u128, bases: &[(u128, u64)]) -> Result<()> {
    save(vfs, dir, table, &bases.iter().copied().collect())
}

/// What was saved; nothing if it never was.
pub(super) fn load(vfs: &dyn Vfs, dir: &Path, table: u128) -> Result<Option<Bases>> {
    let path = dir.join(BASES);
    if !vfs.exists(&path)? {
        return Ok(None);
    }
    let bytes = vfs.read(&path, BYTES_MAX)?;
    decode(&path, &bytes, table).map(Some)
}

/// What the content of a table's file says.
///
/// # Errors
/// [`Error::Corruption`], [`Error::Foreign`], [`Error::Newer`] or [`Error::WrongIdentity`] for what [`encode`] did not write of
/// this table.
pub fn decode(path: &Path, bytes: &[u8], table: u128) -> Result<Bases> {
    FILE.decode(path, bytes, table, |take, _| {
        let mut bases = Bases::new();
        for _ in 0..take.count(24)? {
            let tree = take.u128()?;
            if bases
                .last_key_value()
                .is_some_and(|(last, _)| *last >= tree)
            {
                return Err(take.error("indexes out of order"));
            }
            bases.insert(tree, take.u64()?);
        }
        Ok(bases)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn what_was_saved_is_loaded_and_nothing_else() {
        let bases = Bases::from([(7, 0), (9, u64::MAX)]);
        let bytes = encode(3, &bases);
        let path = Path::new("BASES");
        assert_eq!(decode(path, &bytes, 3).unwrap(), bases);
        assert!(matches!(
            decode(path, &bytes, 4),
            Err(Error::WrongIdentity { .. })
        ));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            let found = decode(path, &damaged, 3);
            assert!(matches!(found, Err(Error::Corruption { .. })), "byte {at}");
            assert!(decode(path, &bytes[..at], 3).is_err());
        }
    }
}
