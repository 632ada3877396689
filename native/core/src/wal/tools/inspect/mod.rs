//! Looking at a node directory without opening it: no lock, nothing changed, damage tolerated.
//!
//! # Theory of operation
//!
//! A [`Survey`] tells which segments there are: from the manifest, or from the header blocks of the slots
//! where the manifest is lost. A [`Scan`] goes through the frames of one and steps over damage. What
//! the frames add up to is a [`Fold`]; where the records are, a [`Coverage`]. Listing, verification and
//! salvage are made of these.
//!
//! A writer may be running. Then the newest segment is read up to the watermark, and a segment may be
//! recycled while it is read; callers look at the manifest again before they believe in damage.

mod condition;
mod coverage;
mod edits;
mod fold;
mod frames;
mod listing;
mod newest;
mod scan;
mod sides;
mod survey;

pub use condition::{Condition, LogCondition, condition, strangers};
pub use coverage::{Coverage, Run, commit_runs};
pub use edits::{EditRow, Edits, edits};
pub use fold::Fold;
pub use frames::{BatchDetails, FrameRow, Frames};
pub use listing::{
    IndexRow, LogRange, SampleRow, SegmentRow, SegmentState, SideState, index, samples, segments,
    side,
};
pub use newest::newest_state;
pub use scan::{Bad, Found, Scan};
pub use sides::lost_side;
pub use survey::{Ending, Lap, Survey, read_header};

/// A note that salvage leaves in the directory it makes: what was lost.
pub const SALVAGED: &str = "SALVAGED";
