//! One segment file: its handles, its index in memory, and how its frames are gone through.
//!
//! Readers, the writer, recovery and tools share it. Nothing here knows a stream's range, the table of all segments or who
//! may write.

pub(crate) mod checkpoint;
pub(crate) mod frames;
pub(crate) mod growing;
pub(crate) mod head;
pub(crate) mod part;
pub(crate) mod segment;
pub(crate) mod walk;
