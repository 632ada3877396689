//! What stands in the files: frames, segment headers, the changes that frames carry and the state that they add up to.
//!
//! Bytes in and out, checked. Nothing here keeps a file open, waits or holds a lock; the small files of a directory are read
//! here because their whole content is one value.

pub(crate) mod change;
pub(crate) mod frame;
pub(crate) mod header;
pub(crate) mod identity;
pub(crate) mod number;
pub(crate) mod order;
pub(crate) mod preamble;
pub(crate) mod producer;
pub(crate) mod salt;
pub(crate) mod state;
pub(crate) mod stream;
pub(crate) mod table_change;
pub(crate) mod table_codec;
pub(crate) mod tables;
pub(crate) mod watermark;
