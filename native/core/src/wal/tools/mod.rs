//! For operators: looking at the files of a directory, verifying it, scrubbing, saving what can be saved, and backups.
//!
//! These read what recovery refuses. Nothing that serves appends or reads may need them.

pub mod backup;
pub mod inspect;
pub mod salvage;
pub(crate) mod scrub;
mod subset;
pub mod verify;
