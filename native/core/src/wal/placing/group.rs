//! Groups: what one sync makes durable.
//!
//! A group is a list of parts, each a run of whole blocks in one segment. More than one part means
//! that the log rolled to a new segment in the middle of the group.

use std::sync::Arc;

use crate::wal::read::stream::Range;
use crate::wal::segments::part::Part;

/// What a reader may see once a group is durable.
pub enum Effect {
    /// A stream's new range.
    Range(u32, Range),
    /// The stream is gone.
    Gone(u32),
}

/// A sealed group.
pub struct Group {
    /// Number, from 1.
    pub number: u64,
    /// Writes, in order.
    pub parts: Vec<Arc<Part>>,
    /// What becomes visible.
    pub effects: Vec<Effect>,
    /// Bytes to write.
    pub bytes: usize,
    /// Content of the checkpoint file once the group is durable.
    pub checkpoint: Option<Vec<u8>>,
}

impl Group {
    /// Whether the group opens a segment; nothing else may be in flight then.
    pub fn rolls(&self) -> bool {
        self.parts.iter().any(|part| part.opens)
    }
}
