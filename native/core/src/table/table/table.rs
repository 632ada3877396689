//! The table itself.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use regex::bytes::Regex;

use super::counters::{Counters, IndexCounters, Refusals};
use super::follow::Following;
use crate::error::{Error, Result};
use crate::table::order::IndexSpec;
use crate::table::tree::{Tree, TreeOptions, TreeStats};
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
}

impl Index {
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

/// A table that is open for writing. All methods may be called from any thread.
pub struct Table {
    pub(super) vfs: Arc<dyn Vfs>,
    pub(super) dir: PathBuf,
    pub(super) id: u128,
    pub(super) options: TableOptions,
    pub(super) primary: Arc<Tree>,
    /// Indexes that follow the log with the table.
    pub(super) indexes: ArcSwap<Vec<Arc<Index>>>,
    /// Indexes that are being built.
    pub(super) building: Mutex<Vec<Arc<Index>>>,
    /// Held while something is applied.
    pub(super) following: Mutex<Following>,
    pub(super) counters: Mutex<Counters>,
    /// Up to where the counters are durable.
    pub(super) saved: Mutex<u64>,
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

    /// Everything up to this position is applied, in all trees.
    pub fn position(&self) -> u64 {
        let applied = self.trees().into_iter().map(|tree| tree.applied());
        applied.min().unwrap_or_default()
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
        self.trees().iter().map(|tree| tree.memory_bytes()).sum()
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
