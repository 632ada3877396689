//! Making and opening a table.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::build::refused_at_base;
use super::counters::{self, Counters, IndexCounters, Saved};
use super::table::{Index, LostIndex, OnRefusal, Table, TableOptions};
use crate::error::{Error, Result};
use crate::manifest::Identity;
use crate::table::order::IndexSpec;
use crate::table::run::{RunCache, RunOptions, parse_file_name};
use crate::table::tree::{Tree, TreeOptions};
use crate::vfs::Vfs;

/// What the catalog says of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDefinition {
    /// Identity of its tree.
    pub tree: u128,
    /// Its name.
    pub name: String,
    /// What it is over.
    pub spec: IndexSpec,
    /// What becomes of it when a record cannot be in it.
    pub on_refusal: OnRefusal,
    /// The position of the table when it was made: from the start that of the table's own.
    pub base: u64,
}

/// What the catalog says of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDefinition {
    /// Identity of the node.
    pub node: u128,
    /// Identity of the table.
    pub id: u128,
    /// Identity of the primary tree.
    pub primary: u128,
    /// Position before the first record that counts.
    pub base: u64,
    /// Its indexes.
    pub indexes: Vec<IndexDefinition>,
}

impl Table {
    /// Directory of a table in the directory of all tables.
    pub fn dir_in(tables: &Path, id: u128) -> PathBuf {
        tables.join(format!("{id:032x}"))
    }

    /// Make the files of an empty table. That may be repeated after it was cut short, and before the catalog
    /// says that the table exists.
    pub fn create(
        vfs: &Arc<dyn Vfs>,
        tables: &Path,
        definition: &TableDefinition,
        options: &TableOptions,
        cache: &Arc<RunCache>,
    ) -> Result<()> {
        let dir = Self::dir_in(tables, definition.id);
        create_dir(vfs.as_ref(), &dir)?;
        let TableDefinition {
            node,
            primary,
            base,
            ..
        } = *definition;
        create_tree(vfs, &dir, node, primary, base, options.tree, cache)?;
        for index in &definition.indexes {
            create_index(vfs, &dir, definition, index, options, cache)?;
        }
        Ok(())
    }

    /// Open a table for writing. `first` is the first position of the log.
    ///
    /// A tree that is not there, or was not finished, is made anew if the log still has everything that it follows. An index
    /// that cannot be opened otherwise is lost, see [`Table::lost`].
    ///
    /// # Errors
    /// [`Error::Missing`] where the primary tree is lost; those of [`Tree::open`].
    pub fn open(
        vfs: &Arc<dyn Vfs>,
        tables: &Path,
        definition: &TableDefinition,
        options: TableOptions,
        first: u64,
        cache: &Arc<RunCache>,
    ) -> Result<Arc<Self>> {
        let dir = Self::dir_in(tables, definition.id);
        let TableDefinition {
            node,
            primary,
            base,
            ..
        } = *definition;
        let is_whole = first <= base.saturating_add(1);
        let open = |tree, from_start, options| {
            let anew = (from_start && is_whole).then_some(base);
            open_tree(vfs, &dir, node, tree, (anew, first), options, cache)
        };
        let primary = open(primary, true, options.tree)?;
        let tree_options = options.tree;
        let table = Self::assemble(
            vfs,
            &dir,
            definition,
            options,
            first,
            primary,
            &mut |index| open(index.tree, index.base == base, index_options(tree_options)),
        )?;
        Ok(Arc::new(table))
    }

