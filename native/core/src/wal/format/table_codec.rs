//! The tables of a directory as bytes: what ends a preamble.
//!
//! ```text
//! u32 tables, each: u128 id, text name, u128 log, i64 created (us), u64 start, u128 primary tree, bytes options,
//!     u32 indexes, each: u128 tree, text name, bytes spec, u8 state (0 building, 1 active), u64 position
//! ```

use std::collections::BTreeSet;

use crate::codec::{Put, Take};
use crate::error::Result;
use crate::limits::{TABLE_INDEXES_MAX, TABLES_MAX};
use crate::wal::format::table_change::{NewIndex, TableChange, decode_index, encode_index};
use crate::wal::format::tables::{
    Index, IndexState, Logs, Table, Tables, check_name, take_identity,
};

/// Encoded bytes of a table without name, options and indexes.
const TABLE_BYTES: usize = 16 + 4 + 16 + 8 + 8 + 16 + 4 + 4;

/// Encoded bytes of an index without name and spec.
const INDEX_BYTES: usize = 16 + 4 + 4 + 1 + 8;

impl Table {
    fn encoded_len(&self) -> usize {
        let indexes = self
            .indexes
            .iter()
            .map(|index| INDEX_BYTES + index.index.name.len() + index.index.spec.len());
        TABLE_BYTES + self.name.len() + self.options.len() + indexes.sum::<usize>()
    }
}

impl Tables {
    /// Bytes by which the changes make the encoding longer, at most, the cursors apart.
    pub fn growth(&self, changes: &[TableChange]) -> usize {
        let index = |index: &NewIndex| INDEX_BYTES + index.name.len() + index.spec.len();
        let of = |change: &TableChange| match change {
            TableChange::Create(table) => {
                let indexes: usize = table.indexes.iter().map(index).sum();
                TABLE_BYTES + table.name.len() + table.options.len() + indexes
            }
            // The table may come into being in the same frame, so its name and options count in full.
            TableChange::Rename(_, name) => name.len(),
            TableChange::Options(_, options) => options.len(),
            TableChange::Build(_, new, _) => index(new),
            _ => 0,
        };
        let header = if self.is_empty() { 4 } else { 0 };
        header + changes.iter().map(of).sum::<usize>()
    }

    /// Bytes of the encoding: none without tables.
    pub fn encoded_len(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        4 + self.0.values().map(Table::encoded_len).sum::<usize>()
    }

    /// Append the tables, if there are any: builds that know none read a directory that has none.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.is_empty() {
            return;
        }
        out.put_u32(self.0.len() as u32);
        for table in self.0.values() {
            out.put_u128(table.id);
            out.put_bytes(table.name.as_bytes());
            out.put_u128(table.log);
            out.put_u64(table.created.cast_unsigned());
            out.put_u64(table.start);
            out.put_u128(table.primary);
            out.put_bytes(&table.options);
            out.put_u32(table.indexes.len() as u32);
            for index in &table.indexes {
                encode_index(&index.index, out);
                let (state, position) = match index.state {
                    IndexState::Building(position) => (0, position),
                    IndexState::Active(position) => (1, position),
                };
                out.put_u8(state);
                out.put_u64(position);
            }
        }
    }

    /// Take the tables that end a preamble, and check them against its logs.
    pub fn decode(take: &mut Take<'_>, logs: &dyn Logs) -> Result<Self> {
        let mut tables = Self::default();
        if take.remaining() == 0 {
            return Ok(tables);
        }
        let count = take.count(TABLE_BYTES)?;
        if count == 0 || count > TABLES_MAX {
            return Err(take.error("number of tables is out of range"));
        }
        let (mut names, mut used) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..count {
            let table = decode_table(take)?;
            if check_name("table", &table.name).is_err() || !names.insert(table.name.clone()) {
                return Err(take.error("a table has no name, or that of another"));
            }
            if take_identity(&mut used, table.id).is_err() {
                return Err(take.error("an identity is there twice"));
            }
            for tree in table.trees() {
                if take_identity(&mut used, tree).is_err() {
                    return Err(take.error("an identity is there twice"));
                }
            }
            if logs.range(table.log).is_err() {
                return Err(take.error("a table follows a log that is not there"));
            }
            tables.0.insert(table.id, table);
        }
        Ok(tables)
    }
}

fn decode_table(take: &mut Take<'_>) -> Result<Table> {
    let mut table = Table {
        id: take.u128()?,
        name: take.string()?,
        log: take.u128()?,
        created: take.u64()?.cast_signed(),
        start: take.u64()?,
        primary: take.u128()?,
        options: take.bytes()?.to_vec(),
        indexes: Vec::new(),
    };
    let count = take.count(INDEX_BYTES)?;
    if count > TABLE_INDEXES_MAX {
        return Err(take.error("too many indexes"));
    }
    for _ in 0..count {
        let index = decode_index(take)?;
        let state = match take.u8()? {
            0 => IndexState::Building(take.u64()?),
            1 => IndexState::Active(take.u64()?),
            _ => return Err(take.error("unknown state of an index")),
        };
        if check_name("index", &index.name).is_err() || table.index_named(&index.name).is_some() {
            return Err(take.error("an index has no name, or that of another"));
        }
        table.indexes.push(Index { index, state });
    }
    Ok(table)
}
