//! Manifests: the durable, versioned list of the files something consists of.
//!
//! # Theory of operation
//!
//! A manifest is a [`Version`] (the in-memory value) and a file of *edits* that rebuild it. An
//! edit is a set of typed operations in one checksummed, numbered frame, and the only unit of
//! change: it applies entirely or not at all. [`Manifest::commit`] validates an edit against the
//! current version, appends it, syncs it, and only then installs the new version.
//!
//! A manifest file opens with a header and a *snapshot* (edits that build the whole version from
//! nothing), so each file stands alone. `CURRENT` names the live file; it is replaced atomically
//! after the file it names is durable, and only then is the old file removed. A new file is
//! started by every open for writing (behind a close in good order not before it changes
//! anything), after every failed write, and when the edits behind the snapshot exceed a bound.
//!
//! ```text
//! CURRENT           "MANIFEST-000007 1a2b3c4d\n"    (hex CRC32C of the name)
//! MANIFEST-000007   | header 64 | snapshot edit(s) | edit | edit | ... | [close edit] |
//! ```
//!
//! `codec` has the bytes of each part. A close edit changes nothing. It stands behind the last
//! real edit after a clean close, so that damage to that edit cannot be taken for a torn write.
//!
//! # Invariants
//!
//! 1. A file is readable from its own bytes alone; loading the same bytes gives the same version,
//!    and loading the snapshot of a version gives that version.
//! 2. Edit numbers are consecutive for the life of the manifest, across files. A snapshot edit
//!    and a close edit take numbers like any other. Only an edit that nobody was promised (a
//!    dropped torn tail, a failed commit) has its number given again.
//! 3. No byte is appended behind a byte that this process did not write and sync.
//! 4. An invalid edit is dropped only where it is the last thing in the live file and behind the
//!    complete snapshot; an invalid edit with a valid one behind it is corruption.
//! 5. A missing manifest is never an empty one.
//! 6. A file is removed only after `CURRENT` durably names another one.
//! 7. An absent required field is an error and zero is a value; an unknown required field stops
//!    the open, unknown ignorable ones survive rotation.
//!
//! One process writes (the caller holds the directory's lock), with one committer at a time (the
//! `&mut` of [`Manifest::commit`]). Any number of processes may follow, see [`Follower`].

pub mod codec;
pub mod current;
mod file;
mod follower;
mod image;
mod listing;
mod orphans;
mod replay;
mod snapshot;
mod wal_files;
mod wal_operation;

#[cfg(test)]
mod tests;

pub use file::Manifest;
pub use follower::Follower;
pub use image::Image;
pub use listing::{Listing, ListingOperation};
pub use orphans::{Orphans, collect, find_wal_orphans, wal_orphans};
pub use snapshot::encode_snapshot;
pub use wal_files::{
    Sealed, Segment, WalFiles, parse_side_name, parse_slot_name, side_name, slot_name,
};
pub use wal_operation::WalOperation;

use crate::limits::{MANIFEST_EDIT_BYTES_MAX, MANIFEST_ROTATE_BYTES, MANIFEST_ROTATE_EDITS};

/// First tag that a [`Version`] may use; lower ones belong to the manifest itself.
pub const FIRST_TAG: u16 = 16;

/// Class bit of a tag: a build that does not know the field keeps it and carries on.
pub const IGNORABLE: u16 = 0x8000;

/// Whose manifest it is. Stored in every file and checked by every open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The object that the manifest describes: one id, one incarnation.
    pub object: u128,
    /// The node that holds it.
    pub node: u128,
}

/// When to start a new file.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of edits behind the snapshot.
    pub rotate_bytes: u64,
    /// Edits behind the snapshot.
    pub rotate_edits: u64,
    /// A snapshot larger than this is cut into several edits.
    pub snapshot_edit_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rotate_bytes: MANIFEST_ROTATE_BYTES,
            rotate_edits: MANIFEST_ROTATE_EDITS,
            snapshot_edit_bytes: MANIFEST_EDIT_BYTES_MAX / 2,
        }
    }
}

/// Which edit is being applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Its number.
    pub edit: u64,
    /// Whether it is (a part of) a snapshot: it restores what earlier edits did.
    pub snapshot: bool,
}

/// One typed operation of an edit; it is stored as one field.
pub trait Operation: Sized {
    /// Newest tag this build knows, for the message about a newer one.
    const NEWEST_TAG: u16;

    /// The tag, `FIRST_TAG` or above, with [`IGNORABLE`] where the field may be skipped by a
    /// build that does not know it. Never given a new meaning.
    fn tag(&self) -> u16;

    /// Append the field's bytes.
    fn encode(&self, out: &mut Vec<u8>);

    /// Decode the field's bytes, all of them; `None` where the tag is not known to this build.
    fn decode(tag: u16, bytes: &[u8]) -> Option<Result<Self, String>>;
}

/// The value that a manifest stores.
pub trait Version: Clone + Default + Send + Sync {
    /// Kind of object, stored in the header; never given a new meaning.
    const KIND: u32;

    /// What an edit consists of.
    type Operation: Operation;

    /// Apply the operations in order, or say why they do not apply. It is called on a copy, which
    /// is thrown away on refusal, so a half-applied value is harmless.
    fn apply(&mut self, context: Context, operations: &[Self::Operation]) -> Result<(), String>;

    /// Whether all parts of a snapshot, applied, gave a whole value, or say what it lacks.
    fn whole(&self) -> Result<(), String> {
        Ok(())
    }

    /// The operations that, applied in order as a snapshot to the default value, give this value.
    /// They may be cut into several edits at any point.
    fn snapshot(&self) -> Vec<Self::Operation>;
}

/// What an open found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Number of the file that `CURRENT` named.
    pub file_number: u64,
    /// Number of the last valid edit (a close edit included).
    pub last_edit: u64,
    /// Edits read behind the snapshot.
    pub edits: u64,
    /// Whether the last edit says that the writer closed the manifest.
    pub clean_close: bool,
    /// A torn last edit that was dropped. With [`Self::clean_close`] never present.
    pub dropped: Option<DroppedTail>,
    /// Fields unknown to this build that were kept.
    pub unknown_fields: usize,
    /// Older manifest files that were removed, the one that was read included.
    pub removed: Vec<String>,
}

/// Bytes at the end of the live file that are no valid edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedTail {
    /// Where they begin.
    pub offset: u64,
    /// How many they are.
    pub bytes: u64,
    /// Number the edit would have had.
    pub edit: u64,
}
