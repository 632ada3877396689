//! Reading one record by the pages it touches.
//!
//! # Theory of operation
//!
//! [`PointPlan`] does no I/O. It says which bytes of the stored body it needs next, always whole pages;
//! the reader fetches and supplies them, and the plan verifies their checksums against the head. First
//! come the pages with the record's offsets, then those with its data, then (only with headers) those
//! with its header data. A body of a few pages is asked for at once, and so is a compressed one, which
//! cannot be entered in the middle. Pages of offsets serve many records: a reader may keep them of one
//! plan ([`PointPlan::offset_pages`], [`PointPlan::offsets_in`]) and hand them to the next.
//!
//! # Invariants
//!
//! - Nothing is taken from a page before its checksum was verified, here or by the plan that gave it out.
//! - Each range supplied as asked for brings the plan forward: it ends after at most as many as the three steps
//!   name, which is thirteen, and mostly after two.

use std::ops::Range;

use super::compress::Compression;
use super::decode::{decompress, no_such_record, place};
use super::head::BatchHead;
use super::layout::Layout;
use super::locate::{Source, Target};
use super::malformed;
use super::record::RecordRef;
use crate::error::Result;
use crate::limits::PAGE_BYTES;

/// A stored body up to this size is fetched whole: one read of it costs less than two of its pages.
const WHOLE_BYTES: usize = 2 * PAGE_BYTES;

/// Pages between two wanted ones that are fetched along rather than by another read.
const GAP_PAGES: usize = 2;

/// What it takes to read one record. `B` is what the reader supplies bytes in.
#[derive(Debug)]
pub struct PointPlan<'h, B> {
    head: BatchHead<'h>,
    layout: Layout,
    index: usize,
    // Verified whole pages: first byte in the stored body, bytes. Few.
    pages: Vec<(usize, B)>,
    /// The decompressed body.
    raw: Option<Vec<u8>>,
}

impl<B: AsRef<[u8]>> Source for PointPlan<'_, B> {
    fn get(&self, range: Range<usize>) -> Option<&[u8]> {
        if range.is_empty() {
            return Some(&[]);
        }
        if let Some(raw) = &self.raw {
            return raw.get(range);
        }
        self.pages.iter().find_map(|(begin, bytes)| {
            bytes
                .as_ref()
                .get(range.start.checked_sub(*begin)?..range.end - begin)
        })
    }
}

impl<'h, B: AsRef<[u8]>> PointPlan<'h, B> {
    /// Plan to read record `index`.
    pub fn new(head: &BatchHead<'h>, index: u32) -> Result<Self> {
        if index >= head.count() {
            return Err(no_such_record(index, head.count()));
        }
        Ok(Self {
            head: *head,
            layout: head.layout(),
            index: index as usize,
            pages: Vec::new(),
            raw: None,
        })
    }

    /// The next bytes of the stored body to supply; `None` once [`record`](Self::record) has all.
    pub fn need(&self) -> Result<Option<Range<usize>>> {
        if self.is_compressed() {
            return Ok(self.raw.is_none().then(|| 0..self.head.stored_len()));
        }
        let target = self.target();
        let mut run = self.first_run(&target.fixed());
        if run.is_none()
            && let Some(spans) = target.spans(self)?
        {
            run = self.first_run(&target.data(&spans));
            if run.is_none()
                && let Some(data) = target.header_data(&spans, self)?
            {
                run = self.first_run(&data);
            }
        }
        Ok(run)
    }

    /// Verify `bytes` as the pages that begin at byte `begin` of the stored body, and keep them.
    /// Pages that were not asked for are welcome; of a compressed body only the whole is of use.
    pub fn supply(&mut self, begin: usize, bytes: B) -> Result<()> {
        let head = &self.head;
        let supplied = bytes.as_ref();
        if !begin.is_multiple_of(PAGE_BYTES) {
            let reason = format!("body byte {begin} does not begin a page");
            return Err(malformed(
                (head.head_len().saturating_add(begin)) as u64,
                reason,
            ));
        }
        head.verify_pages(begin / PAGE_BYTES, supplied)?;
        if !self.is_compressed() {
            self.pages.push((begin, bytes));
        } else if begin == 0 && supplied.len() == head.stored_len() {
            self.raw = Some(decompress(head, supplied)?);
        }
        Ok(())
    }

    /// Take what [`offsets_in`](Self::offsets_in) gave out: another plan of this batch has verified it.
    pub fn supply_offsets(&mut self, page: usize, bytes: B) {
        debug_assert!(!self.is_compressed(), "offsets lie in no page of the body");
        self.pages.push((page * PAGE_BYTES, bytes));
    }

