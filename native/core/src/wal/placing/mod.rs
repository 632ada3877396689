//! The critical section of every append, in memory only: what is admitted, which number it gets and where it goes.
//!
//! Nothing here does I/O, waits or knows that there are threads: the caller holds the lock of the store.

pub(crate) mod admission;
pub(crate) mod appender;
pub(crate) mod bound;
pub(crate) mod encoded_append;
pub(crate) mod frames;
pub(crate) mod group;
pub(crate) mod records;
pub(crate) mod seal;
