//! Tables of the catalog as Python rows, and changes of them from Python tuples.

use braidlog_core::Error;
use braidlog_core::wal::{
    IndexState, NewIndex, NewTable, Replacement, State, Table, TableChange, pin_name,
};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::error::to_py;

/// An index of a table.
#[derive(IntoPyObject)]
pub struct IndexRow {
    tree: u128,
    name: String,
    spec: Vec<u8>,
    active: bool,
    position: u64,
}

/// A table as the catalog has it; `pin` is the first position that it needs of its log.
#[derive(IntoPyObject)]
pub struct TableRow {
    id: u128,
    name: String,
    log: String,
    log_id: u128,
    stream: u32,
    created: i64,
    start: u64,
    primary: u128,
    options: Vec<u8>,
    indexes: Vec<IndexRow>,
    pin: u64,
}

impl TableRow {
    /// All tables of a state.
    pub fn all(state: &State) -> Vec<Self> {
        let tables = state.tables.iter();
        tables
            .filter_map(|table| Self::copy(state, table))
            .collect()
    }

    /// The table of that name.
    pub fn of(state: &State, name: &str) -> Option<Self> {
        let table = state.tables.named(name)?;
        Self::copy(state, table)
    }

    fn copy(state: &State, table: &Table) -> Option<Self> {
        let log = state.logs.get(&table.log)?;
        let cursors = &state.streams.get(&log.stream)?.cursors;
        let indexes = table.indexes.iter().map(|index| {
            let (active, position) = match index.state {
                IndexState::Building(position) => (false, position),
                IndexState::Active(position) => (true, position),
            };
            IndexRow {
                tree: index.index.tree,
                name: index.index.name.clone(),
                spec: index.index.spec.clone(),
                active,
                position,
            }
        });
        Some(Self {
            id: table.id,
            name: table.name.clone(),
            log: log.log.name.clone(),
            log_id: table.log,
            stream: log.stream,
            created: table.created,
            start: table.start,
            primary: table.primary,
            options: table.options.clone(),
            indexes: indexes.collect(),
            pin: cursors.get(&pin_name(table.id))?.position,
        })
    }
}

/// (identity of the tree, name, field).
type IndexGiven = (u128, String, Vec<u8>);

fn index((tree, name, spec): IndexGiven) -> NewIndex {
    NewIndex { tree, name, spec }
}

/// A change as Python gives it: a word, then its fields.
fn change(given: &Bound<'_, PyTuple>, now: i64) -> PyResult<TableChange> {
    let word: String = given.get_item(0)?.extract()?;
    let rest = given.get_slice(1, given.len());
    let change = match word.as_str() {
        "create" => {
            type Given = (u128, String, u128, u64, u128, Vec<u8>, Vec<IndexGiven>);
            let (id, name, log, start, primary, options, indexes) = rest.extract::<Given>()?;
            TableChange::Create(NewTable {
                id,
                name,
                log,
                created: now,
                start,
                primary,
                options,
                indexes: indexes.into_iter().map(index).collect(),
            })
        }
        "drop" => {
            let (id,) = rest.extract::<(u128,)>()?;
            TableChange::Drop(id)
        }
        "rename" => {
            let (id, name) = rest.extract()?;
            TableChange::Rename(id, name)
        }
        "build" => {
            let (id, tree, name, spec, position) =
                rest.extract::<(u128, u128, String, Vec<u8>, u64)>()?;
            TableChange::Build(id, index((tree, name, spec)), position)
        }
        "activate" => {
            let (id, tree, position) = rest.extract()?;
            TableChange::Activate(id, tree, position)
        }
        "abort" => {
            let (id, tree, position) = rest.extract()?;
            TableChange::Abort(id, tree, position)
        }
        "unindex" => {
            let (id, tree) = rest.extract()?;
            TableChange::Unindex(id, tree)
        }
        "replace" => {
            let (old, id, start, primary, trees) =
                rest.extract::<(u128, u128, u64, u128, Vec<u128>)>()?;
            let new = Replacement {
                id,
                start,
                primary,
                trees,
            };
            TableChange::Replace(old, new)
        }
        "options" => {
            let (id, options) = rest.extract()?;
            TableChange::Options(id, options)
        }
        other => {
            let reason = format!("there is no change {other:?} of a table");
            return Err(to_py(Error::InvalidArgument(reason)));
        }
    };
    Ok(change)
}

/// All changes of an entry.
pub fn changes(given: Vec<Bound<'_, PyTuple>>, now: i64) -> PyResult<Vec<TableChange>> {
    given.iter().map(|given| change(given, now)).collect()
}
