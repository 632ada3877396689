//! Parts of batches.

use std::ops::Range;

use crate::batch::{BatchBuilder, BatchView, encode_hole};
use crate::error::Result;

/// Some records of a batch as a batch of their own.
pub(crate) fn subset(view: &BatchView<'_>, part: Range<u32>) -> Result<Vec<u8>> {
    if view.head().is_hole() {
        return encode_hole(part.len(), view.head().min_timestamp());
    }
    let mut builder = BatchBuilder::new();
    let producer = view.head().producer().after(part.start.into());
    builder.set_producer(producer.id, producer.epoch, producer.base_sequence);
    for record in part.filter_map(|index| view.record(index)) {
        let headers: Vec<_> = record.headers.collect();
        builder.push(record.value, record.key, record.timestamp, &headers)?;
    }
    let mut out = Vec::new();
    builder.encode_into(view.head().compression(), &mut out)?;
    Ok(out)
}
