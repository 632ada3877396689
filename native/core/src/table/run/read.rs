//! Reading a run.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cache::{KeptFile, RunCache};
use super::filter::{Filter, KeyHash};
use super::footer::{FOOTER_BYTES, Footer};
use super::index::PageIndex;
use super::info::{RunIdentity, RunInfo, check_identity, file_name};
use super::page::Page;
use super::scan::RunEntries;
use crate::error::{Error, Result};
use crate::table::entry::{Direction, Entries, Entry};
use crate::vfs::{Vfs, VfsFile};

/// An open run. Its file has to stay where it is until the last of its users is gone: it is closed and opened
/// again as descriptors are needed. One that was opened by [`Run::open_kept`] is read to its end although another process
/// removes it, if there are not too many of them.
pub struct Run {
    vfs: Arc<dyn Vfs>,
    cache: Arc<RunCache>,
    /// What the cache knows it by.
    id: u64,
    path: PathBuf,
    info: RunInfo,
    pub(super) index: PageIndex,
    filter: Filter,
    kept: Option<KeptFile>,
}

/// An entry that was found, without a copy: it keeps its page.
pub struct Found {
    pub(super) page: Arc<Page>,
    at: usize,
}

impl Found {
    pub(super) fn new(page: Arc<Page>, at: usize) -> Self {
        Self { page, at }
    }

    /// The entry.
    pub fn entry(&self) -> Entry<'_> {
        self.page.entry(self.at)
    }

    /// Its position.
    pub fn position(&self) -> u64 {
        self.page.position(self.at)
    }

    /// Its payload; none of a tombstone.
    pub fn payload(&self) -> Option<&[u8]> {
        self.page.payload(self.at)
    }
}

/// What [`Run::verify`] read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunReport {
    /// Entries, tombstones included.
    pub entries: u64,
    /// Distinct keys.
    pub keys: u64,
    /// Entries without a payload.
    pub tombstones: u64,
}

impl Run {
    /// Open the run that `info` lists in `dir`. Reads footer, index and filter, and no page.
    ///
    /// # Errors
    /// [`Error::Missing`] if there is no such file or it is shorter; [`Error::WrongIdentity`] if it belongs elsewhere;
    /// [`Error::Newer`]; [`Error::Corruption`] for all else that is not as it was written.
    pub fn open(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        identity: RunIdentity,
        info: &RunInfo,
        cache: &Arc<RunCache>,
    ) -> Result<Arc<Self>> {
        Self::open_file(vfs, dir, identity, info, cache, false)
    }

    /// As [`Run::open`], for one who cannot keep the file from being removed.
    ///
    /// # Errors
    /// Those of [`Run::open`]. Reading fails with [`Error::Missing`] where the file was removed and could not be kept open.
    pub fn open_kept(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        identity: RunIdentity,
        info: &RunInfo,
        cache: &Arc<RunCache>,
    ) -> Result<Arc<Self>> {
        Self::open_file(vfs, dir, identity, info, cache, true)
    }

    fn open_file(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        identity: RunIdentity,
        info: &RunInfo,
        cache: &Arc<RunCache>,
        is_kept: bool,
    ) -> Result<Arc<Self>> {
        let path = dir.join(file_name(info.number));
        let id = cache.register();
        let file = cache.file(id, vfs.as_ref(), &path)?;
        let read = read_tail(file.as_ref(), &path, identity, info);
        let (index, filter) = read.inspect_err(|_| cache.forget(id))?;
        let kept = if is_kept { cache.keep_file(file) } else { None };
        Ok(Arc::new(Self {
            vfs,
            cache: Arc::clone(cache),
            id,
            path,
            info: info.clone(),
            index,
            filter,
            kept,
        }))
    }

    /// What the manifest lists.
    pub fn info(&self) -> &RunInfo {
        &self.info
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of index and filter, which stay in memory while it is open.
    pub fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.filter.bytes().len()
    }

    /// The newest version of `key` that is not above position `at`.
    pub fn get(&self, key: &[u8], at: u64) -> Result<Option<Found>> {
        self.get_hashed(key, KeyHash::of(key), at)
    }

    /// As [`Run::get`], for one who asks several runs and hashes the key once.
    pub fn get_hashed(&self, key: &[u8], hash: KeyHash, at: u64) -> Result<Option<Found>> {
        if at < self.info.position_min || !self.filter.may_contain(hash) {
            return Ok(None);
        }
        let mut number = self.index.page_of(key, at);
        let mut page = self.page(number)?;
        let mut found = page.seek(key, at);
        if found == page.len() {
            // It may be the first of the next page, if anywhere.
            number += 1;
            if number == self.index.len() || self.index.separator(number) > key {
                return Ok(None);
            }
            page = self.page(number)?;
            found = page.seek(key, at);
        }
        let is_it = found < page.len() && page.key(found) == key;
        Ok(is_it.then(|| Found::new(page, found)))
    }

