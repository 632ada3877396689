//! Flushing, merging, closing.

use std::sync::Arc;

use super::counters;
use super::read::record_position;
use super::table::{Index, Table};
use crate::error::{Error, Result};
use crate::table::entry::Entry;
use crate::table::tree::Tree;

impl Table {
    /// Let versions go that no position at which the table may be read needs.
    fn raise_floors(&self) {
        let floor = self.position().saturating_sub(self.options.history);
        for tree in self.trees() {
            tree.raise_floor(floor);
        }
    }

    /// Write what is in memory to files; false if nothing was applied since the last time.
    ///
    /// # Errors
    /// Those of the file system. Nothing is lost, and the next flush goes on.
    pub fn flush(&self) -> Result<bool> {
        self.raise_floors();
        let mut is_done = false;
        for tree in self.trees() {
            is_done |= tree.flush()?;
        }
        self.save_counters(false)?;
        Ok(is_done)
    }

    /// Make durable what was counted, if the table went on since the last time or `anyway`.
    pub(super) fn save_counters(&self, anyway: bool) -> Result<()> {
        // Held all the while, so that an older state never replaces a newer one.
        let mut saved = self.saved.lock();
        let (counted, indexes) = {
            let counters = self.counters.lock();
            let indexes = self.indexes.load();
            let of_index = |index: &Arc<Index>| (index.id, index.counted.lock().clone());
            (counters.clone(), indexes.iter().map(of_index).collect())
        };
        let position = counted.position;
        if anyway || position > *saved {
            counters::save(self.vfs.as_ref(), &self.dir, self.id, &(counted, indexes))?;
            *saved = position;
        }
        Ok(())
    }

    /// Do one merge, split or coalescing of one of the trees; false if none is wanted.
    ///
    /// # Errors
    /// Those of the file system, and [`Error::Corruption`] of a page that it reads. Its inputs stay.
    pub fn merge(&self) -> Result<bool> {
        self.merge_by(Tree::merge)
    }

    /// As [`Table::merge`], until every tree has as few entries as it can have.
    pub fn compact(&self) -> Result<bool> {
        self.merge_by(Tree::compact)
    }

    fn merge_by(
        &self,
        merge: impl Fn(&Tree, Option<&mut crate::table::tree::Filter<'_>>) -> Result<bool>,
    ) -> Result<bool> {
        self.raise_floors();
        if merge(&self.primary, None)? || self.primary.reshape()? {
            return Ok(true);
        }
        for index in self.indexes.load().iter() {
            // What the primary tree has forgotten cannot be asked of it.
            index.tree.raise_floor(self.primary.floor());
            let mut filter = |entry: &Entry<'_>, floor: u64| self.is_needed(index, entry, floor);
            if merge(&index.tree, Some(&mut filter))? || index.tree.reshape()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether an entry of an index may still be of the visible record at a position from `floor` on.
    fn is_needed(&self, index: &Index, entry: &Entry<'_>, floor: u64) -> Result<bool> {
        if entry.key.is_empty() {
            // The mark of a building that is over.
            return Ok(false);
        }
        let Some(position) = record_position(entry.position, entry.payload) else {
            return Ok(true);
        };
        if position > floor {
            return Ok(true);
        }
        let at = index.spec.record_key_at(entry.key)?;
        match self.primary.snapshot().get(&entry.key[at..], floor) {
            Ok(hit) => {
                Ok(hit.is_some_and(|hit| hit.position() == position && hit.payload().is_some()))
            }
            Err(Error::Trimmed { .. } | Error::BeyondEnd { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Find out what became of changes whose outcome is unknown, and remove files that nobody needs any more.
    pub fn settle(&self) -> Result<()> {
        self.all_trees().iter().try_for_each(|tree| tree.settle())
    }

    /// Say that the table was dropped: nothing is changed any more.
    pub fn abandon(&self) {
        for tree in self.all_trees() {
            tree.abandon();
        }
    }

    /// End all manifests in good order. What is in memory is not flushed: the log has it.
    pub fn close(&self) -> Result<()> {
        self.all_trees().iter().try_for_each(|tree| tree.close())
    }

    fn all_trees(&self) -> Vec<Arc<Tree>> {
        let mut trees = self.trees();
        let building = self.building.lock();
        trees.extend(building.iter().map(|index| Arc::clone(&index.tree)));
        trees
    }
}
