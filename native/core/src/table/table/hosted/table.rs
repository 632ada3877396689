//! The hosted table itself.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::super::open::{IndexDefinition, TableDefinition, has_runs};
use super::super::orphans::collect;
use super::super::table::{Table, TableOptions, TableStats};
use super::super::verify::Verified;
use super::bases::{self, BASES, Bases};
use super::pin::PinnedTable;
use super::rows::{Bounds, Divided, FoundRows};
use super::spans::LogSpan;
use crate::error::{Error, Result};
use crate::table::run::RunCache;
use crate::table::tree::Hold;
use crate::vfs::Vfs;

/// A table that a node of a cluster keeps. All methods may be called from any thread.
pub struct HostedTable {
    table: Arc<Table>,
    /// Without indexes: these come and go.
    definition: TableDefinition,
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    bases: Mutex<Bases>,
    cache: Arc<RunCache>,
}

/// Keeps what a position sees, in all trees.
pub struct TableLease {
    _holds: Vec<Hold>,
}

impl HostedTable {
    /// Open a table in the directory of all tables; make it if nothing is here. `first` is the first position of the log.
    ///
    /// The definition names the table in place of a node, and says of its indexes what they are; where they begin is known here.
    /// Of those that are not here, or cannot be read, nothing is opened: see [`HostedTable::attach`].
    ///
    /// # Errors
    /// [`Error::Missing`] if something is not here, and the log does not reach back to where the table began; those of
    /// [`Table::open`].
    pub fn open(
        vfs: &Arc<dyn Vfs>,
        tables: &Path,
        definition: &TableDefinition,
        options: &TableOptions,
        first: u64,
        cache: &Arc<RunCache>,
    ) -> Result<Self> {
        let dir = Table::dir_in(tables, definition.id);
        let (id, file_system) = (definition.id, vfs.as_ref());
        let definition = &TableDefinition {
            node: id,
            ..definition.clone()
        };
        let mut bases = match bases::load(file_system, &dir, id)? {
            Some(bases) => bases,
            None => begin(vfs, tables, &dir, definition, options, first, cache)?,
        };
        loop {
            let mut here = definition.clone();
            here.indexes.retain_mut(|index| {
                let base = bases.get(&index.tree);
                index.base = base.copied().unwrap_or_default();
                base.is_some()
            });
            let options = options.clone();
            let table = Table::open(vfs, tables, &here, options, first, cache)?;
            let lost: BTreeSet<_> = table.lost().iter().map(|index| index.id).collect();
            let known: BTreeSet<_> = here.indexes.iter().map(|index| index.tree).collect();
            let before = bases.len();
            bases.retain(|tree, _| known.contains(tree) && !lost.contains(tree));
            if bases.len() < before {
                bases::save(file_system, &dir, id, &bases)?;
            }
            let is_wanted = |tree| tree == definition.primary || bases.contains_key(&tree);
            if lost.is_empty() {
                collect(file_system, &dir, is_wanted)?;
                table.skip_to(first);
                table.prove_from(first);
                let definition = TableDefinition {
                    indexes: Vec::new(),
                    ..definition.clone()
                };
                return Ok(Self {
                    table,
                    definition,
                    vfs: Arc::clone(vfs),
                    dir,
                    bases: Mutex::new(bases),
                    cache: Arc::clone(cache),
                });
            }
            table.close()?;
            drop(table);
            collect(file_system, &dir, is_wanted)?;
        }
    }

    /// The table by itself.
    #[cfg(test)]
    pub(in crate::table::table) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Everything up to this position is applied.
    pub fn applied(&self) -> u64 {
        self.table.position()
    }

    /// Last position of which something is here.
    pub fn reached(&self) -> u64 {
        self.table.reached()
    }

    /// Position of the record that it has to be given next, or of an earlier one.
    pub fn wanted(&self) -> u64 {
        self.table.wanted()
    }

    /// Everything up to this position is in files.
    pub fn flushed(&self) -> u64 {
        self.table.retained()
    }

