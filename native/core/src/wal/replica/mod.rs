//! Streams that are replicas: whole batches in and out, and the numbers that commits gave them.
//!
//! What replicas agree on is decided elsewhere; here it is stored and shown.

pub(crate) mod batch_read;
pub(crate) mod batches;
pub(crate) mod commits;
