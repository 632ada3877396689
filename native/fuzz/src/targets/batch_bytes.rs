//! The bytes of a record batch as the fuzzer sees them: fields, checksums, and how to put together
//! one around a body.

use std::io::Write;

use braidlog_core::batch::{Compression, Counts, HEADER_BYTES, Layout};
use braidlog_core::limits::PAGE_BYTES;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

use crate::mutate::{Field, put_u32, u32_at};
use crate::rng::Rng;

const COMPRESSION: usize = 5;
const STORED: usize = 12;
const RAW: usize = 16;
const CHECKSUM: usize = 76;

/// The numbers of a header.
pub const FIELDS: [Field; 17] = [
    (0, 4),
    (4, 1),
    (COMPRESSION, 1),
    (6, 2),
    (8, 4),
    (STORED, 4),
    (RAW, 4),
    (20, 4),
    (24, 4),
    (28, 4),
    (32, 4),
    (36, 4),
    (40, 8),
    (48, 8),
    (56, 8),
    (64, 8),
    (72, 4),
];

/// The counts of a header, whatever they are.
pub fn counts(batch: &[u8]) -> Counts {
    let count = |at| u64::from(u32_at(batch, at));
    Counts {
        flags: u32_at(batch, 4).to_le_bytes()[2].into(),
        records: count(8),
        key_bytes: count(20),
        value_bytes: count(24),
        header_entries: count(28),
        header_name_bytes: count(32),
        header_value_bytes: count(36),
    }
}

/// Offset fields of a raw body with these counts.
pub fn offset_fields(counts: &Counts, raw_len: usize) -> Vec<Field> {
    let layout = Layout::new(counts);
    let sections = [
        (layout.timestamps, 8),
        (layout.value_validity, 1),
        (layout.value_offsets, 4),
        (layout.key_validity, 1),
        (layout.key_offsets, 4),
        (layout.header_offsets, 4),
        (layout.name_offsets, 4),
        (layout.header_value_validity, 1),
        (layout.header_value_offsets, 4),
        (layout.names, 1),
    ];
    let mut fields = Vec::new();
    for (section, width) in sections {
        let range = section.range();
        let ends = range.end.min(raw_len);
        fields.extend(
            (range.start..ends)
                .step_by(width)
                .map(|at| (at, width))
                .take(64),
        );
    }
    fields
}

/// Bytes of header and page table.
pub fn head_len(stored: usize) -> usize {
    HEADER_BYTES + (4 * stored.div_ceil(PAGE_BYTES)).next_multiple_of(8)
}

/// Make lengths agree with each other, sometimes, and the checksums right, always.
pub fn reseal(batch: &mut [u8], rng: &mut Rng) {
    if batch.len() < HEADER_BYTES {
        return;
    }
    let whole = (0..=batch.len() / PAGE_BYTES + 1)
        .filter_map(|pages| {
            batch
                .len()
                .checked_sub(HEADER_BYTES + (4 * pages).next_multiple_of(8))
        })
        .find(|stored| head_len(*stored) + stored == batch.len());
    if let Some(stored) = whole
        && !rng.one_in(4)
    {
        put_u32(batch, STORED, stored as u32);
    }
    let total = Layout::new(&counts(batch)).total;
    if batch[COMPRESSION] == 0 && !rng.one_in(4) {
        put_u32(batch, RAW, u32_at(batch, STORED));
    } else if !rng.one_in(4) {
        put_u32(batch, RAW, total as u32);
    }
    seal(batch);
}

/// Make the checksums right.
pub fn seal(batch: &mut [u8]) {
    let stored = u32_at(batch, STORED) as usize;
    if batch.len() < HEADER_BYTES {
        return;
    }
    let end = head_len(stored).min(batch.len());
    let (head, body) = batch.split_at_mut(end);
    let body = &body[..stored.min(body.len())];
    for (entry, page) in head[HEADER_BYTES..]
        .chunks_exact_mut(4)
        .zip(body.chunks(PAGE_BYTES))
    {
        entry.copy_from_slice(&crc32c::crc32c(page).to_le_bytes());
    }
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..CHECKSUM]), &head[HEADER_BYTES..]);
    put_u32(head, CHECKSUM, crc);
}

/// A batch with the header of `like` around another raw body. `None` if that does not shrink.
pub fn assemble(
    like: &[u8],
    raw: &[u8],
    compression: Compression,
    rng: &mut Rng,
) -> Option<Vec<u8>> {
    let stored = match compression {
        Compression::None => raw.to_vec(),
        Compression::Zstd => zstd::bulk::compress(raw, *rng.pick(&[1, 3, 5])).ok()?,
        Compression::Lz4 => lz4(raw, Lz4::Any, rng)?,
    };
    around(like, raw, compression, &stored)
}

/// A batch with the header of `like` around another raw body that was stored like this.
pub fn around(like: &[u8], raw: &[u8], compression: Compression, stored: &[u8]) -> Option<Vec<u8>> {
    let code = match compression {
        Compression::None => 0,
        Compression::Zstd => 1,
        Compression::Lz4 => 2,
    };
    if compression != Compression::None && stored.len() >= raw.len() {
        return None;
    }
    let mut batch = like.get(..HEADER_BYTES)?.to_vec();
    batch[COMPRESSION] = code;
    put_u32(&mut batch, STORED, stored.len() as u32);
    put_u32(&mut batch, RAW, raw.len() as u32);
    batch.resize(head_len(stored.len()), 0);
    batch.extend_from_slice(stored);
    seal(&mut batch);
    Some(batch)
}

/// Which parameters an lz4 frame may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Lz4 {
    /// Those that the format allows.
    Allowed,
    /// Those that lz4 knows.
    Any,
}

/// An lz4 frame with random parameters.
pub fn lz4(raw: &[u8], kind: Lz4, rng: &mut Rng) -> Option<Vec<u8>> {
    let sizes = [
        BlockSize::Max64KB,
        BlockSize::Max256KB,
        BlockSize::Max1MB,
        BlockSize::Max4MB,
    ];
    let allowed = if kind == Lz4::Any { 4 } else { 2 };
    let mut info = FrameInfo::new().block_size(*rng.pick(&sizes[..allowed]));
    if rng.one_in(2) {
        info = info.block_mode(BlockMode::Linked);
    }
    if rng.one_in(2) {
        info = info.block_checksums(true);
    }
    if rng.one_in(2) {
        info = info.content_checksum(true);
    }
    if rng.one_in(3) {
        info = info.content_size(Some(raw.len() as u64));
    }
    if kind == Lz4::Any && rng.one_in(6) {
        info = info.legacy_frame(true);
    }
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(raw).ok()?;
    encoder.finish().ok()
}
