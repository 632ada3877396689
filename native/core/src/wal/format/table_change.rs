//! Changes of tables: what one catalog frame says of any number of them, all or none.
//!
//! ```text
//! catalog   u8 5 tables: u32 changes, each as `bytes`:
//!   u8 1 create:    u128 id, text name, u128 log, i64 created (us), u64 start, u128 primary tree, bytes options,
//!                   u32 indexes, each: u128 tree, text name, bytes spec
//!   u8 2 drop:      u128 id
//!   u8 3 rename:    u128 id, text name
//!   u8 4 build:     u128 id, u128 tree, text name, bytes spec, u64 position
//!   u8 5 activate:  u128 id, u128 tree, u64 position
//!   u8 6 abort:     u128 id, u128 tree, u64 position
//!   u8 7 unindex:   u128 id, u128 tree
//!   u8 8 replace:   u128 id, u128 new id, u64 start, u128 new primary tree, u32 indexes, u128 new tree of each
//!   u8 9 options:   u128 id, bytes options
//! ```

use crate::codec::{Put, Take};
use crate::error::Result;

/// Encoded bytes of an index of a new table, at least.
const INDEX_BYTES_MIN: usize = 16 + 4 + 4;

/// How the names of the cursors begin that tables have.
const PIN_PREFIX: &str = "table:";

/// Bytes of such a name.
pub const PIN_NAME_BYTES: usize = PIN_PREFIX.len() + 32;

/// A new index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewIndex {
    /// Identity of its tree.
    pub tree: u128,
    /// Unique in its table.
    pub name: String,
    /// Which field of a record it is by; opaque here.
    pub spec: Vec<u8>,
}

/// A new table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTable {
    /// Random identity, chosen before anything is written.
    pub id: u128,
    /// Unique among the tables.
    pub name: String,
    /// The log that it follows.
    pub log: u128,
    /// Creation time, microseconds since the epoch.
    pub created: i64,
    /// Position of the first record that counts.
    pub start: u64,
    /// Identity of its primary tree.
    pub primary: u128,
    /// Options, opaque here.
    pub options: Vec<u8>,
    /// Indexes that it has from the start.
    pub indexes: Vec<NewIndex>,
}

/// What a table is replaced by: the same name, log, options and indexes, and nothing of its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The new identity.
    pub id: u128,
    /// Position of the first record that counts.
    pub start: u64,
    /// Identity of the new primary tree.
    pub primary: u128,
    /// Identities of the new trees of the indexes, in the order in which the table lists them.
    pub trees: Vec<u128>,
}

/// One change of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableChange {
    /// A table came into being, and with it the cursor that pins its log.
    Create(NewTable),
    /// A table, its indexes and its cursor are gone.
    Drop(u128),
    /// A table has another name.
    Rename(u128, String),
    /// An index of the table is being built of what is below the position; what comes later it gets like the table.
    Build(u128, NewIndex, u64),
    /// The index of this tree has everything below the position, and is used.
    Activate(u128, u128, u64),
    /// The building of the index of this tree was given up at the position; there is no such index.
    Abort(u128, u128, u64),
    /// The index of this tree is gone.
    Unindex(u128, u128),
    /// The table begins anew under another identity: truncated, or rebuilt from its log.
    Replace(u128, Replacement),
    /// The table's options are replaced.
    Options(u128, Vec<u8>),
}

