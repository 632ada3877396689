//! Record batches as Arrow record batches, in place.

use std::ops::Range;
use std::panic::RefUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, Int64Array, MapArray, RecordBatch, RecordBatchOptions, StringArray,
    StructArray, TimestampMicrosecondArray,
};
use arrow_buffer::{
    ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer,
};
use arrow_schema::ArrowError;
use braidlog_core::batch::{BatchBody, BatchView, Layout, Section};
use braidlog_core::{Error, Result};

use super::schema::{Column, Projection, entries_field, entry_fields};

type ArrowResult<T> = std::result::Result<T, ArrowError>;

// Sections hold little-endian numbers, which Arrow reads in the order of the machine.
const _: () = assert!(
    cfg!(target_endian = "little"),
    "zero-copy export needs little-endian"
);

/// Memory that exported arrays point into.
///
/// # Safety
///
/// Every call of `bytes` returns the same memory with the same contents, until the value is dropped,
/// wherever the value itself is moved.
pub unsafe trait Owner: Send + Sync + RefUnwindSafe {
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

// SAFETY: a vector behind a shared reference neither moves nor changes what it points to.
unsafe impl Owner for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

// SAFETY: as for a vector.
unsafe impl Owner for Box<[u8]> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// What Arrow buffers hold on to.
struct KeepAlive(#[expect(dead_code, reason = "held for its drop")] Arc<dyn Owner>);

/// How much of a batch an export verifies. Offsets and text always are: memory safety rests on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// Everything.
    All,
    /// Not the page checksums, which this process verified when it read the bytes.
    Verified,
}

/// Make an Arrow record batch of the records `clip` (indexes) of the encoded batch at `range` of
/// `owner`. Record 0 of the encoded batch has position `first_position`.
///
/// An uncompressed batch is not copied: the arrays keep `owner` alive. A compressed one is
/// decompressed into memory that the arrays share.
pub fn export_batch(
    owner: &Arc<dyn Owner>,
    range: Range<usize>,
    first_position: u64,
    clip: Range<u32>,
    projection: &Projection,
    checks: Checks,
) -> Result<RecordBatch> {
    let bytes = owner.bytes();
    let Some(encoded) = bytes.get(range.clone()) else {
        let reason = format!("bytes {}..{} of {}", range.start, range.end, bytes.len());
        return Err(Error::malformed(
            "record batch range",
            range.start as u64,
            reason,
        ));
    };
    let view = match checks {
        Checks::All => BatchView::parse(encoded)?,
        Checks::Verified => BatchView::parse_verified(encoded)?,
    };
    if clip.start > clip.end || clip.end > view.count() {
        let reason = format!("records {}..{} of {}", clip.start, clip.end, view.count());
        return Err(Error::InvalidArgument(reason));
    }
    let last = first_position.checked_add(u64::from(view.count()));
    if last.is_none_or(|last| i64::try_from(last).is_err()) {
        return Err(Error::InvalidArgument(format!(
            "position {first_position} is too large"
        )));
    }
    let layout = *view.layout();
    let timestamp = view.head().min_timestamp();
    let body = match view.into_body() {
        // SAFETY: the body is part of the owner's bytes, which outlive the buffer.
        BatchBody::Borrowed(body) => unsafe { borrow(owner, body) },
        BatchBody::Owned(body) => Buffer::from_vec(body),
    };
    let export = Export {
        body,
        layout,
        timestamp,
        first_position,
        clip,
    };
    let columns = projection
        .columns()
        .iter()
        .map(|&column| export.column(column));
    let columns = columns.collect::<ArrowResult<Vec<_>>>();
    let options = RecordBatchOptions::new().with_row_count(Some(export.len()));
    columns
        .and_then(|columns| {
            RecordBatch::try_new_with_options(projection.schema(), columns, &options)
        })
        .map_err(|reason| Error::InvalidArgument(format!("arrow export: {reason}")))
}

/// A buffer over part of the owner's bytes.
///
/// # Safety
///
/// `bytes` lies inside `owner.bytes()`.
unsafe fn borrow(owner: &Arc<dyn Owner>, bytes: &[u8]) -> Buffer {
    let keep_alive = Arc::new(KeepAlive(owner.clone()));
    // SAFETY: the caller's, and that an owner's bytes stay in place until it is dropped.
    unsafe { Buffer::from_custom_allocation(NonNull::from(bytes).cast(), bytes.len(), keep_alive) }
}

/// One verified batch on its way out.
struct Export {
    /// The raw body.
    body: Buffer,
    layout: Layout,
    /// That of all records, if they have one.
    timestamp: i64,
    first_position: u64,
    clip: Range<u32>,
}

impl Export {
    fn len(&self) -> usize {
        self.clip.len()
    }

