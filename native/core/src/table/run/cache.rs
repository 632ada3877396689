//! What all runs of a directory share: pages in memory, and open files.

use std::hash::{BuildHasherDefault, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, UnitWeighter, Weighter};

use super::page::Page;
use crate::error::{Error, Result};
use crate::limits::{RUN_FILES_OPEN_MAX, RUN_PAGE_BYTES_DEFAULT, TABLE_CACHE_BYTES_DEFAULT};
use crate::vfs::{Access, Vfs, VfsFile};

/// Parts with a lock of their own; readers of a hit share one.
const SHARDS: usize = 8;

/// Pages of runs, up to a bound on their bytes, and their open files, up to a bound on their number. What was
/// used twice stays longer than what was used once, so a scan does not displace everything.
///
/// A page that is larger than an eighth of the bound is not kept.
pub struct RunCache {
    pages: Cache<(u64, u32), Arc<Page>, PageBytes, Mixed>,
    files: Cache<u64, Arc<dyn VfsFile>, UnitWeighter, Mixed>,
    bytes_max: u64,
    next: AtomicU64,
    kept_max: usize,
    kept: AtomicUsize,
}

/// A file that stays open while this lives, so that it can be read although it was removed.
pub(super) struct KeptFile {
    file: Arc<dyn VfsFile>,
    cache: Arc<RunCache>,
}

impl KeptFile {
    pub(super) fn file(&self) -> &Arc<dyn VfsFile> {
        &self.file
    }
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        self.cache.kept.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct PageBytes;

impl Weighter<(u64, u32), Arc<Page>> for PageBytes {
    fn weight(&self, _: &(u64, u32), page: &Arc<Page>) -> u64 {
        page.memory_bytes() as u64
    }
}

type Mixed = BuildHasherDefault<Mixer>;

/// Hashes numbers that this process gives itself, so nobody can choose them to collide.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(32) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    }
}

impl Default for RunCache {
    fn default() -> Self {
        Self::new(TABLE_CACHE_BYTES_DEFAULT, RUN_FILES_OPEN_MAX)
    }
}

impl RunCache {
    /// A cache of at most so many bytes of pages and so many open files.
    pub fn new(bytes_max: usize, files_max: usize) -> Self {
        let pages = (bytes_max / RUN_PAGE_BYTES_DEFAULT).max(SHARDS);
        Self {
            pages: Cache::with_options(
                options(pages, bytes_max as u64),
                PageBytes,
                Mixed::default(),
                DefaultLifecycle::default(),
            ),
            files: Cache::with_options(
                options(files_max.max(SHARDS), files_max.max(SHARDS) as u64),
                UnitWeighter,
                Mixed::default(),
                DefaultLifecycle::default(),
            ),
            bytes_max: bytes_max as u64,
            next: AtomicU64::new(0),
            kept_max: files_max.max(SHARDS),
            kept: AtomicUsize::new(0),
        }
    }

    /// Bytes of pages that it holds.
    pub fn bytes(&self) -> u64 {
        self.pages.weight()
    }

    /// Most bytes of pages that it holds.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// A number for a run that is opened. Another opening of the same file gets another: a number of the
    /// tree may belong to a file that was replaced.
    pub(super) fn register(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn page(&self, run: u64, page: usize) -> Option<Arc<Page>> {
        self.pages.get(&(run, page as u32))
    }

    pub(super) fn keep(&self, run: u64, page: usize, loaded: &Arc<Page>) {
        self.pages.insert((run, page as u32), Arc::clone(loaded));
    }

    pub(super) fn file(&self, run: u64, vfs: &dyn Vfs, path: &Path) -> Result<Arc<dyn VfsFile>> {
        if let Some(file) = self.files.get(&run) {
            return Ok(file);
        }
        let file = vfs.open(path, Access::Read).map_err(of_listed)?;
        self.files.insert(run, Arc::clone(&file));
        Ok(file)
    }

    /// Keep a file open, unless as many are kept already as there may be open ones.
    pub(super) fn keep_file(self: &Arc<Self>, file: Arc<dyn VfsFile>) -> Option<KeptFile> {
        let (order, max) = (Ordering::Relaxed, self.kept_max);
        let more = |kept: usize| (kept < max).then_some(kept + 1);
        self.kept.fetch_update(order, order, more).ok()?;
        Some(KeptFile {
            file,
            cache: Arc::clone(self),
        })
    }

    /// Close the file of a run that nobody reads any more. Its pages go as others come.
    pub(super) fn forget(&self, run: u64) {
        self.files.remove(&run);
    }
}

/// The manifest lists it, so it is not absent but missing.
fn of_listed(error: Error) -> Error {
    match error {
        Error::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Error::Missing {
                path,
                reason: "the manifest lists it".into(),
            }
        }
        other => other,
    }
}

fn options(items: usize, weight: u64) -> quick_cache::Options {
    // Only values that are out of range are refused.
    OptionsBuilder::new()
        .shards(SHARDS)
        .estimated_items_capacity(items)
        .weight_capacity(weight)
        .build()
        .expect("both capacities are given")
}
