//! Braidlog storage core: moves bytes, decides nothing about clusters.
//!
//! The crate knows no Python, reads no clock, draws no randomness and starts no
//! thread of its own: callers bring threads, salts and time. Every file access
//! goes through [`vfs::Vfs`], so the same code runs on a real disk, in memory, and
//! under injected faults. Clippy holds the core to this, see `clippy.toml`; where a
//! line has to be an exception, it says why.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests bring threads, times and the environment"
    )
)]

pub mod batch;
pub mod codec;
pub mod crc32;
pub mod error;
pub mod index;
pub mod lane;
pub mod limits;
pub mod manifest;
pub mod replay;
pub mod table;
pub mod vfs;
pub mod wal;
pub mod wire;

pub use error::{Error, Result};
