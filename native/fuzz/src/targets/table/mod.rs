//! What tables consist of.

pub mod counted;
pub mod field;
pub mod index_key;
pub mod payload;
pub mod run;
mod run_make;
pub mod tree;
