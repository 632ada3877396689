//! The tables of a directory that is made of a backup. How trees are taken along is in [`super::super::tree`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::counters;
use super::hosted::put_bases;
use super::table::Table;
use crate::error::{Error, Result};
use crate::manifest::Identity;
use crate::table::tree::{TreeImage, TreeRestore};
use crate::vfs::Vfs;
use crate::wal::{StreamView, View};

/// What a table counted, as its file has it, and up to which position; nothing if nothing was saved. `tables` is
/// the directory of all tables, `view` and `stream` are the log of the table.
///
/// # Errors
/// [`Error::Corruption`] if it is damaged, or not of that log.
pub fn counters_of(
    vfs: &dyn Vfs,
    tables: &Path,
    id: u128,
    view: &View,
    stream: &StreamView,
) -> Result<Option<(Vec<u8>, u64)>> {
    let dir = Table::dir_in(tables, id);
    let Some((bytes, counters)) = counters::saved(vfs, &dir, id)? else {
        return Ok(None);
    };
    counters.check_in(view, stream, &dir)?;
    Ok(Some((bytes, counters.position)))
}

/// Puts the files of tables in place, one tree after the other.
pub struct TableRestore {
    vfs: Arc<dyn Vfs>,
    tables: PathBuf,
    node: u128,
    open: Option<TreeRestore>,
}

impl TableRestore {
    /// Begin with none in `tables`, the directory of all tables; they become those of `node`.
    pub fn new(vfs: Arc<dyn Vfs>, tables: PathBuf, node: u128) -> Self {
        Self {
            vfs,
            tables,
            node,
            open: None,
        }
    }

    /// Begin a tree of a table with the bytes of its image.
    ///
    /// # Errors
    /// Those of [`TreeImage::decode`] and [`TreeRestore::begin`].
    pub fn begin(&mut self, table: u128, tree: u128, image: &[u8]) -> Result<()> {
        let dir = Table::dir_in(&self.tables, table).join(format!("{tree:032x}"));
        let image = TreeImage::decode(&dir, image)?;
        let identity = Identity {
            object: tree,
            node: self.node,
        };
        self.open = Some(TreeRestore::begin(&self.vfs, &dir, identity, image)?);
        Ok(())
    }

    /// Append to a run of the tree; see [`TreeRestore::append`].
    pub fn append(&mut self, run: u64, data: &[u8]) -> Result<()> {
        self.open.as_mut().ok_or(Error::Closed)?.append(run, data)
    }

    /// End the tree; see [`TreeRestore::finish`].
    pub fn end(&mut self) -> Result<()> {
        self.open.take().ok_or(Error::Closed)?.finish()
    }

    /// Say where the indexes of a table begin, by tree: a node of a cluster keeps that beside the trees, a directory in its
    /// catalog.
    pub fn put_bases(&mut self, table: u128, bases: &[(u128, u64)]) -> Result<()> {
        let dir = Table::dir_in(&self.tables, table);
        self.vfs.create_dir_all(&dir)?;
        put_bases(self.vfs.as_ref(), &dir, table, bases)
    }

    /// End a table, whose trees are there; `counted` is what [`counters_of`] gave. Durable on return.
    pub fn end_table(&mut self, table: u128, counted: Option<&[u8]>) -> Result<()> {
        let dir = Table::dir_in(&self.tables, table);
        self.vfs.create_dir_all(&dir)?;
        if let Some(counted) = counted {
            counters::put(self.vfs.as_ref(), &dir, table, counted)?;
        }
        self.vfs.sync_dir(&dir)?;
        self.vfs.sync_dir(&self.tables)?;
        self.vfs
            .sync_dir(self.tables.parent().unwrap_or(Path::new(".")))
    }
}
