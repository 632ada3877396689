//! Record batch codec (`BRB1`): the unit that is encoded, checksummed, written and read.
//!
//! # Theory of operation
//!
//! A batch is position-free and columnar. Its *head* (header and page table) vouches for every byte
//! of its *stored body*; the stored body is the *raw body*, or a compressed form of it. The raw body
//! is a row of sections laid out as Arrow lays out its arrays, so that an export copies nothing and
//! record `i` is found without summing lengths.
//!
//! ```text
//!     0   u32  magic "BRB1"
//!     4   u8   format version: 1, or 2 with a flag from 16 on
//!     5   u8   compression: 0 none, 1 zstd, 2 lz4 frame
//!     6   u16  flags: 1 keys, 2 some key is null, 4 headers, 8 one timestamp for all records,
//!              16 a declared hole, 32 some value is null, 64 some header's value is null
//!     8   u32  record count            12  u32  stored body bytes
//!     16  u32  raw body bytes          20  u32  key data bytes
//!     24  u32  value data bytes        28  u32  header entries over all records
//!     32  u32  header name bytes       36  u32  header value bytes
//!     40  i64  smallest timestamp      48  i64  largest timestamp (microseconds)
//!     56  u64  producer id             64  u64  base sequence
//!     72  u32  producer epoch          76  u32  CRC32C of 0..76 and of 80..head
//!     80  u32 x pages  CRC32C of each 4 KiB page of the stored body, zero-padded to 8 bytes
//!     ..  stored body
//!
//!     raw body, each section on a multiple of 8, gaps zero:
//!     | timestamps i64 x n | value validity | value offsets u32 x n+1 |
//!     | key validity | key offsets u32 x n+1 | header offsets u32 x n+1 | name offsets u32 x h+1 |
//!     | header value validity | header value offsets u32 x h+1 |
//!     | names | header values | keys | values |
//! ```
//!
//! Writers fill a [`BatchBuilder`] record by record, or hand over whole columns as a [`ColumnsRef`];
//! both end in the same encoder, so equal records give equal bytes. Readers take [`BatchView::parse`]
//! for a whole batch, [`parse_head`] for what a log needs to place one, and [`PointPlan`] to read one
//! record by the pages it touches.
//!
//! # Invariants
//!
//! - Encoding checks everything before the first byte is appended: a failed encode leaves the output
//!   as it was. A compressed batch is never longer than the uncompressed one.
//! - Offsets begin at 0, never decrease, end at the length of their data and fit in an `i32`.
//! - A null key or value has an empty range; bits and bytes of padding are zero.
//! - The smallest and the largest timestamp are attained.
//! - Decoders take untrusted bytes: they return [`Error::Malformed`], never
//!   panic, and allocate at most the raw body (bounded by `BATCH_BYTES_MAX`) and a codec's window.

mod builder;
mod columns;
pub(crate) mod compress;
mod decode;
mod encode;
mod head;
mod header;
mod hole;
mod layout;
mod locate;
mod point;
mod record;
mod route;
mod sink;
#[cfg(test)]
mod tests;
mod verify;

pub use builder::BatchBuilder;
pub use columns::{Bitmap, BytesRef, ColumnsRef, HeadersRef, NullableRef, Offsets, Timestamps};
pub use compress::Compression;
pub use decode::{BatchBody, BatchView, filter_key, first_at_or_after};
pub use encode::{check_columns, encode_columns};
pub use head::{BatchHead, OwnedHead, parse_head};
pub use header::{HEADER_BYTES, Producer};
pub use hole::encode_hole;
pub use layout::{Counts, Layout, Section};
pub use point::{OwnedRecord, PointPlan, read_record};
pub use record::{Headers, RecordRef, U32s};
pub use route::{Routed, key_hash, route};
pub use sink::Sink;

use crate::error::Error;

/// What a refusal names when the offset counts from the first byte of the batch.
const BATCH: &str = "record batch";

/// What a refusal names when the offset counts from the first byte of the decompressed body.
const RAW_BODY: &str = "decompressed record batch body";

fn malformed(offset: u64, reason: impl Into<String>) -> Error {
    Error::malformed(BATCH, offset, reason)
}
