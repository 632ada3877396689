//! Reading a table that another process writes.
//!
//! # Theory of operation
//!
//! What the files have is read as the writer reads it. What the log has behind them is applied to memory levels that belong to
//! the follower, in the same way. A refresh goes in this order: the manifests, then the log. So the log as it
//! is seen is never older than the files, and the trees have a position in common. Between two of these steps the writer may
//! flush, trim the log and remove files. Then something is not where it was looked for, and all is looked at again.
//!
//! A snapshot may be read while the writer merges. The files that it has open stay readable; if there are too many to be
//! kept open, what was in the others is read from newer files, if these still have the position.
//!
//! Memory is bounded. A writer flushes when its own is full, so that only one that is away, or much behind its log, leaves
//! more: then the table is refused, and nothing of it is shown.
//!
//! # Invariants
//!
//! 1. Of each tree memory has what is above its flushed position, up to the same position of the log.
//! 2. A snapshot equals that of a writer that had applied the log up to its position.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::counters;
use super::follow::{Followed, Following};
use super::open::{TableDefinition, index_options};
use super::read::{Renew, Row, TableSnapshot};
use super::table::{LostIndex, Table, TableOptions, TableStats};
use super::verify::Verified;
use crate::error::{Error, Result};
use crate::limits::{TABLE_FOLLOWED_MEMORIES, TABLE_MEMORY_BYTES_DEFAULT, TREE_FOLLOWED_BYTES_MAX};
use crate::manifest::Identity;
use crate::table::run::RunCache;
use crate::table::tree::{TreeFollower, TreeOptions, is_missing};
use crate::vfs::Vfs;
use crate::wal::{StreamView, View};

/// Flushes and merges that may overtake one attempt to look. Each takes the writer several syncs.
const ATTEMPTS: usize = 64;

/// How often a verification begins anew: each reads everything.
const VERIFICATIONS: usize = 3;

/// The log of a table, as a reader in another process sees it.
pub struct FollowedLog<'a> {
    /// All logs of the directory.
    pub view: &'a View,
    /// The log.
    pub stream: &'a StreamView,
    /// Shows what has become durable since the last time.
    pub refresh: &'a (dyn Fn() -> Result<()> + Sync),
}

/// A table that another process may be writing. Changes nothing on disk. All methods may be called from any thread.
pub struct TableFollower {
    /// Nothing but reading and applying is asked of it: its trees have no manifest that they could write.
    table: Table,
    /// Those of the primary tree and of the indexes. Locked before what the table locks.
    trees: Mutex<Vec<TreeFollower>>,
    /// Whether the log was seen to be the one that the table was made of.
    is_proven: AtomicBool,
}

impl TableFollower {
    /// Open a table of which the catalog says that its indexes are built. It shows nothing before the first [`TableFollower::snapshot`].
    ///
    /// # Errors
    /// [`Error::Missing`] where a file of the primary tree is not there, which may be because the table was dropped meanwhile;
    /// those of reading. An index that cannot be opened is lost, see [`TableFollower::lost`].
    pub fn open(
        vfs: &Arc<dyn Vfs>,
        tables: &Path,
        definition: &TableDefinition,
        options: TableOptions,
        first: u64,
        cache: &Arc<RunCache>,
    ) -> Result<Arc<Self>> {
        let options = bounded(options);
        let dir = Table::dir_in(tables, definition.id);
        let mut trees = Vec::new();
        let mut open = |tree: u128, options: TreeOptions| {
            let (object, node) = (tree, definition.node);
            let path = dir.join(format!("{tree:032x}"));
            let identity = Identity { object, node };
            let opened = TreeFollower::open(vfs, &path, identity, options, cache);
            let follower = opened.map_err(|error| match error {
                // The catalog has it.
                Error::NotFound { what } => Error::Missing {
                    path,
                    reason: format!("{what} not found"),
                },
                other => other,
            })?;
            let tree = Arc::clone(follower.tree());
            trees.push(follower);
            Ok(tree)
        };
        let primary = open(definition.primary, options.tree)?;
        let of_indexes = index_options(options.tree);
        let table = Table::assemble(
            vfs,
            &dir,
            definition,
            options,
            first,
            primary,
            &mut |index| {
                let tree = open(index.tree, of_indexes)?;
                if tree.flushed() < index.base {
                    return Err(Error::Missing {
                        path: tree.dir().into(),
                        reason: "its building did not end".into(),
                    });
                }
                Ok(tree)
            },
        )?;
        // Of an index that is lost nothing is asked.
        let known = table.tree_dirs();
        trees.retain(|follower| known.iter().any(|dir| dir == follower.tree().dir()));
        Ok(Arc::new(Self {
            table,
            trees: Mutex::new(trees),
            is_proven: AtomicBool::new(false),
        }))
    }

