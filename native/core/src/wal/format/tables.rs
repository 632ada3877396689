//! The tables of a directory: which there are, of which log, with which indexes.
//!
//! # Theory of operation
//!
//! Whether a table exists is said here and nowhere else: its files are found by the identities that stand here.
//! Several changes come in one frame and are checked one after the other on a copy, each against what those before it
//! made, so all of them apply or none.
//!
//! # Invariants
//!
//! - Names are unique among tables, and among the indexes of a table. No two tables or trees share an identity.
//! - Each table has the cursor `table:<id>` in the stream of its log, which pins for ever.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::limits::{TABLE_INDEXES_MAX, TABLE_OPTIONS_BYTES_MAX, TABLE_SPEC_BYTES_MAX, TABLES_MAX};
use crate::wal::format::change::Cursor;
use crate::wal::format::stream::NAME_BYTES_MAX;
use crate::wal::format::table_change::{
    NewIndex, NewTable, Replacement, TableChange, pin_name, pin_of,
};

/// How far an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexState {
    /// It follows the log from that position on. What the table had before is still being read, and the index is not
    /// used yet.
    Building(u64),
    /// It follows the log from that position on, has what the table had before, and is used.
    Active(u64),
}

/// An index of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// As created.
    pub index: NewIndex,
    /// Whether it is used.
    pub state: IndexState,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Identity.
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
    /// Its indexes, in the order of their creation.
    pub indexes: Vec<Index>,
}

/// What is known of the streams of logs.
pub trait Logs {
    /// First and next position of a log's records.
    ///
    /// Fails with [`Error::NotFound`] if there is no such log.
    fn range(&self, log: u128) -> Result<(u64, u64)>;
}

/// What happens to the pins of a log: `None` means that the cursor is gone.
pub type Pin = (u128, String, Option<Cursor>);

/// All tables, by identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables(pub(super) BTreeMap<u128, Table>);

impl Table {
    /// The index of this name.
    pub fn index_named(&self, name: &str) -> Option<&Index> {
        self.indexes.iter().find(|index| index.index.name == name)
    }

    pub(super) fn trees(&self) -> impl Iterator<Item = u128> {
        let indexes = self.indexes.iter().map(|index| index.index.tree);
        std::iter::once(self.primary).chain(indexes)
    }

    fn index_of(&mut self, tree: u128) -> Result<&mut Index> {
        let name = &self.name;
        let missing = || Error::NotFound {
            what: format!("index {tree:032x} of table {name:?}"),
        };
        let mut indexes = self.indexes.iter_mut();
        let found = indexes.find(|index| index.index.tree == tree);
        found.ok_or_else(missing)
    }
}

impl Tables {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The table of this identity.
    pub fn get(&self, id: u128) -> Option<&Table> {
        self.0.get(&id)
    }

    /// The table of this name.
    pub fn named(&self, name: &str) -> Option<&Table> {
        self.0.values().find(|table| table.name == name)
    }

    /// All tables, by identity.
    pub fn iter(&self) -> impl Iterator<Item = &Table> {
        self.0.values()
    }

    /// The table whose cursor has this name, if it exists.
    pub fn pinned_by(&self, cursor: &str) -> Option<&Table> {
        pin_of(cursor).and_then(|id| self.get(id))
    }

    /// Names of the tables that follow a log, sorted.
    pub fn followers(&self, log: u128) -> Vec<String> {
        let tables = self.0.values().filter(|table| table.log == log);
        let names: BTreeSet<String> = tables.map(|table| table.name.clone()).collect();
        names.into_iter().collect()
    }

    /// Take a table as it was elsewhere.
    ///
    /// Fails with [`Error::AlreadyExists`] where its name or an identity is taken, [`Error::InvalidArgument`] and
    /// [`Error::TooLarge`] for one that no catalog can have.
    pub(super) fn add(&mut self, mut table: Table) -> Result<()> {
        self.check_name(&table.name)?;
        check_size("number of tables", self.0.len() + 1, TABLES_MAX)?;
        check_size(
            "table options",
            table.options.len(),
            TABLE_OPTIONS_BYTES_MAX,
        )?;
        let mut used = self.identities();
        take_identity(&mut used, table.id)?;
        take_identity(&mut used, table.primary)?;
        let indexes = std::mem::take(&mut table.indexes);
        for index in indexes {
            add_index(&mut table, &index.index, index.state, &mut used)?;
        }
        self.0.insert(table.id, table);
        Ok(())
    }