    /// Go through the entries with keys of `begin..end`; `None` is no bound.
    pub fn entries(
        self: &Arc<Self>,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
        direction: Direction,
    ) -> RunEntries {
        RunEntries::new(self, begin, end, direction, 1)
    }

    /// As [`Run::entries`], for a pass that nobody repeats: reads far ahead from the beginning, and leaves the cache as it is.
    pub fn entries_once(self: &Arc<Self>, begin: Option<&[u8]>, end: Option<&[u8]>) -> RunEntries {
        RunEntries::new(self, begin, end, Direction::Forward, usize::MAX)
    }

    /// About how many bytes of the file have keys of `begin..end`: off by at most a page at either side.
    pub fn bytes_between(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> u64 {
        let pages = self.pages_between(begin, end);
        self.place_range(pages)
            .map_or(0, |range| range.end - range.start)
    }

    /// A key within `begin..end` that has about as many bytes before it as behind it; none if
    /// the index knows no key there.
    pub fn middle_key(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> Option<&[u8]> {
        let pages = self.pages_between(begin, end);
        let range = self.place_range(pages.clone())?;
        let middle = range.start.midpoint(range.end);
        let offset = |page: usize| self.index.place(page).offset;
        let inside = |page: &usize| {
            let key = self.index.separator(*page);
            !key.is_empty()
                && begin.is_none_or(|begin| key > begin)
                && end.is_none_or(|end| key < end)
        };
        let page = pages
            .filter(inside)
            .min_by_key(|page| offset(*page).abs_diff(middle))?;
        Some(self.index.separator(page))
    }

    /// Read and check every page: checksums, order, and whether index, filter and footer agree with what is there.
    /// `progress` is told the bytes read so far.
    ///
    /// # Errors
    /// The first damage, as [`Error::Corruption`].
    pub fn verify(self: &Arc<Self>, progress: &mut dyn FnMut(u64)) -> Result<RunReport> {
        let mut entries = self.entries_once(None, None);
        let mut report = RunReport::default();
        let (mut position_min, mut position_max) = (u64::MAX, 0);
        let mut last = Vec::new();
        while entries.advance()? {
            let (page, at) = entries.place();
            let entry = entries.entry();
            if at == 0 {
                self.check_first(page, &entry, &last, report.entries)?;
                progress(self.index.place(page).offset);
            }
            report.entries += 1;
            report.tombstones += u64::from(entry.payload.is_none());
            position_min = position_min.min(entry.position);
            position_max = position_max.max(entry.position);
            if report.entries == 1 || entry.key != last {
                report.keys += 1;
                if !self.filter.may_contain(KeyHash::of(entry.key)) {
                    return Err(self.damaged(page, "the filter does not know a key"));
                }
                last.clear();
                last.extend_from_slice(entry.key);
            }
        }
        let info = &self.info;
        let found = (report.entries, report.keys, report.tombstones);
        let positions = (position_min, position_max);
        if found != (info.entries, info.keys, info.tombstones)
            || positions != (info.position_min, info.position_max)
            || last != info.last_key
        {
            return Err(self.damaged(0, "the pages are not what the footer counts"));
        }
        progress(info.bytes);
        Ok(report)
    }

    /// The first entry of a page against the index, and the key before it.
    fn check_first(&self, page: usize, entry: &Entry, last: &[u8], before: u64) -> Result<()> {
        let separator = self.index.separator(page);
        let place = self.index.place(page);
        let fits = entry.position == place.first_position
            && separator <= entry.key
            && (before == 0 || last < separator || last == entry.key)
            && (before > 0 || entry.key == self.info.first_key);
        // Versions of one key over two pages: order within it was checked by the scan.
        if fits {
            Ok(())
        } else {
            Err(self.damaged(page, "the index says another first entry"))
        }
    }

    pub(super) fn damaged(&self, page: usize, reason: impl Into<String>) -> Error {
        Error::corrupt(&self.path, self.index.place(page).offset, reason)
    }

    /// Pages that may have keys of `begin..end`.
    pub(super) fn pages_between(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> Range<usize> {
        let first = begin.map_or(0, |begin| self.index.page_of(begin, u64::MAX));
        let last = end.map_or(self.index.len() - 1, |end| {
            self.index.page_of(end, u64::MAX)
        });
        first..last + 1
    }

    /// Where consecutive pages are in the file; none if there are none.
    pub(super) fn place_range(&self, pages: Range<usize>) -> Option<Range<u64>> {
        let last = pages.clone().next_back()?;
        let last = self.index.place(last);
        Some(self.index.place(pages.start).offset..last.offset + u64::from(last.stored_bytes))
    }

    /// A page, from the cache or the file.
    fn page(&self, number: usize) -> Result<Arc<Page>> {
        if let Some(page) = self.cached(number) {
            return Ok(page);
        }
        let mut stored = Vec::new();
        self.read_pages(number..number + 1, &mut stored)?;
        let page = self.load(number, &stored, Vec::new())?;
        self.keep(number, &page);
        Ok(page)
    }

    pub(super) fn cached(&self, number: usize) -> Option<Arc<Page>> {
        self.cache.page(self.id, number)
    }

    pub(super) fn keep(&self, number: usize, page: &Arc<Page>) {
        self.cache.keep(self.id, number, page);
    }

    /// Read the stored bytes of consecutive pages in place of what is in `stored`.
    pub(super) fn read_pages(&self, pages: Range<usize>, stored: &mut Vec<u8>) -> Result<()> {
        let Some(range) = self.place_range(pages) else {
            stored.clear();
            return Ok(());
        };
        let file = match &self.kept {
            Some(kept) => Arc::clone(kept.file()),
            None => self.cache.file(self.id, self.vfs.as_ref(), &self.path)?,
        };
        stored.resize((range.end - range.start) as usize, 0);
        let read = file.read_exact_at(stored, range.start);
        read.map_err(|error| error.of_written(range.start))
    }

    /// Check and decode a page, into memory that is not needed.
    pub(super) fn load(&self, number: usize, stored: &[u8], memory: Vec<u8>) -> Result<Arc<Page>> {
        let place = self.index.place(number);
        if crc32c::crc32c(stored) != place.crc {
            return Err(self.damaged(number, "page checksum does not match"));
        }
        let page = Page::load(stored, place, memory);
        page.map(Arc::new)
            .map_err(|reason| self.damaged(number, reason))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.cache.forget(self.id);
    }
}

/// Read and check all that is behind the pages.
fn read_tail(
    file: &dyn VfsFile,
    path: &Path,
    identity: RunIdentity,
    info: &RunInfo,
) -> Result<(PageIndex, Filter)> {
    let len = file.len()?;
    if len < info.bytes.max(FOOTER_BYTES as u64) {
        return Err(Error::Missing {
            path: path.into(),
            reason: format!("{len} bytes, the manifest lists {}", info.bytes),
        });
    }
    if len > info.bytes {
        let reason = format!("{len} bytes, the manifest lists {}", info.bytes);
        return Err(Error::corrupt(path, info.bytes, reason));
    }
    let footer_at = len - FOOTER_BYTES as u64;
    let mut footer = [0; FOOTER_BYTES];
    let read = file.read_exact_at(&mut footer, footer_at);
    read.map_err(|error| error.of_written(footer_at))?;
    let (footer, checksum) = Footer::decode(path, footer_at, &footer)?;
    check_identity(path, footer.identity, identity)?;
    let listed = (
        info.number,
        info.checksum,
        info.entries,
        info.keys,
        info.tombstones,
    );
    let found = (
        footer.identity.number,
        checksum,
        footer.entries,
        footer.keys,
        footer.tombstones,
    );
    let positions = (info.position_min, info.position_max);
    if listed != found
        || positions != (footer.position_min, footer.position_max)
        || footer.file_bytes() != Some(len)
    {
        let reason = "the footer is not the one that the manifest lists";
        return Err(Error::corrupt(path, footer_at, reason));
    }

    // The lengths add up to that of the file, so this allocates no more than there is.
    let index_at = footer.pages_bytes;
    let read = |offset: u64, len: u32, crc: u32, what: &str| {
        let mut bytes = vec![0; len as usize];
        let read = file.read_exact_at(&mut bytes, offset);
        read.map_err(|error| error.of_written(offset))?;
        if crc32c::crc32c(&bytes) != crc {
            let reason = format!("{what} checksum does not match");
            return Err(Error::corrupt(path, offset, reason));
        }
        Ok(bytes)
    };
    let bytes = read(index_at, footer.index_bytes, footer.index_crc, "page index")?;
    let index = PageIndex::decode(&bytes, footer.pages as usize)
        .map_err(|error| Error::corrupt(path, index_at, error.to_string()))?;
    let listed = (
        &info.first_key,
        &info.last_key,
        footer.pages_bytes,
        footer.entries,
    );
    if listed
        != (
            &index.first_key,
            &index.last_key,
            index.pages_bytes(),
            index.entries(),
        )
    {
        let reason = "the page index is not what footer and manifest say";
        return Err(Error::corrupt(path, index_at, reason));
    }
    let filter_at = index_at + u64::from(footer.index_bytes);
    let filter = read(filter_at, footer.filter_bytes, footer.filter_crc, "filter")?;
    Ok((index, Filter::new(filter, footer.probes)))
}