    /// The table as of what the log has now.
    ///
    /// # Errors
    /// [`Error::Unflushed`] where the log has more behind the files than memory may take; [`Error::Missing`] or [`Error::Corruption`]
    /// where a file is lost or damaged; those of reading. The next call begins anew.
    pub fn snapshot(self: &Arc<Self>, log: &FollowedLog<'_>) -> Result<TableSnapshot> {
        let mut trees = self.trees.lock();
        let mut following = self.table.following.lock();
        for attempt in 1.. {
            match self.look(&mut trees, &mut following, log) {
                Ok(Some(mut snapshot)) => {
                    snapshot.renew = Some(Arc::clone(self) as Arc<dyn Renew>);
                    return Ok(snapshot);
                }
                Ok(None) if attempt >= ATTEMPTS => break,
                Err(error) if attempt >= ATTEMPTS || !may_be_overtaken(&error) => {
                    return Err(error);
                }
                // Where reading stood may be in a segment that was used again.
                _ => *following = Following::default(),
            }
        }
        Err(Error::Missing {
            path: self.table.dir.clone(),
            reason: format!("its writer overtook {ATTEMPTS} attempts to look at its trees"),
        })
    }

    /// Look at everything once. `None` where the trees have no position in common.
    fn look(
        &self,
        trees: &mut [TreeFollower],
        following: &mut Following,
        log: &FollowedLog<'_>,
    ) -> Result<Option<TableSnapshot>> {
        self.refresh(trees, log)?;
        let end = log.stream.range().end;
        loop {
            let followed = self.table.follow_by(following, log.view, log.stream, end);
            let max = self.table.memory_bytes_max() as u64;
            let Followed { position, is_full } = match followed {
                // Of one tree alone.
                Err(Error::TooLarge { .. }) => return Err(Error::Unflushed { max }),
                other => other?,
            };
            if position + 1 >= end {
                return Ok(self.table.snapshot_once());
            }
            if is_full {
                return Err(Error::Unflushed { max });
            }
        }
    }

    /// Look at the manifests, and then at the log, which has all that is in the files.
    ///
    /// # Errors
    /// [`Error::Corruption`] if it has not; those of reading.
    fn refresh(&self, trees: &mut [TreeFollower], log: &FollowedLog<'_>) -> Result<()> {
        for tree in trees {
            tree.refresh()?;
        }
        self.take_counters()?;
        (log.refresh)()?;
        if self.is_proven.load(Ordering::Acquire) {
            return self.table.check_behind(log.stream.range().end);
        }
        self.table.check_origin(log.view, log.stream)?;
        self.is_proven.store(true, Ordering::Release);
        Ok(())
    }

    /// Check that the log is the one that the table was made of, without applying anything.
    ///
    /// # Errors
    /// [`Error::Corruption`] if it is not; those of reading.
    pub fn check(&self, log: &FollowedLog<'_>) -> Result<()> {
        let mut trees = self.trees.lock();
        let _alone = self.table.following.lock();
        for attempt in 1.. {
            match self.refresh(&mut trees, log) {
                Err(error) if attempt < ATTEMPTS && may_be_overtaken(&error) => {}
                checked => return checked,
            }
        }
        Ok(())
    }

