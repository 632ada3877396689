//! Operations on the write-ahead log's file list, and their bytes.
//!
//! # Fields
//!
//! ```text
//! 16  AddSlot          u32 slot, u64 bytes
//! 17  RemoveSlot       u32 slot
//! 18  OpenSegment      u64 number, u32 slot, u64 salt
//! 19  SealSegment      u64 number, u64 sealed bytes, u32 side bytes, u32 side CRC32C
//! 20  DropSegment      u64 number
//! 21  RestoreSegment   u64 number, u32 slot, u64 salt, u64 edit that opened it   (snapshots only)
//! 22  Advance          u64 next segment, u32 next slot                           (snapshots only)
//! 23  SetBound         u64 bytes                                 (with the class bit: may be ignored)
//! 24  FillSlot         u32 slot, u64 bytes
//! 25  AllowNulls       nothing
//! ```

use super::codec::FieldReader;
use super::{IGNORABLE, Operation};

/// A build that does not know the bound goes by its own.
const SET_BOUND: u16 = IGNORABLE + 23;

/// One change of the file list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalOperation {
    /// List a slot file, which exists and is durable.
    AddSlot {
        /// Its id, never given before.
        slot: u32,
        /// Its length.
        bytes: u64,
    },
    /// Forget a free slot; its file may be removed once the edit is committed.
    RemoveSlot {
        /// Its id.
        slot: u32,
    },
    /// Begin the next segment in a free slot. The one before is sealed, earlier or by an operation
    /// before this one in the same edit.
    OpenSegment {
        /// The newest number plus one.
        number: u64,
        /// A free slot.
        slot: u32,
        /// Salt of the segment's frame checksums.
        salt: u64,
    },
    /// Say that nothing more is written to the active segment.
    SealSegment {
        /// Its number.
        number: u64,
        /// Bytes in use, all durable.
        sealed_bytes: u64,
        /// Length of the side file, which is durable.
        side_bytes: u32,
        /// CRC32C of the side file.
        side_crc: u32,
    },
    /// Drop a sealed segment that is not the newest; its slot becomes free.
    DropSegment {
        /// Its number.
        number: u64,
    },
    /// Written by snapshots only: a segment as it was opened.
    RestoreSegment {
        /// Its number.
        number: u64,
        /// Its slot.
        slot: u32,
        /// Its salt.
        salt: u64,
        /// The edit that opened it.
        created_by: u64,
    },
    /// Written by snapshots only: numbers and ids below these were given.
    Advance {
        /// Next segment number.
        next_segment: u64,
        /// Next slot id.
        next_slot: u32,
    },
    /// Bound the bytes of all segments together.
    SetBound {
        /// Not 0.
        bytes: u64,
    },
    /// Say that the file of a slot has so many bytes, all durable, and not its whole length yet. Builds that
    /// do not know this expect the whole length, so the field is not one to ignore.
    FillSlot {
        /// Its id.
        slot: u32,
        /// At least as many as before, at most the slot's length.
        bytes: u64,
    },
    /// Say that batches with null values may follow. Builds that do not know these would take such a batch for
    /// a torn write and cut it, so the field is not one to ignore.
    AllowNulls,
}

impl Operation for WalOperation {
    const NEWEST_TAG: u16 = 25;

    fn tag(&self) -> u16 {
        match self {
            Self::AddSlot { .. } => 16,
            Self::RemoveSlot { .. } => 17,
            Self::OpenSegment { .. } => 18,
            Self::SealSegment { .. } => 19,
            Self::DropSegment { .. } => 20,
            Self::RestoreSegment { .. } => 21,
            Self::Advance { .. } => 22,
            Self::SetBound { .. } => SET_BOUND,
            Self::FillSlot { .. } => 24,
            Self::AllowNulls => 25,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::AddSlot { slot, bytes } | Self::FillSlot { slot, bytes } => {
                out.extend_from_slice(&slot.to_le_bytes());
                out.extend_from_slice(&bytes.to_le_bytes());
            }
            Self::AllowNulls => {}
            Self::RemoveSlot { slot } => out.extend_from_slice(&slot.to_le_bytes()),
            Self::OpenSegment { number, slot, salt } => {
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&slot.to_le_bytes());
                out.extend_from_slice(&salt.to_le_bytes());
            }
            Self::SealSegment {
                number,
                sealed_bytes,
                side_bytes,
                side_crc,
            } => {
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&sealed_bytes.to_le_bytes());
                out.extend_from_slice(&side_bytes.to_le_bytes());
                out.extend_from_slice(&side_crc.to_le_bytes());
            }
            Self::DropSegment { number } => out.extend_from_slice(&number.to_le_bytes()),
            Self::SetBound { bytes } => out.extend_from_slice(&bytes.to_le_bytes()),
            Self::RestoreSegment {
                number,
                slot,
                salt,
                created_by,
            } => {
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&slot.to_le_bytes());
                out.extend_from_slice(&salt.to_le_bytes());
                out.extend_from_slice(&created_by.to_le_bytes());
            }
            Self::Advance {
                next_segment,
                next_slot,
            } => {
                out.extend_from_slice(&next_segment.to_le_bytes());
                out.extend_from_slice(&next_slot.to_le_bytes());
            }
        }
    }

    fn decode(tag: u16, bytes: &[u8]) -> Option<Result<Self, String>> {
        // Fields of a struct expression are evaluated in the order in which they are written.
        let mut from = FieldReader::new(bytes);
        let read = || -> Result<Self, String> {
            let operation = match tag {
                16 => Self::AddSlot {
                    slot: from.u32()?,
                    bytes: from.u64()?,
                },
                17 => Self::RemoveSlot { slot: from.u32()? },
                18 => Self::OpenSegment {
                    number: from.u64()?,
                    slot: from.u32()?,
                    salt: from.u64()?,
                },
                19 => Self::SealSegment {
                    number: from.u64()?,
                    sealed_bytes: from.u64()?,
                    side_bytes: from.u32()?,
                    side_crc: from.u32()?,
                },
                20 => Self::DropSegment {
                    number: from.u64()?,
                },
                21 => Self::RestoreSegment {
                    number: from.u64()?,
                    slot: from.u32()?,
                    salt: from.u64()?,
                    created_by: from.u64()?,
                },
                SET_BOUND => Self::SetBound { bytes: from.u64()? },
                24 => Self::FillSlot {
                    slot: from.u32()?,
                    bytes: from.u64()?,
                },
                25 => Self::AllowNulls,
                _ => Self::Advance {
                    next_segment: from.u64()?,
                    next_slot: from.u32()?,
                },
            };
            from.end()?;
            Ok(operation)
        };
        (matches!(tag, 16..=22 | 24 | 25) || tag == SET_BOUND).then(read)
    }
}