    /// Forget all of them.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The tables as all of these changes leave them, and what becomes of their cursors.
    pub fn changed(&self, changes: &[TableChange], logs: &dyn Logs) -> Result<(Self, Vec<Pin>)> {
        if changes.is_empty() {
            return Err(Error::InvalidArgument(
                "an entry must change a table".into(),
            ));
        }
        let (mut next, mut pins) = (self.clone(), Vec::new());
        let mut used = self.identities();
        for change in changes {
            next.apply(change, logs, &mut used, &mut pins)?;
        }
        Ok((next, pins))
    }

    fn identities(&self) -> BTreeSet<u128> {
        let tables = self.0.values();
        tables
            .flat_map(|table| std::iter::once(table.id).chain(table.trees()))
            .collect()
    }

    fn apply(
        &mut self,
        change: &TableChange,
        logs: &dyn Logs,
        used: &mut BTreeSet<u128>,
        pins: &mut Vec<Pin>,
    ) -> Result<()> {
        match change {
            TableChange::Create(table) => {
                let range = logs.range(table.log)?;
                self.create(table, range, used, pins)
            }
            TableChange::Drop(id) => {
                let table = self.remove(*id)?;
                pins.push((table.log, pin_name(*id), None));
                Ok(())
            }
            TableChange::Rename(id, name) => {
                self.check_name(name)?;
                self.table(*id)?.name.clone_from(name);
                Ok(())
            }
            TableChange::Build(id, index, position) => {
                let table = self.table(*id)?;
                let (_, next) = logs.range(table.log)?;
                check_position(*position, next)?;
                add_index(table, index, IndexState::Building(*position), used)
            }
            TableChange::Activate(id, tree, position) => {
                let table = self.table(*id)?;
                let (_, next) = logs.range(table.log)?;
                check_position(*position, next)?;
                let index = table.index_of(*tree)?;
                let IndexState::Building(begun) = index.state else {
                    return Err(not_building(index));
                };
                // Reads at earlier positions find nothing in it, so this stays known.
                index.state = IndexState::Active(begun);
                Ok(())
            }
            TableChange::Abort(id, tree, _) => {
                let table = self.table(*id)?;
                let index = table.index_of(*tree)?;
                let IndexState::Building(_) = index.state else {
                    return Err(not_building(index));
                };
                table.indexes.retain(|index| index.index.tree != *tree);
                Ok(())
            }
            TableChange::Unindex(id, tree) => {
                let table = self.table(*id)?;
                table.index_of(*tree)?;
                table.indexes.retain(|index| index.index.tree != *tree);
                Ok(())
            }
            TableChange::Replace(id, new) => self.replace(*id, new, logs, used, pins),
            TableChange::Options(id, options) => {
                check_size("table options", options.len(), TABLE_OPTIONS_BYTES_MAX)?;
                self.table(*id)?.options.clone_from(options);
                Ok(())
            }
        }
    }

    fn create(
        &mut self,
        new: &NewTable,
        range: (u64, u64),
        used: &mut BTreeSet<u128>,
        pins: &mut Vec<Pin>,
    ) -> Result<()> {
        self.check_name(&new.name)?;
        check_size("number of tables", self.0.len() + 1, TABLES_MAX)?;
        check_size("table options", new.options.len(), TABLE_OPTIONS_BYTES_MAX)?;
        check_start(new.start, range)?;
        take_identity(used, new.id)?;
        take_identity(used, new.primary)?;
        let mut table = Table {
            id: new.id,
            name: new.name.clone(),
            log: new.log,
            created: new.created,
            start: new.start,
            primary: new.primary,
            options: new.options.clone(),
            indexes: Vec::new(),
        };
        for index in &new.indexes {
            // The table is empty, so there is nothing to build.
            add_index(&mut table, index, IndexState::Active(new.start), used)?;
        }
        pins.push(pin(&table));
        self.0.insert(new.id, table);
        Ok(())
    }