    /// A table of an open primary tree, and of the trees of its indexes that can be opened.
    pub(super) fn assemble(
        vfs: &Arc<dyn Vfs>,
        dir: &Path,
        definition: &TableDefinition,
        options: TableOptions,
        first: u64,
        primary: Arc<Tree>,
        open: &mut dyn FnMut(&IndexDefinition) -> Result<Arc<Tree>>,
    ) -> Result<Self> {
        let TableDefinition { id, base, .. } = *definition;
        let is_whole = first <= base.saturating_add(1);
        check_reaches(&primary, primary.flushed(), first)?;
        let saved = counters::load(vfs.as_ref(), dir, id)?;
        let is_uncounted = saved.is_none() && !is_whole;
        // Nothing was saved yet, or it was lost: counting begins where the log still allows it.
        let fallback = |flushed: u64| if is_whole { base } else { flushed };
        let (counted, mut of_indexes): Saved = saved.unwrap_or_else(|| {
            let position = fallback(primary.flushed());
            let counters = Counters {
                position,
                ..Counters::default()
            };
            (counters, Saved::default().1)
        });
        let (mut indexes, mut building, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        for index in &definition.indexes {
            let opened =
                open(index).and_then(|tree| index_of(index, tree, &primary, first, is_uncounted));
            let (index, mut counted) = match opened {
                Ok(opened) => opened,
                Err(error) if is_loss(&error) => {
                    lost.push(LostIndex::of(index, &error));
                    continue;
                }
                Err(error) => return Err(error),
            };
            if let Some(saved) = of_indexes.remove(&index.id) {
                counted = saved;
            } else if index.base == base {
                counted.position = fallback(index.tree.flushed());
            }
            *index.counted.lock() = counted;
            if index.is_built() {
                indexes.push(index);
            } else {
                building.push(index);
            }
        }
        let saved = counted.position;
        Ok(Self {
            vfs: Arc::clone(vfs),
            dir: dir.into(),
            id,
            base,
            options,
            primary_id: definition.primary,
            primary,
            indexes: ArcSwap::from_pointee(indexes),
            building: Mutex::new(building),
            dropped: Mutex::default(),
            lost,
            following: Mutex::default(),
            counters: Mutex::new(counted),
            saved: Mutex::new(saved),
            unproven: AtomicU64::new(0),
        })
    }
}

/// Whether an error says that files of an index are gone or damaged: it can be made again of what the primary tree has.
fn is_loss(error: &Error) -> bool {
    matches!(
        error,
        Error::Missing { .. }
            | Error::Corruption { .. }
            | Error::Trimmed { .. }
            | Error::Foreign { .. }
            | Error::WrongIdentity { .. }
    )
}

/// Check that the log has what is behind the last position that a tree has in files. The log is kept for that long, so
/// a manifest that says otherwise has lost its end, and a read would find out much later.
fn check_reaches(tree: &Tree, position: u64, first: u64) -> Result<()> {
    if first <= position.saturating_add(1) {
        return Ok(());
    }
    Err(Error::Missing {
        path: tree.dir().to_owned(),
        reason: format!(
            "its manifest ends at position {position}, and the log begins at {first}: what is between them is lost"
        ),
    })
}

/// An index of a table that is opened, and what it refused before its base. What the building of one that is not built needs of the
/// primary tree is kept. `is_uncounted` says that what it refused is not known any more.
///
/// # Errors
/// [`Error::Trimmed`] where that is gone: its tree was lost, and a new one began at nothing. [`Error::Missing`] where the log, or
/// what it refused, is.
fn index_of(
    definition: &IndexDefinition,
    tree: Arc<Tree>,
    primary: &Tree,
    first: u64,
    is_uncounted: bool,
) -> Result<(Arc<Index>, IndexCounters)> {
    // The chunks of a building have numbers for positions.
    check_reaches(&tree, tree.flushed().max(definition.base), first)?;
    if is_uncounted && definition.on_refusal == OnRefusal::Refuse {
        return Err(Error::Missing {
            path: tree.dir().to_owned(),
            reason: format!(
                "{} is gone, which says whether it lacks records",
                counters::COUNTERS
            ),
        });
    }
    let counted = IndexCounters {
        position: tree.flushed().min(definition.base),
        refused: refused_at_base(&tree)?,
    };
    let index = Index::new(definition, tree);
    if !index.is_built() {
        // The log is applied up to the base later, if a crash took that along.
        *index.hold.lock() = Some(primary.hold_ahead(definition.base)?);
    }
    Ok((Arc::new(index), counted))
}

/// Nobody asks an index for a single key.
pub(super) fn index_options(options: TreeOptions) -> TreeOptions {
    TreeOptions {
        run: RunOptions {
            filter_bits_per_key: 0,
            ..options.run
        },
        ..options
    }
}

/// Make the directory of a table, and that of all tables, which comes with the first of them. Both are durable.
fn create_dir(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    vfs.create_dir_all(dir)?;
    dir.ancestors()
        .skip(1)
        .take(2)
        .filter(|parent| !parent.as_os_str().is_empty())
        .try_for_each(|parent| vfs.sync_dir(parent))
}

fn create_tree(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    node: u128,
    tree: u128,
    flushed: u64,
    options: TreeOptions,
    cache: &Arc<RunCache>,
) -> Result<Arc<Tree>> {
    let identity = Identity { object: tree, node };
    let dir = dir.join(format!("{tree:032x}"));
    match Tree::create(Arc::clone(vfs), &dir, identity, flushed, options, cache) {
        // A creation that is repeated.
        Err(Error::AlreadyExists { .. }) => {
            Tree::open(Arc::clone(vfs), &dir, identity, options, cache).map(|(tree, _)| tree)
        }
        created => created,
    }
}

/// Make the tree of an index: one that the table has from the start begins where the table does, a later one at 0.
pub(super) fn create_index(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    table: &TableDefinition,
    index: &IndexDefinition,
    options: &TableOptions,
    cache: &Arc<RunCache>,
) -> Result<Arc<Tree>> {
    let start = if index.base == table.base {
        table.base
    } else {
        0
    };
    let options = index_options(options.tree);
    create_tree(vfs, dir, table.node, index.tree, start, options, cache)
}

/// Open a tree; if it is not there, make it anew from a position, if there is one at which nothing is lost by that.
fn open_tree(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    node: u128,
    tree: u128,
    (anew, first): (Option<u64>, u64),
    options: TreeOptions,
    cache: &Arc<RunCache>,
) -> Result<Arc<Tree>> {
    let identity = Identity { object: tree, node };
    let path = dir.join(format!("{tree:032x}"));
    let opened = Tree::open(Arc::clone(vfs), &path, identity, options, cache);
    let error = match opened {
        Ok((tree, _)) => return Ok(tree),
        Err(error) => error,
    };
    let is_absent = matches!(error, Error::NotFound { .. }) || {
        // A directory in which nothing but a beginning is.
        matches!(error, Error::Missing { .. }) && !has_runs(vfs.as_ref(), &path)?
    };
    match (error, anew) {
        (error, _) if !is_absent => Err(error),
        (_, Some(start)) => {
            create_dir(vfs.as_ref(), dir)?;
            create_tree(vfs, dir, node, tree, start, options, cache)
        }
        (error, None) => Err(Error::Missing {
            path,
            reason: format!(
                "{error}, and it cannot be made again of the log, which begins at {first}"
            ),
        }),
    }
}

/// Whether a directory has files of runs.
pub(super) fn has_runs(vfs: &dyn Vfs, dir: &Path) -> Result<bool> {
    if !vfs.exists(dir)? {
        return Ok(false);
    }
    let names = vfs.list(dir)?;
    Ok(names.iter().any(|name| parse_file_name(name).is_some()))
}
