//! Writing a run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::filter::{Filter, KeyHash};
use super::footer::Footer;
use super::index::{PageIndex, PagePlace};
use super::info::{RunIdentity, RunInfo, file_name, temporary};
use super::page::{PageBuilder, store};
use crate::batch::Compression;
use crate::error::{Error, Result};
use crate::limits::{
    RUN_INDEX_BYTES_MAX, RUN_PAGE_BYTES_DEFAULT, RUN_PAGE_BYTES_MAX, RUN_SYNC_BYTES,
    TABLE_KEY_BYTES_MAX, TABLE_PAYLOAD_BYTES_MAX,
};
use crate::table::entry::Entry;
use crate::vfs::{Access, Vfs, VfsFile};

/// Bytes that are gathered for one write.
const WRITE_BYTES: usize = 256 << 10;

/// How to write a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// How pages are compressed, where that makes them smaller.
    pub compression: Compression,
    /// Bytes of a page before compression after which the next one begins.
    pub page_bytes: usize,
    /// Size of the filter; 0 for a tree that nobody asks for single keys.
    pub filter_bits_per_key: u32,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            compression: Compression::Lz4,
            page_bytes: RUN_PAGE_BYTES_DEFAULT,
            filter_bits_per_key: 10,
        }
    }
}

/// Writes a run. Dropped before [`RunWriter::finish`], it removes its file.
pub struct RunWriter {
    vfs: Arc<dyn Vfs>,
    /// None once the temporary file is renamed, or was removed.
    file: Option<Arc<dyn VfsFile>>,
    dir: PathBuf,
    identity: RunIdentity,
    options: RunOptions,
    page: PageBuilder,
    raw: Vec<u8>,
    /// Stored pages that wait to be written at `written`.
    pending: Vec<u8>,
    written: u64,
    synced: u64,
    index: PageIndex,
    hashes: Vec<KeyHash>,
    /// First entry of the page that is being filled, and the last key of the page before it.
    first: (Vec<u8>, u64),
    before: Option<Vec<u8>>,
    /// The last entry.
    last: Option<(Vec<u8>, u64)>,
    counts: Counts,
}

struct Counts {
    entries: u64,
    keys: u64,
    tombstones: u64,
    position_min: u64,
    position_max: u64,
    first_key: Vec<u8>,
}

impl RunWriter {
    /// Begin a run in `dir`. What an interrupted attempt left under the same number is removed.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if there is a run of that number; [`Error::InvalidArgument`] for pages
    /// larger than the limit.
    pub fn create(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        identity: RunIdentity,
        options: RunOptions,
    ) -> Result<Self> {
        if options.page_bytes > RUN_PAGE_BYTES_MAX {
            return Err(Error::InvalidArgument(format!(
                "pages of {} bytes are larger than the limit of {RUN_PAGE_BYTES_MAX}",
                options.page_bytes
            )));
        }
        let name = file_name(identity.number);
        if vfs.exists(&dir.join(&name))? {
            return Err(Error::AlreadyExists {
                what: format!("run {name} in {}", dir.display()),
            });
        }
        let path = temporary(dir, identity.number);
        if vfs.exists(&path)? {
            vfs.remove(&path)?;
        }
        let file = vfs.open(&path, Access::CreateNew)?;
        Ok(Self {
            vfs,
            file: Some(file),
            dir: dir.into(),
            identity,
            options,
            page: PageBuilder::default(),
            raw: Vec::new(),
            pending: Vec::new(),
            written: 0,
            synced: 0,
            index: PageIndex::default(),
            hashes: Vec::new(),
            first: (Vec::new(), 0),
            before: None,
            last: None,
            counts: Counts {
                entries: 0,
                keys: 0,
                tombstones: 0,
                position_min: u64::MAX,
                position_max: 0,
                first_key: Vec::new(),
            },
        })
    }

    /// Add the next entry. A refused one changes nothing.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless it is behind the one before; [`Error::TooLarge`] for a key or
    /// payload over its limit. After an I/O error drop the writer.
    pub fn push(&mut self, entry: Entry<'_>) -> Result<()> {
        check_size("key", entry.key.len(), TABLE_KEY_BYTES_MAX)?;
        let payload = entry.payload.map_or(0, <[u8]>::len);
        check_size("payload", payload, TABLE_PAYLOAD_BYTES_MAX)?;
        let is_new_key = self.check_order(&entry)?;

        // A big entry gets a page of its own rather than one that small neighbours are read with.
        if self.page.entries() > 0 && PageBuilder::cost(&entry) > self.options.page_bytes {
            self.end_page()?;
        }
        if self.page.entries() == 0 {
            self.first.0.clear();
            self.first.0.extend_from_slice(entry.key);
            self.first.1 = entry.position;
        }
        self.page.push(entry);
        self.count(&entry, is_new_key);
        if self.page.raw_bytes() >= self.options.page_bytes {
            self.end_page()?;
        }
        Ok(())
    }

    /// Whether the entry begins a new key; an error if it is not behind the last one.
    fn check_order(&self, entry: &Entry<'_>) -> Result<bool> {
        let Some((key, position)) = &self.last else {
            return Ok(true);
        };
        let is_new_key = entry.key != key;
        let is_behind = if is_new_key {
            entry.key > key.as_slice()
        } else {
            entry.position < *position
        };
        if is_behind {
            return Ok(is_new_key);
        }
        Err(Error::InvalidArgument(format!(
            "entry of position {} is not behind that of position {position}",
            entry.position
        )))
    }