    fn replace(
        &mut self,
        id: u128,
        new: &Replacement,
        logs: &dyn Logs,
        used: &mut BTreeSet<u128>,
        pins: &mut Vec<Pin>,
    ) -> Result<()> {
        let mut table = self.table(id)?.clone();
        check_start(new.start, logs.range(table.log)?)?;
        if new.trees.len() != table.indexes.len() {
            let (given, expected) = (new.trees.len() as u64, table.indexes.len() as u64);
            let what = "number of indexes";
            return Err(Error::NotDense {
                what,
                given,
                expected,
            });
        }
        take_identity(used, new.id)?;
        take_identity(used, new.primary)?;
        pins.push((table.log, pin_name(id), None));
        (table.id, table.start, table.primary) = (new.id, new.start, new.primary);
        for (index, tree) in table.indexes.iter_mut().zip(&new.trees) {
            take_identity(used, *tree)?;
            index.index.tree = *tree;
            // It begins together with the table, so it has all that the table has.
            index.state = IndexState::Active(new.start);
        }
        pins.push(pin(&table));
        self.0.remove(&id);
        self.0.insert(new.id, table);
        Ok(())
    }

    fn table(&mut self, id: u128) -> Result<&mut Table> {
        self.0.get_mut(&id).ok_or_else(|| missing(id))
    }

    fn remove(&mut self, id: u128) -> Result<Table> {
        self.0.remove(&id).ok_or_else(|| missing(id))
    }

    fn check_name(&self, name: &str) -> Result<()> {
        check_name("table", name)?;
        if self.named(name).is_some() {
            let what = format!("table {name:?}");
            return Err(Error::AlreadyExists { what });
        }
        Ok(())
    }
}

fn add_index(
    table: &mut Table,
    index: &NewIndex,
    state: IndexState,
    used: &mut BTreeSet<u128>,
) -> Result<()> {
    check_name("index", &index.name)?;
    check_size("index field", index.spec.len(), TABLE_SPEC_BYTES_MAX)?;
    check_size(
        "number of indexes",
        table.indexes.len() + 1,
        TABLE_INDEXES_MAX,
    )?;
    if table.index_named(&index.name).is_some() {
        let what = format!("index {:?} of table {:?}", index.name, table.name);
        return Err(Error::AlreadyExists { what });
    }
    take_identity(used, index.tree)?;
    let index = index.clone();
    table.indexes.push(Index { index, state });
    Ok(())
}

/// The cursor of a table that has flushed nothing yet.
fn pin(table: &Table) -> Pin {
    let cursor = Cursor {
        position: table.start,
        pin: true,
        touched: table.created,
        lease: 0,
    };
    (table.log, pin_name(table.id), Some(cursor))
}

fn missing(id: u128) -> Error {
    Error::NotFound {
        what: format!("table {id:032x}"),
    }
}

fn not_building(index: &Index) -> Error {
    let name = &index.index.name;
    Error::InvalidArgument(format!("index {name:?} is not being built"))
}

/// Identities are taken once, those of tables that a frame drops included.
pub(super) fn take_identity(used: &mut BTreeSet<u128>, id: u128) -> Result<()> {
    if id == 0 {
        let reason = "an identity must not be 0";
        return Err(Error::InvalidArgument(reason.into()));
    }
    if !used.insert(id) {
        let what = format!("a table or tree with the identity {id:032x}");
        return Err(Error::AlreadyExists { what });
    }
    Ok(())
}

pub(super) fn check_name(what: &'static str, name: &str) -> Result<()> {
    if name.is_empty() {
        let reason = format!("the name of the {what} must not be empty");
        return Err(Error::InvalidArgument(reason));
    }
    let what = if what == "table" {
        "table name"
    } else {
        "index name"
    };
    check_size(what, name.len(), NAME_BYTES_MAX)
}

fn check_size(what: &'static str, size: usize, max: usize) -> Result<()> {
    if size > max {
        let (size, max) = (size as u64, max as u64);
        return Err(Error::TooLarge { what, size, max });
    }
    Ok(())
}

/// A table begins where the log still has all that follows.
fn check_start(start: u64, (first, next): (u64, u64)) -> Result<()> {
    if start < first {
        let position = start;
        return Err(Error::Trimmed { position, first });
    }
    check_position(start, next)
}

fn check_position(position: u64, next: u64) -> Result<()> {
    if position > next {
        return Err(Error::BeyondEnd { position, next });
    }
    Ok(())
}
