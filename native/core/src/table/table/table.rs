//! The table itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use regex::bytes::Regex;

use super::counters::{Counters, IndexCounters, Refusals};
use super::follow::Following;
use super::open::IndexDefinition;
use crate::error::{Error, Result};
use crate::table::order::IndexSpec;
use crate::table::tree::{Hold, Tree, TreeOptions, TreeStats};
use crate::vfs::Vfs;

/// Which records delete their key.
#[derive(Clone, Debug, Default)]
pub enum Deletes {
    /// Those whose value is null.
    #[default]
    Null,
    /// Those whose value is null or empty.
    Empty,
    /// None.
    Nothing,
    /// Those whose value is null, or that have a header of this name.
    Header(String),
    /// Those whose value is null or matches.
    Pattern(Regex),
}

impl Deletes {
    /// The rule of that kind; the last two with a text.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] that says what is allowed.
    pub fn parse(kind: &str, text: &str) -> Result<Self> {
        let has_text = matches!(kind, "header" | "pattern");
        if has_text == text.is_empty() {
            return Err(Error::InvalidArgument(format!(
                "deletes {kind:?} with {text:?}: header and pattern need a text, the others have none"
            )));
        }
        match kind {
            "null" => Ok(Self::Null),
            "empty" => Ok(Self::Empty),
            "none" => Ok(Self::Nothing),
            "header" => Ok(Self::Header(text.into())),
            "pattern" => Regex::new(text).map(Self::Pattern).map_err(|error| {
                Error::InvalidArgument(format!("{text:?} is not a regular expression: {error}"))
            }),
            _ => Err(Error::InvalidArgument(format!(
                "records that delete are 'null', 'empty', 'none', 'header' or 'pattern', not {kind:?}"
            ))),
        }
    }
}

/// What becomes of an index when a record cannot be in it that should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnRefusal {
    /// It goes on without the record, and says that it is incomplete.
    #[default]
    Incomplete,
    /// It is not read any more.
    Refuse,
}

/// How a table is kept.
#[derive(Clone, Debug, Default)]
pub struct TableOptions {
    /// Which records delete their key.
    pub deletes: Deletes,
    /// Positions behind the newest one at which it can be read.
    pub history: u64,
    /// How its trees are kept.
    pub tree: TreeOptions,
    /// Bytes that all memory levels together may have before they are flushed; 0 for the default.
    pub memory_bytes: usize,
}

/// An index of a table.
pub struct Index {
    pub(super) id: u128,
    pub(super) name: String,
    pub(super) spec: IndexSpec,
    pub(super) on_refusal: OnRefusal,
    /// Lowest position that it answers at.
    pub(super) base: u64,
    pub(super) tree: Arc<Tree>,
    pub(super) counted: Mutex<IndexCounters>,
    /// Keeps in the primary tree what its building reads there, until it is built.
    pub(super) hold: Mutex<Option<Hold>>,
}

impl Index {
    /// An index with that tree; nothing was counted yet.
    pub(super) fn new(definition: &IndexDefinition, tree: Arc<Tree>) -> Self {
        let counted = IndexCounters {
            position: tree.flushed(),
            ..IndexCounters::default()
        };
        Self {
            id: definition.tree,
            name: definition.name.clone(),
            spec: definition.spec.clone(),
            on_refusal: definition.on_refusal,
            base: definition.base,
            tree,
            counted: Mutex::new(counted),
            hold: Mutex::new(None),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Identity of its tree.
    pub fn id(&self) -> u128 {
        self.id
    }

    /// What it is over.
    pub fn spec(&self) -> &IndexSpec {
        &self.spec
    }

    /// The tree.
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// Lowest position that it answers at.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Whether it has everything that the table had at its base.
    pub fn is_built(&self) -> bool {
        self.tree.applied() >= self.base
    }

    /// Records that should be in it and cannot.
    pub fn refused(&self) -> Refusals {
        self.counted.lock().refused.clone()
    }

    /// Up to where everything of it is durable: trees, and what was counted.
    pub(super) fn retained(&self) -> u64 {
        let flushed = self.tree.flushed();
        if flushed < self.base {
            return self.base;
        }
        flushed
    }
}

/// An index that could not be opened. What it had can be read from the primary tree: drop it, and build it anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostIndex {
    /// Identity of its tree.
    pub id: u128,
    /// Its name.
    pub name: String,
    /// What is wrong with its files.
    pub reason: String,
}

impl LostIndex {
    pub(super) fn of(definition: &IndexDefinition, error: &Error) -> Self {
        Self {
            id: definition.tree,
            name: definition.name.clone(),
            reason: error.to_string(),
        }
    }
}

/// A table that is open for writing. All methods may be called from any thread.
pub struct Table {
    pub(super) vfs: Arc<dyn Vfs>,
    pub(super) dir: PathBuf,
    pub(super) id: u128,
    /// Position before the first record that counts, which may be still to come.
    pub(super) base: u64,
    pub(super) options: TableOptions,
    pub(super) primary_id: u128,
    pub(super) primary: Arc<Tree>,
    /// Indexes that follow the log with the table.
    pub(super) indexes: ArcSwap<Vec<Arc<Index>>>,
    /// Indexes that are being built.
    pub(super) building: Mutex<Vec<Arc<Index>>>,
    /// Trees of indexes that were dropped, while somebody reads them.
    pub(super) dropped: Mutex<Vec<Arc<Index>>>,
    /// Indexes that could not be opened.
    pub(super) lost: Vec<LostIndex>,
    /// Held while something is applied.
    pub(super) following: Mutex<Following>,
    pub(super) counters: Mutex<Counters>,
    /// Up to where the counters are durable.
    pub(super) saved: Mutex<u64>,
    /// Position whose record is still to be compared with what is given, where the log is given; 0 if there is none.
    pub(super) unproven: AtomicU64,
}

/// What a table holds, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct TableStats {
    /// Everything up to this position is applied.
    pub position: u64,
    /// Lowest position that it can be read at.
    pub floor: u64,
    /// The log is needed from this position on.
    pub retained: u64,
    /// What was counted.
    pub counters: Counters,
    /// The primary tree.
    pub primary: TreeStats,
    /// Name, tree, whether it is built, and what was refused, of each index.
    pub indexes: Vec<(String, TreeStats, bool, Refusals)>,
}

