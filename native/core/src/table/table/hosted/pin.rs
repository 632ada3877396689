//! The files of one version of a table, for another host to copy.

use std::path::PathBuf;
use std::sync::Arc;

use super::super::counters::{self, COUNTERS, Saved};
use super::super::table::{Index, Table};
use super::bases::{self, BASES, Bases};
use crate::error::{Error, Result};
use crate::manifest::current::{CURRENT, encode_current, file_name as manifest_name};
use crate::manifest::{Identity, encode_snapshot};
use crate::table::run::{Run, RunCache, RunIdentity, file_name as run_name};
use crate::table::tree::Snapshot;
use crate::vfs::{Access, Vfs};

/// Number of the manifest file that a copy begins with.
const FIRST_MANIFEST: u64 = 1;

/// Bytes of pages that are kept while a run is verified: none is read twice.
const CACHE_BYTES: usize = 1 << 20;

/// What a file consists of.
pub enum PinnedContent {
    /// It was made for the copy.
    Made(Vec<u8>),
    /// A run of a tree, whose file stays while this lives.
    Run(u128, Arc<Run>),
}

/// A file to copy.
pub struct PinnedFile {
    /// Below the directory of the table.
    pub path: String,
    /// What is in it.
    pub content: PinnedContent,
}

impl PinnedFile {
    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        match &self.content {
            PinnedContent::Made(bytes) => bytes.len() as u64,
            PinnedContent::Run(_, run) => run.info().bytes,
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// All files of one version. None of them goes away or changes while it lives.
pub struct PinnedTable {
    pub(super) vfs: Arc<dyn Vfs>,
    pub(super) dir: PathBuf,
    pub(super) table: u128,
    /// The log is needed from behind this position on.
    pub flushed: u64,
    /// The files.
    pub files: Vec<PinnedFile>,
}

impl PinnedTable {
    fn file(&self, path: &str) -> Result<&PinnedFile> {
        let found = self.files.iter().find(|file| file.path == path);
        found.ok_or_else(|| Error::NotFound {
            what: format!("{path:?} in the pinned version"),
        })
    }

    /// Read a file that is a run, and check all of it: damage is not copied.
    ///
    /// # Errors
    /// [`Error::Corruption`] where it is damaged; [`Error::NotFound`] if there is no such file; those of the file system.
    pub fn verify(&self, path: &str) -> Result<()> {
        let PinnedContent::Run(tree, run) = &self.file(path)?.content else {
            return Ok(());
        };
        let identity = RunIdentity {
            node: self.table,
            tree: *tree,
            number: run.info().number,
        };
        let dir = self.dir.join(format!("{tree:032x}"));
        // With a cache of its own: the one of the table has pages as they were.
        let cache = Arc::new(RunCache::new(CACHE_BYTES, 1));
        let run = Run::open(Arc::clone(&self.vfs), &dir, identity, run.info(), &cache)?;
        run.verify(&mut |_| {}).map(|_| ())
    }

    /// A part of a file; shorter at its end.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such file; those of the file system.
    pub fn read(&self, path: &str, offset: u64, size: usize) -> Result<Vec<u8>> {
        let file = self.file(path)?;
        let left = file.len().saturating_sub(offset);
        let size = left.min(size as u64) as usize;
        match &file.content {
            PinnedContent::Made(bytes) => {
                let at = (offset as usize).min(bytes.len());
                Ok(bytes[at..at + size].to_vec())
            }
            PinnedContent::Run(..) => {
                let mut part = vec![0; size];
                let file = self.vfs.open(&self.dir.join(path), Access::Read)?;
                if size > 0 {
                    file.read_exact_at(&mut part, offset)?;
                }
                Ok(part)
            }
        }
    }
}

impl Table {
    /// Pin the files as they are, of the primary tree and of indexes that are built. `all` are the bases.
    pub(super) fn pin(&self, all: &Bases) -> Result<PinnedTable> {
        let indexes = self.indexes.load_full();
        let (mut saved, mut bases) = (self.saved_now(&indexes), Bases::new());
        let mut files = Vec::new();
        let primary = self.primary.snapshot();
        let mut flushed = saved.0.position.min(primary.version().flushed());
        self.pin_tree(self.primary_id, &primary, &mut files)?;
        for index in indexes.iter() {
            let snapshot = index.tree.snapshot();
            let version = snapshot.version();
            let base = all.get(&index.id).copied();
            // One that is built, and not flushed yet, is built anew by whoever copies.
            let Some(base) = base.filter(|base| version.flushed() >= *base) else {
                saved.1.remove(&index.id);
                continue;
            };
            bases.insert(index.id, base);
            flushed = flushed.min(version.flushed());
            self.pin_tree(index.id, &snapshot, &mut files)?;
        }
        let made = |path: &str, bytes| PinnedFile {
            path: path.into(),
            content: PinnedContent::Made(bytes),
        };
        files.push(made(COUNTERS, counters::encode(self.id, &saved)));
        files.push(made(BASES, bases::encode(self.id, &bases)));
        Ok(PinnedTable {
            vfs: Arc::clone(&self.vfs),
            dir: self.dir.clone(),
            table: self.id,
            flushed,
            files,
        })
    }

    /// What is counted now.
    fn saved_now(&self, indexes: &[Arc<Index>]) -> Saved {
        let of_index = |index: &Arc<Index>| (index.id, index.counted.lock().clone());
        (self.counters(), indexes.iter().map(of_index).collect())
    }

    fn pin_tree(&self, tree: u128, snapshot: &Snapshot, files: &mut Vec<PinnedFile>) -> Result<()> {
        let dir = format!("{tree:032x}");
        let identity = Identity {
            object: tree,
            node: self.id,
        };
        let version = snapshot.version();
        let manifest = encode_snapshot(identity, FIRST_MANIFEST, version)?;
        let name = manifest_name(FIRST_MANIFEST);
        let mut add = |name: &str, content| {
            let path = format!("{dir}/{name}");
            files.push(PinnedFile { path, content });
        };
        add(CURRENT, PinnedContent::Made(encode_current(FIRST_MANIFEST)));
        add(&name, PinnedContent::Made(manifest));
        for run in snapshot.runs() {
            let name = run_name(run.info().number);
            add(&name, PinnedContent::Run(tree, Arc::clone(run)));
        }
        Ok(())
    }
}
