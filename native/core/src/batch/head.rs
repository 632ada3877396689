//! Head of a batch: header and page table, and the checksums that make it vouch for the body.
//!
//! The byte diagram is in the [module documentation](super).

use std::ops::Range;

use super::compress::Compression;
use super::header::{CHECKSUM_OFFSET, HEADER_BYTES, Header, Producer, u32_at};
use super::layout::{Counts, FLAG_HEADERS, FLAG_HOLE, FLAG_KEYS, Layout, head_len, pages_of};
use super::malformed;
use crate::error::{Error, Result};
use crate::limits::PAGE_BYTES;

/// Complete a batch of which the stored body is in place: page table, header and checksum.
/// `batch` is the whole batch.
pub(super) fn seal(batch: &mut [u8], header: &Header) {
    let (head, body) = batch.split_at_mut(head_len(u64::from(header.stored)) as usize);
    for (entry, page) in head[HEADER_BYTES..]
        .chunks_exact_mut(4)
        .zip(body.chunks(PAGE_BYTES))
    {
        entry.copy_from_slice(&crc32c::crc32c(page).to_le_bytes());
    }
    header.write(head);
    let checksum = head_checksum(head);
    head[CHECKSUM_OFFSET..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

/// Make a batch of empty records, which have one timestamp, stand for lost ones.
pub(super) fn declare_hole(batch: &mut [u8]) -> Result<()> {
    let head = parse_head(batch)?;
    let (mut header, len) = (head.header, head.head_len());
    header.counts.flags |= FLAG_HOLE;
    header.check_counts()?;
    let head = &mut batch[..len];
    header.write(head);
    let checksum = head_checksum(head);
    head[CHECKSUM_OFFSET..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    Ok(())
}

fn head_checksum(head: &[u8]) -> u32 {
    crc32c::crc32c_append(
        crc32c::crc32c(&head[..CHECKSUM_OFFSET]),
        &head[HEADER_BYTES..],
    )
}

/// The verified head of a batch. Borrows the head's bytes only; cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct BatchHead<'a> {
    pub(super) header: Header,
    /// The page table, without its padding.
    table: &'a [u8],
}

/// Verify the head at the start of `bytes`, which may end with it or go on.
pub fn parse_head(bytes: &[u8]) -> Result<BatchHead<'_>> {
    let Some(fixed) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Err(malformed(bytes.len() as u64, "ends inside the header"));
    };
    let header = Header::read(fixed)?;
    header.check_sizes()?;
    let len = head_len(u64::from(header.stored)) as usize;
    let Some(head) = bytes.get(..len) else {
        return Err(malformed(bytes.len() as u64, "ends inside the page table"));
    };
    if head_checksum(head) != u32_at(fixed, CHECKSUM_OFFSET) {
        return Err(malformed(
            CHECKSUM_OFFSET as u64,
            "head checksum does not match",
        ));
    }
    header.check_counts()?;
    let table_end = HEADER_BYTES + 4 * pages_of(u64::from(header.stored)) as usize;
    if head[table_end..].iter().any(|&byte| byte != 0) {
        return Err(malformed(
            table_end as u64,
            "padding of the page table is not zero",
        ));
    }
    Ok(BatchHead {
        header,
        table: &head[HEADER_BYTES..table_end],
    })
}

/// The verified head of a batch, for a reader that keeps it.
#[derive(Clone, Debug)]
pub struct OwnedHead {
    header: Header,
    table: Box<[u8]>,
}

impl OwnedHead {
    /// The head, borrowed.
    pub fn as_head(&self) -> BatchHead<'_> {
        BatchHead {
            header: self.header,
            table: &self.table,
        }
    }

    /// Bytes of the page table.
    pub fn table_len(&self) -> usize {
        self.table.len()
    }
}

impl From<BatchHead<'_>> for OwnedHead {
    fn from(head: BatchHead<'_>) -> Self {
        Self {
            header: head.header,
            table: head.table.into(),
        }
    }
}