    /// Take over what the writer counted, if it flushed more than was applied here: the log may not have that any more.
    fn take_counters(&self) -> Result<()> {
        let table = &self.table;
        let indexes = table.indexes.load();
        let is_behind = table.counters.lock().position < table.primary.flushed()
            || indexes
                .iter()
                .any(|index| index.counted.lock().position < index.tree.flushed());
        if !is_behind {
            return Ok(());
        }
        let Some((saved, mut of_indexes)) =
            counters::load(table.vfs.as_ref(), &table.dir, table.id)?
        else {
            return Ok(());
        };
        let mut counters = table.counters.lock();
        if saved.position > counters.position {
            *counters = saved;
        }
        for index in indexes.iter() {
            let mut counted = index.counted.lock();
            if let Some(saved) = of_indexes.remove(&index.id)
                && saved.position > counted.position
            {
                *counted = saved;
            }
        }
        Ok(())
    }

    /// The newest record of a key, of what the log has now; none if there is none, or it was deleted.
    ///
    /// # Errors
    /// As [`TableFollower::snapshot`].
    pub fn get(self: &Arc<Self>, log: &FollowedLog<'_>, key: &[u8]) -> Result<Option<Row>> {
        self.read(log, ATTEMPTS, |snapshot| snapshot.get(key))
    }

    /// Read what the log has now; by a newer position where the writer has merged what the read needed.
    fn read<T>(
        self: &Arc<Self>,
        log: &FollowedLog<'_>,
        attempts: usize,
        mut read: impl FnMut(&TableSnapshot) -> Result<T>,
    ) -> Result<T> {
        let mut found = read(&self.snapshot(log)?);
        for _ in 1..attempts {
            if !matches!(found, Err(Error::Overtaken { .. })) {
                break;
            }
            found = read(&self.snapshot(log)?);
        }
        found
    }

    /// Read every record and every entry of the indexes, as [`Table::verify_while`] does.
    ///
    /// # Errors
    /// As [`Table::verify_while`] and [`TableFollower::snapshot`].
    pub fn verify(
        self: &Arc<Self>,
        log: &FollowedLog<'_>,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Verified> {
        self.read(log, VERIFICATIONS, |snapshot| {
            let (position, first) = (snapshot.position(), snapshot.floor());
            // It looks at single files, and where one is gone it begins anew.
            snapshot.verify(progress).map_err(|error| {
                if is_missing(&error) {
                    Error::Overtaken { position, first }
                } else {
                    error
                }
            })
        })
    }

    /// Everything up to this position was applied at the last look.
    pub fn position(&self) -> u64 {
        self.table.position()
    }

    /// Indexes of the catalog that could not be opened.
    pub fn lost(&self) -> &[LostIndex] {
        self.table.lost()
    }

    /// What it held at the last look.
    pub fn stats(&self) -> TableStats {
        let mut stats = self.table.stats();
        // Another process holds, and raises it.
        stats.floor = stats.primary.floor;
        let flushed = self.table.trees().into_iter().map(|tree| tree.flushed());
        stats.retained = flushed.min().unwrap_or_default();
        stats
    }
}

impl Renew for TableFollower {
    fn renew(&self, position: u64) -> Result<TableSnapshot> {
        let mut trees = self.trees.lock();
        // Nothing is applied meanwhile.
        let _alone = self.table.following.lock();
        for tree in &mut *trees {
            tree.refresh()?;
        }
        let first = self.table.primary.snapshot().floor();
        let overtaken = Error::Overtaken { position, first };
        let snapshot = self.table.snapshot_once().ok_or(overtaken)?;
        snapshot.at(position).map_err(|error| match error {
            Error::Trimmed { position, first } => Error::Overtaken { position, first },
            other => other,
        })
    }
}

/// More than the writer's own memory, which is full while it flushes.
fn bounded(options: TableOptions) -> TableOptions {
    let of_writer = match options.memory_bytes {
        0 => TABLE_MEMORY_BYTES_DEFAULT,
        bytes => bytes,
    };
    TableOptions {
        memory_bytes: of_writer.saturating_mul(TABLE_FOLLOWED_MEMORIES),
        tree: TreeOptions {
            memory_bytes_max: TREE_FOLLOWED_BYTES_MAX,
            ..options.tree
        },
        ..options
    }
}

/// Whether an error may be of something that the writer has removed, trimmed or written over since it was looked up.
fn may_be_overtaken(error: &Error) -> bool {
    is_missing(error) || matches!(error, Error::Trimmed { .. } | Error::Corruption { .. })
}