    /// Lowest position that it can be read at.
    pub fn floor(&self) -> u64 {
        self.table.floor()
    }

    /// Whether memory has to be flushed before more is applied.
    pub fn is_full(&self) -> bool {
        self.table.is_full()
    }

    /// What is in memory and not in files yet, of all trees.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// Apply what the log has next, all of it or nothing. What was applied before is passed over.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where something is left out; [`Error::Malformed`] for what is no batch; [`Error::Corruption`]
    /// where the log is not the one that the table was made of.
    pub fn apply(&self, spans: &[LogSpan<'_>]) -> Result<()> {
        self.table.apply_spans(spans)
    }

    /// Look keys up, as many as `bytes_max` allows, one at least; at a position, or now where it is 0.
    ///
    /// # Errors
    /// [`Error::Trimmed`] and [`Error::BeyondEnd`] where it cannot be read at that position.
    pub fn get_rows(&self, keys: &[&[u8]], at: u64, bytes_max: usize) -> Result<FoundRows> {
        self.table.get_rows(keys, at, bytes_max)
    }

    /// Read rows in order, one at least.
    ///
    /// # Errors
    /// As [`HostedTable::get_rows`]; [`Error::NotFound`] if there is no such index here, or it is not built yet.
    pub fn scan_rows(&self, bounds: &Bounds<'_>, at: u64) -> Result<FoundRows> {
        self.table.scan_rows(bounds, at)
    }

    /// Where to divide a scan for reading it in parts of about `bytes_max` bytes of files, `count_max` parts at most; the direction does
    /// not count.
    ///
    /// # Errors
    /// As [`HostedTable::scan_rows`].
    pub fn divide(&self, bounds: &Bounds<'_>, at: u64) -> Result<Divided> {
        self.table.divide(bounds, at)
    }

    /// Keep what a position sees.
    ///
    /// # Errors
    /// [`Error::Trimmed`] where some of it is gone, [`Error::BeyondEnd`] where it is not applied.
    pub fn lease(&self, position: u64) -> Result<TableLease> {
        let holds = self.table.hold(position)?;
        Ok(TableLease { _holds: holds })
    }

    /// Write what is in memory to files; false if there was nothing to do.
    pub fn flush(&self) -> Result<bool> {
        self.table.flush()
    }

    /// Do one merge; false if none is wanted.
    pub fn merge(&self) -> Result<bool> {
        self.table.merge()
    }

    /// Whether an index is built; `None` if it is not here.
    pub fn is_built(&self, tree: u128) -> Option<bool> {
        if self.table.indexes().iter().any(|index| index.id() == tree) {
            return Some(true);
        }
        let building = self.table.building();
        building
            .iter()
            .any(|index| index.id() == tree)
            .then_some(false)
    }

    /// Begin an index if it is not here.
    ///
    /// # Errors
    /// Those of the file system; nothing has begun then.
    pub fn attach(&self, index: &IndexDefinition) -> Result<()> {
        if self.is_built(index.tree).is_some() {
            return Ok(());
        }
        let begun = self
            .table
            .begin_index(&self.definition, index, &self.cache)?;
        let base = begun.base();
        let stored = self.flush_to(base).and_then(|()| {
            let mut bases = self.bases.lock();
            let mut more = bases.clone();
            more.insert(index.tree, base);
            bases::save(self.vfs.as_ref(), &self.dir, self.table.id(), &more)?;
            *bases = more;
            Ok(())
        });
        stored.inspect_err(|_| {
            // It was begun above, and nobody else knows of it.
            let _ = self.table.drop_index(index.tree);
        })
    }

    /// Have everything up to a position in files: a base is not given before.
    fn flush_to(&self, position: u64) -> Result<()> {
        while self.table.primary().flushed() < position {
            self.table.flush()?;
        }
        Ok(())
    }

    /// Build an index; nothing if it is built. `progress` is told records read, and says whether to go on.
    ///
    /// # Errors
    /// [`Error::Closed`] if `progress` said to stop; [`Error::InvalidArgument`] if a record cannot be in an index that
    /// must not be incomplete; those of reading and writing.
    pub fn build(&self, tree: u128, progress: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        self.table.build_index_of_itself(tree, progress)
    }

    /// Give an index up, built or not; nothing if it is not here.
    ///
    /// # Errors
    /// Those of the file system; its files are removed by the next open then.
    pub fn detach(&self, tree: u128) -> Result<()> {
        match self.table.drop_index(tree) {
            Ok(()) | Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut bases = self.bases.lock();
        if bases.remove(&tree).is_some() {
            bases::save(self.vfs.as_ref(), &self.dir, self.table.id(), &bases)?;
        }
        let wanted: BTreeSet<_> = self.table.tree_ids().into_iter().collect();
        collect(self.vfs.as_ref(), &self.dir, |tree| wanted.contains(&tree))?;
        Ok(())
    }

    /// Keep the files as they are, for another host to copy.
    pub fn pin(&self) -> Result<PinnedTable> {
        self.table.pin(&self.bases.lock())
    }

    /// Read everything, see [`Table::verify_while`].
    pub fn verify(&self, progress: &mut dyn FnMut(u64) -> bool) -> Result<Verified> {
        self.table.verify_while(progress)
    }

    /// What it holds.
    pub fn stats(&self) -> TableStats {
        self.table.stats()
    }

    /// End all manifests in good order, and then what is running. What is in memory is not flushed: the log has it.
    pub fn close(&self) -> Result<()> {
        let closed = self.table.close();
        self.table.abandon();
        closed
    }
}

/// Make the files of a table of which nothing is here.
fn begin(
    vfs: &Arc<dyn Vfs>,
    tables: &Path,
    dir: &Path,
    definition: &TableDefinition,
    options: &TableOptions,
    first: u64,
    cache: &Arc<RunCache>,
) -> Result<Bases> {
    let begin = definition.base.saturating_add(1);
    if first > begin {
        let reason = format!("the table began at {begin}, and its log begins at {first}");
        let path = dir.into();
        return Err(Error::Missing { path, reason });
    }
    let primary = dir.join(format!("{:032x}", definition.primary));
    if has_runs(vfs.as_ref(), &primary)? {
        let reason = "the table has runs, so the file was there".into();
        let path = dir.join(BASES);
        return Err(Error::Missing { path, reason });
    }
    let mut definition = definition.clone();
    for index in &mut definition.indexes {
        index.base = definition.base;
    }
    let trees = definition.indexes.iter();
    let bases: Bases = trees.map(|index| (index.tree, index.base)).collect();
    vfs.create_dir_all(dir)?;
    vfs.sync_dir(tables)?;
    Table::create(vfs, tables, &definition, options, cache)?;
    // Last: where this file is, there is a table.
    bases::save(vfs.as_ref(), dir, definition.id, &bases)?;
    Ok(bases)
}

impl Table {
    /// Whether memory has to be flushed before more is applied.
    pub(super) fn is_full(&self) -> bool {
        self.memory_bytes() >= self.memory_bytes_max()
    }

    /// Give up what was not counted and is not in the log any more.
    pub(super) fn skip_to(&self, first: u64) {
        let below = first.saturating_sub(1).min(self.position());
        let mut counters = self.counters.lock();
        if below > counters.position {
            counters.position = below;
            counters.last = 0;
        }
        for index in self.indexes.load().iter() {
            let mut counted = index.counted.lock();
            counted.position = counted.position.max(below);
        }
    }

    /// Keep what a position sees, in all trees that can be read there.
    pub(super) fn hold(&self, position: u64) -> Result<Vec<Hold>> {
        let mut holds = vec![self.primary.hold(position)?];
        for index in self.indexes.load().iter() {
            match index.tree.hold(position) {
                Ok(hold) => holds.push(hold),
                // It was built later, and does not answer there.
                Err(Error::Trimmed { .. } | Error::BeyondEnd { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(holds)
    }
}