    /// Pages that say where the record's data lies, as far as one page alone does; a page may be named
    /// twice. None of a body that is fetched whole.
    pub fn offset_pages(&self) -> impl Iterator<Item = usize> + use<B> {
        let whole = self.is_compressed() || self.head.stored_len() <= WHOLE_BYTES;
        let pages = self.target().fixed().map(|range| {
            let pages = self.head.pages_for(range);
            (pages.len() == 1 && !whole).then_some(pages.start)
        });
        pages.into_iter().flatten()
    }

    /// The beginning of a page, without the data that may follow there; `None` if it was not supplied.
    pub fn offsets_in(&self, page: usize) -> Option<&[u8]> {
        let bytes = self.head.page_bytes(page..page + 1);
        // The sections of offsets come first, and the headers' ones last among them.
        let end = bytes.end.min(self.layout.header_offsets.range().end);
        self.get(bytes.start..end).filter(|_| !self.is_compressed())
    }

    /// The record, or `None` while something is needed.
    pub fn record(&self) -> Result<Option<RecordRef<'_>>> {
        if self.is_compressed() && self.raw.is_none() {
            return Ok(None);
        }
        match self.target().spans(self)? {
            Some(spans) => {
                let record = self.target().record(&spans, self)?;
                if let Some(record) = &record {
                    self.check_names(record)?;
                }
                Ok(record)
            }
            None => Ok(None),
        }
    }

    fn target(&self) -> Target<'_> {
        let place = place(&self.head);
        Target {
            head: &self.head,
            layout: &self.layout,
            index: self.index,
            place,
        }
    }

    fn is_compressed(&self) -> bool {
        self.head.compression() != Compression::None
    }

    /// The first pages to fetch for those of the ranges that are not held in one piece, and with them
    /// all that follow closely, as bytes.
    fn first_run(&self, ranges: &[Range<usize>]) -> Option<Range<usize>> {
        let head = &self.head;
        let missing = || {
            let missing = ranges
                .iter()
                .filter(|range| self.get((*range).clone()).is_none());
            missing.map(|range| head.pages_for(range.clone()))
        };
        let mut run = missing().min_by_key(|pages| pages.start)?;
        if head.stored_len() <= WHOLE_BYTES {
            return Some(0..head.stored_len());
        }
        let reach = |end: usize| {
            let near = missing().filter(|pages| pages.start <= end + GAP_PAGES && pages.end > end);
            near.map(|pages| pages.end).max()
        };
        while let Some(end) = reach(run.end) {
            run.end = end;
        }
        Some(head.page_bytes(run))
    }

    fn check_names(&self, record: &RecordRef<'_>) -> Result<()> {
        if record
            .headers
            .raw_names()
            .any(|name| std::str::from_utf8(name).is_err())
        {
            let at = self.layout.names.range().start;
            return Err(place(&self.head).refuse(at, "header name is not UTF-8"));
        }
        Ok(())
    }
}

/// A record that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRecord {
    /// Microseconds since the Unix epoch.
    pub timestamp: i64,
    /// The key, if it has one.
    pub key: Option<Vec<u8>>,
    /// The value, unless it is null.
    pub value: Option<Vec<u8>>,
    /// Headers in the order they were given, with values that may be null.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl From<RecordRef<'_>> for OwnedRecord {
    fn from(record: RecordRef<'_>) -> Self {
        Self {
            timestamp: record.timestamp,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record
                .headers
                .map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec)))
                .collect(),
        }
    }
}

/// Read record `index`, fetching whole pages: `fetch` returns the given bytes of the stored body.
pub fn read_record<B: AsRef<[u8]>>(
    head: &BatchHead<'_>,
    index: u32,
    mut fetch: impl FnMut(Range<usize>) -> Result<B>,
) -> Result<OwnedRecord> {
    let mut plan = PointPlan::new(head, index)?;
    while let Some(range) = plan.need()? {
        let bytes = fetch(range.clone())?;
        if bytes.as_ref().len() != range.len() {
            let at = (head.head_len() + range.start + bytes.as_ref().len()) as u64;
            return Err(malformed(at, "ends inside the body"));
        }
        plan.supply(range.start, bytes)?;
    }
    match plan.record()? {
        Some(record) => Ok(record.into()),
        None => Err(malformed(
            head.head_len() as u64,
            "record is not where it should be",
        )),
    }
}