    fn column(&self, column: Column) -> ArrowResult<ArrayRef> {
        Ok(match column {
            Column::Position => Arc::new(self.positions()),
            Column::Timestamp => Arc::new(self.timestamps()),
            Column::Key => Arc::new(self.keys()),
            Column::Value => Arc::new(self.values()),
            Column::Headers => Arc::new(self.headers()?),
        })
    }

    fn positions(&self) -> Int64Array {
        let first = self.first_position.cast_signed();
        let (begin, end) = (i64::from(self.clip.start), i64::from(self.clip.end));
        Int64Array::from_iter_values(first + begin..first + end)
    }

    fn timestamps(&self) -> TimestampMicrosecondArray {
        let timestamps = if self.layout.timestamps.is_empty() {
            ScalarBuffer::from(vec![self.timestamp; self.len()])
        } else {
            self.scalars(self.layout.timestamps, self.clip.start as usize, self.len())
        };
        TimestampMicrosecondArray::new(timestamps, None).with_timezone("UTC")
    }

    fn values(&self) -> BinaryArray {
        let offsets = self.record_offsets(self.layout.value_offsets);
        let nulls = self.nulls(self.layout.value_validity, self.clip.start, self.len());
        // SAFETY: the view verified that these offsets are monotone and end inside this data; there is a
        // validity bit for every record.
        unsafe { BinaryArray::new_unchecked(offsets, self.bytes(self.layout.values), nulls) }
    }

    fn keys(&self) -> BinaryArray {
        if self.layout.key_offsets.is_empty() {
            return BinaryArray::new_null(self.len());
        }
        let nulls = self.nulls(self.layout.key_validity, self.clip.start, self.len());
        let offsets = self.record_offsets(self.layout.key_offsets);
        // SAFETY: as for the values.
        unsafe { BinaryArray::new_unchecked(offsets, self.bytes(self.layout.keys), nulls) }
    }

    fn headers(&self) -> ArrowResult<MapArray> {
        let layout = &self.layout;
        let (offsets, names, values) = if layout.header_offsets.is_empty() {
            let none = OffsetBuffer::new_zeroed(self.len());
            (none, StringArray::new_null(0), BinaryArray::new_null(0))
        } else {
            let name_offsets = self.offsets(layout.name_offsets, 0, layout.name_offsets.len() / 4);
            let value_offsets = layout.header_value_offsets;
            let entries = value_offsets.len() / 4 - 1;
            let value_offsets = self.offsets(value_offsets, 0, entries + 1);
            let nulls = self.nulls(layout.header_value_validity, 0, entries);
            // SAFETY: as for the values; the view verified that each name is UTF-8 by itself.
            let names =
                unsafe { StringArray::new_unchecked(name_offsets, self.bytes(layout.names), None) };
            // SAFETY: as for the values.
            let values = unsafe {
                BinaryArray::new_unchecked(value_offsets, self.bytes(layout.header_values), nulls)
            };
            (self.record_offsets(layout.header_offsets), names, values)
        };
        let entries = StructArray::try_new(
            entry_fields(),
            vec![Arc::new(names), Arc::new(values)],
            None,
        )?;
        MapArray::try_new(entries_field(), offsets, entries, None, false)
    }

    /// Bits of a validity section; none if nothing is null.
    fn nulls(&self, section: Section, first: u32, count: usize) -> Option<NullBuffer> {
        if section.is_empty() {
            return None;
        }
        let bits = BooleanBuffer::new(self.bytes(section), first as usize, count);
        Some(NullBuffer::new(bits)).filter(|nulls| nulls.null_count() != 0)
    }

    fn bytes(&self, section: Section) -> Buffer {
        self.body
            .slice_with_length(section.range().start, section.len())
    }

    /// Offsets of the records that are exported.
    fn record_offsets(&self, section: Section) -> OffsetBuffer<i32> {
        self.offsets(section, self.clip.start as usize, self.len() + 1)
    }

    /// Verified `u32` offsets as `i32`: none exceeds the length of its data, which an `i32` holds.
    fn offsets(&self, section: Section, first: usize, count: usize) -> OffsetBuffer<i32> {
        let offsets = self.scalars(section, first, count);
        // SAFETY: there is at least one, and the view verified that they never decrease from 0.
        unsafe { OffsetBuffer::new_unchecked(offsets) }
    }

    /// Elements of a section: in place, unless the batch lies where Arrow cannot read them.
    fn scalars<T: ArrowNativeType>(
        &self,
        section: Section,
        first: usize,
        count: usize,
    ) -> ScalarBuffer<T> {
        let width = size_of::<T>();
        let begin = section.range().start + first * width;
        let elements = self.body.slice_with_length(begin, count * width);
        if elements.as_ptr().cast::<T>().is_aligned() {
            elements.into()
        } else {
            Buffer::from(elements.as_slice()).into()
        }
    }
}
