//! Making and opening a table.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::build::refused_at_base;
use super::counters::{self, Counters, IndexCounters, Saved};
use super::table::{Index, OnRefusal, Table, TableOptions};
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
        vfs.create_dir_all(&dir)?;
        vfs.sync_dir(tables)?;
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
    /// A tree that is not there, or was not finished, is made anew if the log still has everything that it follows.
    ///
    /// # Errors
    /// [`Error::Missing`] otherwise; those of [`Tree::open`].
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
            id,
            primary,
            base,
            ..
        } = *definition;
        let open = |tree, base, start, options| {
            open_tree(vfs, &dir, node, tree, (base, start, first), options, cache)
        };
        let primary = open(primary, base, base, options.tree)?;
        let saved = counters::load(vfs.as_ref(), &dir, id)?;
        // Nothing was saved yet, or it was lost: counting begins where the log still allows it.
        let fallback = |flushed: u64| if first <= base + 1 { base } else { flushed };
        let (counted, mut of_indexes): Saved = saved.unwrap_or_else(|| {
            let position = fallback(primary.flushed());
            let counters = Counters {
                position,
                ..Counters::default()
            };
            (counters, Saved::default().1)
        });
        let (mut indexes, mut building) = (Vec::new(), Vec::new());
        for index in &definition.indexes {
            // A later index reads what was before its base from the primary tree, so it begins at 0.
            let start = if index.base == base { base } else { 0 };
            let tree = open(index.tree, index.base, start, index_options(options.tree))?;
            let counted = match of_indexes.remove(&index.tree) {
                Some(counted) => counted,
                None if index.base == base => IndexCounters {
                    position: fallback(tree.flushed()),
                    ..IndexCounters::default()
                },
                None => IndexCounters {
                    position: tree.flushed().min(index.base),
                    refused: refused_at_base(&tree)?,
                },
            };
            let index = Arc::new(Index {
                id: index.tree,
                name: index.name.clone(),
                spec: index.spec.clone(),
                on_refusal: index.on_refusal,
                base: index.base,
                counted: Mutex::new(counted),
                tree,
            });
            if index.is_built() {
                indexes.push(index);
            } else {
                building.push(index);
            }
        }
        let saved = counted.position;
        Ok(Arc::new(Self {
            vfs: Arc::clone(vfs),
            dir,
            id,
            options,
            primary,
            indexes: ArcSwap::from_pointee(indexes),
            building: Mutex::new(building),
            following: Mutex::default(),
            counters: Mutex::new(counted),
            saved: Mutex::new(saved),
        }))
    }
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

/// Open a tree that follows the log behind `base` and began at `start`; make it anew if it is not there and nothing is lost by that.
fn open_tree(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    node: u128,
    tree: u128,
    (base, start, first): (u64, u64, u64),
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
    let is_whole = first <= base.saturating_add(1);
    match error {
        error if !is_absent => Err(error),
        _ if is_whole => {
            vfs.create_dir_all(dir)?;
            create_tree(vfs, dir, node, tree, start, options, cache)
        }
        error => Err(Error::Missing {
            path,
            reason: format!(
                "{error}, and the log begins at {first}, behind the start of the tree at {}",
                base + 1
            ),
        }),
    }
}

fn has_runs(vfs: &dyn Vfs, dir: &Path) -> Result<bool> {
    if !vfs.exists(dir)? {
        return Ok(false);
    }
    let names = vfs.list(dir)?;
    Ok(names.iter().any(|name| parse_file_name(name).is_some()))
}
