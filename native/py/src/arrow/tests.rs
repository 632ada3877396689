//! Batches out to Arrow and back; only the capsules need an interpreter.

#![allow(clippy::unwrap_used)]

mod capsules;
mod exporting;
mod importing;

use std::sync::Arc;

use braidlog_core::batch::{BatchBuilder, Compression};

use super::Owner;

/// Records with every column, some keys null.
fn builder() -> BatchBuilder {
    let mut builder = BatchBuilder::new();
    builder
        .push(
            Some(b"one"),
            Some(b"k1"),
            10,
            &[("a", Some(b"1")), ("b", Some(b"22"))],
        )
        .unwrap();
    builder.push(Some(b""), None, 30, &[]).unwrap();
    builder
        .push(Some(b"three"), Some(b""), 20, &[("c", Some(b""))])
        .unwrap();
    builder.push(Some(&[7; 200]), Some(b"k4"), 40, &[]).unwrap();
    builder
}

/// The batch, `padding` bytes into its owner.
fn owned(builder: &BatchBuilder, compression: Compression, padding: usize) -> Arc<dyn Owner> {
    let mut bytes = vec![0xee; padding];
    builder.encode_into(compression, &mut bytes).unwrap();
    Arc::new(bytes)
}
