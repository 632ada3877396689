//! Opening a directory: as its writer, or as a follower of another process that may be its writer.
//!
//! Here it is decided where a log ends, and whether bytes behind that place are a torn tail or damage.

pub(crate) mod directory;
pub(crate) mod evidence;
pub(crate) mod fold;
pub(crate) mod follow;
pub(crate) mod open;
pub(crate) mod tables;
pub(crate) mod tail;