impl Table {
    /// Its identity.
    pub fn id(&self) -> u128 {
        self.id
    }

    /// The primary tree.
    pub fn primary(&self) -> &Arc<Tree> {
        &self.primary
    }

    /// Indexes that can be read.
    pub fn indexes(&self) -> Arc<Vec<Arc<Index>>> {
        self.indexes.load_full()
    }

    /// Indexes that are being built.
    pub fn building(&self) -> Vec<Arc<Index>> {
        self.building.lock().clone()
    }

    /// Indexes of the catalog that could not be opened.
    pub fn lost(&self) -> &[LostIndex] {
        &self.lost
    }

    /// Trees of indexes that were dropped and that somebody still reads: their files are not removed yet.
    pub fn dropped_and_read(&self) -> Vec<u128> {
        let mut dropped = self.dropped.lock();
        dropped.retain(|index| index.tree.is_read());
        dropped.iter().map(|index| index.id).collect()
    }

    /// All trees that need their files, those of dropped indexes that somebody reads among them.
    pub fn tree_ids(&self) -> Vec<u128> {
        let (indexes, building) = (self.indexes.load_full(), self.building());
        let indexes = indexes.iter().chain(&building).map(|index| index.id);
        std::iter::once(self.primary_id)
            .chain(indexes)
            .chain(self.dropped_and_read())
            .collect()
    }

    /// Whether somebody reads it, or goes on after it was dropped.
    pub fn is_read(&self) -> bool {
        let indexes = self.indexes.load_full();
        let building = self.building.lock();
        let mut all = indexes.iter().chain(building.iter());
        self.primary.is_read()
            || all.any(|index| index.tree.is_read())
            || !self.dropped_and_read().is_empty()
    }

    /// An index that can be read.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such index, or it is not built yet.
    pub fn index(&self, name: &str) -> Result<Arc<Index>> {
        let indexes = self.indexes.load();
        let found = indexes.iter().find(|index| index.name == name);
        found.cloned().ok_or_else(|| {
            let is_building = self.building.lock().iter().any(|index| index.name == name);
            let state = if is_building {
                " is still being built, so it is"
            } else {
                ""
            };
            Error::NotFound {
                what: format!("index {name:?}{state}"),
            }
        })
    }

    /// All trees that follow the log.
    pub(super) fn trees(&self) -> Vec<Arc<Tree>> {
        let indexes = self.indexes.load();
        let indexes = indexes.iter().map(|index| Arc::clone(&index.tree));
        std::iter::once(Arc::clone(&self.primary))
            .chain(indexes)
            .collect()
    }

    /// Directories of these trees.
    pub(super) fn tree_dirs(&self) -> Vec<PathBuf> {
        self.trees().iter().map(|tree| tree.dir().into()).collect()
    }

    /// Everything up to this position is applied, in all trees.
    pub fn position(&self) -> u64 {
        // Each read asks, so nothing is copied.
        let indexes = self.indexes.load();
        let applied = indexes.iter().map(|index| index.tree.applied());
        applied.fold(self.primary.applied(), u64::min)
    }

    /// Lowest position that can be read.
    pub fn floor(&self) -> u64 {
        self.primary.floor()
    }

    /// Up to where the log is not needed any more.
    pub fn retained(&self) -> u64 {
        let trees = self.trees().into_iter().map(|tree| tree.flushed());
        let building = self.building();
        let building = building.iter().map(|index| index.retained());
        let flushed = trees.chain(building).min().unwrap_or_default();
        flushed.min(*self.saved.lock())
    }

    /// Bytes of all memory levels.
    pub fn memory_bytes(&self) -> usize {
        let indexes = self.indexes.load();
        let of_indexes = indexes.iter().map(|index| index.tree.memory_bytes());
        self.primary.memory_bytes() + of_indexes.sum::<usize>()
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        self.counters.lock().clone()
    }

    /// What it holds.
    pub fn stats(&self) -> TableStats {
        let indexes = self.indexes();
        let building = self.building();
        let all = indexes.iter().chain(&building);
        TableStats {
            position: self.position(),
            floor: self.floor(),
            retained: self.retained(),
            counters: self.counters(),
            primary: self.primary.stats(),
            indexes: all
                .map(|index| {
                    let name = index.name.clone();
                    (name, index.tree.stats(), index.is_built(), index.refused())
                })
                .collect(),
        }
    }
}