    fn count(&mut self, entry: &Entry<'_>, is_new_key: bool) {
        let counts = &mut self.counts;
        if counts.entries == 0 {
            counts.first_key.extend_from_slice(entry.key);
        }
        counts.entries += 1;
        counts.tombstones += u64::from(entry.payload.is_none());
        counts.position_min = counts.position_min.min(entry.position);
        counts.position_max = counts.position_max.max(entry.position);
        if is_new_key {
            counts.keys += 1;
            if self.options.filter_bits_per_key > 0 {
                self.hashes.push(KeyHash::of(entry.key));
            }
        }
        let (key, position) = self.last.get_or_insert_default();
        if is_new_key {
            key.clear();
            key.extend_from_slice(entry.key);
        }
        *position = entry.position;
    }

    fn end_page(&mut self) -> Result<()> {
        let entries = self.page.entries() as u32;
        self.raw.clear();
        self.page.take(&mut self.raw);
        let begin = self.pending.len();
        let compression = store(self.options.compression, &self.raw, &mut self.pending);
        let stored = &self.pending[begin..];
        let (key, position) = &self.first;
        let place = PagePlace {
            offset: self.written + begin as u64,
            first_position: *position,
            stored_bytes: stored.len() as u32,
            raw_bytes: self.raw.len() as u32,
            entries,
            crc: crc32c::crc32c(stored),
            separator_end: 0,
            compression,
        };
        self.index.push(place, self.before.as_deref(), key)?;
        if let Some((key, _)) = &self.last {
            let before = self.before.get_or_insert_default();
            before.clear();
            before.extend_from_slice(key);
        }
        if self.pending.len() >= WRITE_BYTES {
            self.write_pending()?;
        }
        Ok(())
    }

    fn write_pending(&mut self) -> Result<()> {
        let Some(file) = &self.file else {
            return Err(Error::Closed);
        };
        file.write_all_at(&self.pending, self.written)?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        if self.written - self.synced >= RUN_SYNC_BYTES {
            file.sync()?;
            self.synced = self.written;
        }
        Ok(())
    }

    /// Bytes written so far, without the page that is being filled.
    pub fn bytes(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.counts.entries
    }

    /// Make the run durable under its name, and say what the manifest is to list. Without an entry there is no file, and
    /// `None`.
    ///
    /// After an error from the rename on, the run may be there or not: nothing is removed, and the number
    /// must not be used again.
    pub fn finish(mut self) -> Result<Option<RunInfo>> {
        if self.counts.entries == 0 {
            self.abandon()?;
            return Ok(None);
        }
        if self.page.entries() > 0 {
            self.end_page()?;
        }
        let info = self.end_file()?;
        if let Some(file) = &self.file {
            file.sync()?;
        }
        // From here on the temporary name may be gone, and the run belongs to whoever reads the directory.
        self.file = None;
        let number = self.identity.number;
        let path = self.dir.join(file_name(number));
        self.vfs.rename(&temporary(&self.dir, number), &path)?;
        self.vfs.sync_dir(&self.dir)?;
        Ok(Some(info))
    }

    /// Write index, filter and footer.
    fn end_file(&mut self) -> Result<RunInfo> {
        let Counts {
            entries,
            keys,
            tombstones,
            position_min,
            position_max,
            ..
        } = self.counts;
        let first_key = std::mem::take(&mut self.counts.first_key);
        let last_key = self.before.take().unwrap_or_default();
        self.index.finish(first_key.clone(), last_key.clone());
        let pages_bytes = self.bytes();
        let index = self.index.encode();
        let filter = Filter::build(
            &self.hashes,
            self.options.filter_bits_per_key,
            RUN_INDEX_BYTES_MAX,
        );
        let footer = Footer {
            identity: self.identity,
            entries,
            keys,
            tombstones,
            position_min,
            position_max,
            pages_bytes,
            pages: self.index.len() as u32,
            index_bytes: index.len() as u32,
            filter_bytes: filter.bytes().len() as u32,
            probes: filter.probes(),
            index_crc: crc32c::crc32c(&index),
            filter_crc: crc32c::crc32c(filter.bytes()),
        };
        let (footer, checksum) = footer.encode();
        for piece in [&index, filter.bytes(), &footer] {
            self.pending.extend_from_slice(piece);
        }
        self.write_pending()?;
        Ok(RunInfo {
            number: self.identity.number,
            bytes: self.written,
            checksum,
            entries,
            keys,
            tombstones,
            first_key,
            last_key,
            position_min,
            position_max,
        })
    }

    /// Remove what was written. Dropping the writer does the same, but says nothing of an error.
    pub fn abandon(mut self) -> Result<()> {
        self.file = None;
        self.vfs.remove(&temporary(&self.dir, self.identity.number))
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // Whoever drops it is handling another error. What stays is an orphan, which recovery removes.
            let _ = self.vfs.remove(&temporary(&self.dir, self.identity.number));
        }
    }
}

fn check_size(what: &'static str, size: usize, max: usize) -> Result<()> {
    if size <= max {
        return Ok(());
    }
    let (size, max) = (size as u64, max as u64);
    Err(Error::TooLarge { what, size, max })
}