impl TableChange {
    /// Whether it ends something that takes space: it has to find room in a full log.
    pub fn settles(&self) -> bool {
        matches!(
            self,
            Self::Drop(_) | Self::Activate(..) | Self::Abort(..) | Self::Unindex(..)
        )
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Create(table) => {
                out.put_u8(1);
                encode_table(table, &mut out);
            }
            Self::Drop(id) => {
                out.put_u8(2);
                out.put_u128(*id);
            }
            Self::Rename(id, name) => {
                out.put_u8(3);
                out.put_u128(*id);
                out.put_bytes(name.as_bytes());
            }
            Self::Build(id, index, position) => {
                out.put_u8(4);
                out.put_u128(*id);
                encode_index(index, &mut out);
                out.put_u64(*position);
            }
            Self::Activate(id, tree, position) | Self::Abort(id, tree, position) => {
                out.put_u8(if matches!(self, Self::Activate(..)) {
                    5
                } else {
                    6
                });
                out.put_u128(*id);
                out.put_u128(*tree);
                out.put_u64(*position);
            }
            Self::Unindex(id, tree) => {
                out.put_u8(7);
                out.put_u128(*id);
                out.put_u128(*tree);
            }
            Self::Replace(id, new) => {
                out.put_u8(8);
                out.put_u128(*id);
                out.put_u128(new.id);
                out.put_u64(new.start);
                out.put_u128(new.primary);
                out.put_u32(new.trees.len() as u32);
                new.trees.iter().for_each(|tree| out.put_u128(*tree));
            }
            Self::Options(id, options) => {
                out.put_u8(9);
                out.put_u128(*id);
                out.put_bytes(options);
            }
        }
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut take = Take::new("change of a table", bytes);
        let change = match take.u8()? {
            1 => Self::Create(decode_table(&mut take)?),
            2 => Self::Drop(take.u128()?),
            3 => Self::Rename(take.u128()?, take.string()?),
            4 => Self::Build(take.u128()?, decode_index(&mut take)?, take.u64()?),
            5 => Self::Activate(take.u128()?, take.u128()?, take.u64()?),
            6 => Self::Abort(take.u128()?, take.u128()?, take.u64()?),
            7 => Self::Unindex(take.u128()?, take.u128()?),
            8 => {
                let id = take.u128()?;
                let mut new = Replacement {
                    id: take.u128()?,
                    start: take.u64()?,
                    primary: take.u128()?,
                    trees: Vec::new(),
                };
                for _ in 0..take.count(16)? {
                    new.trees.push(take.u128()?);
                }
                Self::Replace(id, new)
            }
            9 => Self::Options(take.u128()?, take.bytes()?.to_vec()),
            _ => return Err(take.error("unknown change of a table")),
        };
        take.finish()?;
        Ok(change)
    }
}

/// Append the changes of one catalog frame, behind its operation.
pub fn encode_changes(changes: &[TableChange], out: &mut Vec<u8>) {
    out.put_u32(changes.len() as u32);
    for change in changes {
        out.put_bytes(&change.encode());
    }
}

/// Take the changes of one catalog frame.
pub fn decode_changes(take: &mut Take<'_>) -> Result<Vec<TableChange>> {
    let mut changes = Vec::new();
    for _ in 0..take.count(4 + 17)? {
        changes.push(TableChange::decode(take.bytes()?)?);
    }
    Ok(changes)
}

/// Append a table and the indexes that it begins with.
fn encode_table(table: &NewTable, out: &mut Vec<u8>) {
    out.put_u128(table.id);
    out.put_bytes(table.name.as_bytes());
    out.put_u128(table.log);
    out.put_u64(table.created.cast_unsigned());
    out.put_u64(table.start);
    out.put_u128(table.primary);
    out.put_bytes(&table.options);
    out.put_u32(table.indexes.len() as u32);
    table
        .indexes
        .iter()
        .for_each(|index| encode_index(index, out));
}

fn decode_table(take: &mut Take<'_>) -> Result<NewTable> {
    let mut table = NewTable {
        id: take.u128()?,
        name: take.string()?,
        log: take.u128()?,
        created: take.u64()?.cast_signed(),
        start: take.u64()?,
        primary: take.u128()?,
        options: take.bytes()?.to_vec(),
        indexes: Vec::new(),
    };
    for _ in 0..take.count(INDEX_BYTES_MIN)? {
        table.indexes.push(decode_index(take)?);
    }
    Ok(table)
}

/// Append an index.
pub fn encode_index(index: &NewIndex, out: &mut Vec<u8>) {
    out.put_u128(index.tree);
    out.put_bytes(index.name.as_bytes());
    out.put_bytes(&index.spec);
}

/// Take an index.
pub fn decode_index(take: &mut Take<'_>) -> Result<NewIndex> {
    Ok(NewIndex {
        tree: take.u128()?,
        name: take.string()?,
        spec: take.bytes()?.to_vec(),
    })
}

/// Name of the cursor by which a table pins its log.
pub fn pin_name(table: u128) -> String {
    format!("{PIN_PREFIX}{table:032x}")
}

/// The table whose cursor has this name.
pub fn pin_of(cursor: &str) -> Option<u128> {
    let digits = cursor.strip_prefix(PIN_PREFIX)?;
    let written = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if digits.len() != 32 || !digits.bytes().all(written) {
        return None;
    }
    u128::from_str_radix(digits, 16).ok()
}
