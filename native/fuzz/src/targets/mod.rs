//! One target per decoder.

pub mod batch;
mod batch_bytes;
mod batch_make;
pub mod frame;
pub mod frame_bytes;
mod frame_make;
pub mod lane;
pub mod manifest;
pub mod manifest_bytes;
mod manifest_make;
pub mod part;
pub mod segment;
mod segment_bytes;
mod segment_make;
pub mod side;
mod side_make;
pub mod small;
pub mod stream;
pub mod table;
pub mod tail;
pub mod wire;