impl BatchHead<'_> {
    /// Bytes of the head, told from the first [`HEADER_BYTES`] of a batch alone. Checks sizes, not
    /// the checksum: for a reader who has to know how much to read before [`parse_head`].
    pub fn len_of(bytes: &[u8]) -> Result<usize> {
        let Some(fixed) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(malformed(bytes.len() as u64, "ends inside the header"));
        };
        let header = Header::read(fixed)?;
        header.check_sizes()?;
        Ok(head_len(u64::from(header.stored)) as usize)
    }

    /// Bytes of header and page table.
    pub fn head_len(&self) -> usize {
        head_len(u64::from(self.header.stored)) as usize
    }

    /// Bytes of the whole batch.
    pub fn total_len(&self) -> usize {
        self.head_len() + self.stored_len()
    }

    /// Bytes of the body as stored.
    pub fn stored_len(&self) -> usize {
        self.header.stored as usize
    }

    /// Bytes of the body when decompressed.
    pub fn raw_len(&self) -> usize {
        self.header.raw as usize
    }

    /// Records, at least one.
    pub fn count(&self) -> u32 {
        self.header.counts.records as u32
    }

    /// Whether it stands for records that are lost.
    pub fn is_hole(&self) -> bool {
        self.header.counts.has(FLAG_HOLE)
    }

    /// Refuse a batch that stands for records that are lost; its first record has this position.
    pub fn check_there(&self, position: u64) -> Result<()> {
        if self.is_hole() {
            return Err(Error::Lost {
                first: position,
                end: position + u64::from(self.count()),
            });
        }
        Ok(())
    }

    /// How the body is stored.
    pub fn compression(&self) -> Compression {
        self.header.compression
    }

    /// Smallest timestamp.
    pub fn min_timestamp(&self) -> i64 {
        self.header.min_timestamp
    }

    /// Largest timestamp.
    pub fn max_timestamp(&self) -> i64 {
        self.header.max_timestamp
    }

    /// Who wrote the batch.
    pub fn producer(&self) -> Producer {
        self.header.producer
    }

    /// Flags and sizes.
    pub fn counts(&self) -> &Counts {
        &self.header.counts
    }

    /// Where the sections of the raw body lie.
    pub fn layout(&self) -> Layout {
        Layout::new(&self.header.counts)
    }

    /// Whether the batch has keys, some of which may be null.
    pub fn has_keys(&self) -> bool {
        self.header.counts.has(FLAG_KEYS)
    }

    /// Whether some record may have headers.
    pub fn has_headers(&self) -> bool {
        self.header.counts.has(FLAG_HEADERS)
    }

    /// Pages of the stored body.
    pub fn page_count(&self) -> usize {
        self.table.len() / 4
    }

    /// Pages that hold the bytes `range` of the stored body.
    pub fn pages_for(&self, range: Range<usize>) -> Range<usize> {
        range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES).max(range.start / PAGE_BYTES)
    }

    /// Bytes of the stored body that a range of pages takes.
    pub fn page_bytes(&self, pages: Range<usize>) -> Range<usize> {
        let clip = |page: usize| (page * PAGE_BYTES).min(self.stored_len());
        clip(pages.start)..clip(pages.end)
    }

    /// Verify `bytes` as the whole pages of the stored body that begin with `first_page`.
    pub fn verify_pages(&self, first_page: usize, bytes: &[u8]) -> Result<()> {
        let begin = first_page.saturating_mul(PAGE_BYTES);
        let end = begin.saturating_add(bytes.len());
        if end > self.stored_len() || (end < self.stored_len() && !end.is_multiple_of(PAGE_BYTES)) {
            let reason = format!("body bytes {begin}..{end} are not whole pages");
            return Err(malformed(
                (self.head_len() + begin.min(self.stored_len())) as u64,
                reason,
            ));
        }
        let entries = self.table[4 * first_page..].chunks_exact(4);
        for (index, (page, entry)) in bytes.chunks(PAGE_BYTES).zip(entries).enumerate() {
            if crc32c::crc32c(page).to_le_bytes() != *entry {
                let at = self.head_len() + begin + index * PAGE_BYTES;
                return Err(malformed(at as u64, "page checksum does not match"));
            }
        }
        Ok(())
    }
}
