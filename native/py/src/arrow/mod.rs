//! Arrow at both ends of a log: batches leave as Arrow record batches and come in from them.
//!
//! # Theory of operation
//!
//! The body of a record batch has Arrow's own layout, so an export only points Arrow buffers into the
//! memory that the batch was read into, and keeps that memory alive through them. Positions, and the
//! timestamp of a batch that has one for all records, are the only columns that are made. An import
//! goes the other way: it borrows offsets and data of the given arrays for the encoder, which copies
//! them once, into the write-ahead log's buffer. Both cross to Python by the `PyCapsule` protocol
//! (`__arrow_c_schema__`, `__arrow_c_array__`, `__arrow_c_stream__`); no Arrow library is needed there.
//!
//! # Invariants
//!
//! - A buffer handed out lies inside its owner, whose bytes neither move nor change while any clone
//!   of the `Arc` lives.
//! - Offsets are verified before an array is made of them without further checks.
//! - What is taken out of a capsule is marked as released in it, so that it is freed once.

mod bytes;
mod capsule;
mod columns;
mod export;
mod import;
mod schema;
#[cfg(test)]
mod tests;

pub use bytes::Bytes;
pub use capsule::{array_capsules, schema_capsule, stream_capsule};
pub use columns::{Columns, columns_of};
pub use export::{Checks, Owner, export_batch};
pub use import::{RecordBatches, import_records, import_stream};
pub use schema::{Column, Projection, entries_field, entry_fields, schema};
