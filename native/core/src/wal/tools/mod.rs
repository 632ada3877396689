//! For operators: looking at the files of a directory, verifying it, scrubbing, and saving what can be saved.
//!
//! These read what recovery refuses. Nothing that serves appends or reads may need them.

pub mod inspect;
pub mod salvage;
pub(crate) mod scrub;
pub mod verify;
