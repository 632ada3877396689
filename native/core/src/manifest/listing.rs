//! A list of numbered entries whose bytes belong to the caller.
//!
//! For things that are listed in Python: directories of snapshots, say. The manifest makes a list
//! of them durable, and never gives a number twice.
//!
//! # Fields
//!
//! ```text
//! 16  Add        u64 number, then the entry
//! 17  Remove     u64 number
//! 18  Advance    u64 next number      (snapshots only)
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use super::codec::FieldReader;
use super::{Context, Operation, Version};
use crate::limits::LISTING_ENTRY_BYTES_MAX;

/// The list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    entries: BTreeMap<u64, Arc<[u8]>>,
    next: u64,
}

impl Listing {
    /// The entries, by number.
    pub fn entries(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.entries
            .iter()
            .map(|(number, entry)| (*number, &**entry))
    }

    /// The lowest number that was never given; the first is 1.
    pub fn next(&self) -> u64 {
        self.next.max(1)
    }

    fn apply_one(&mut self, context: Context, operation: &ListingOperation) -> Result<(), String> {
        match operation {
            ListingOperation::Add { number, entry } => {
                if entry.len() > LISTING_ENTRY_BYTES_MAX {
                    return Err(format!("entry {number} has {} bytes", entry.len()));
                }
                if *number < self.next() {
                    return Err(format!("entry {number} is not new: {} is", self.next()));
                }
                self.entries.insert(*number, entry.clone());
                self.next = number + 1;
            }
            ListingOperation::Remove { number } => {
                if self.entries.remove(number).is_none() {
                    return Err(format!("entry {number} is not listed"));
                }
            }
            ListingOperation::Advance { next } => {
                if !context.snapshot || *next < self.next() {
                    return Err(format!("advance to {next}, at {}", self.next()));
                }
                self.next = *next;
            }
        }
        Ok(())
    }
}

impl Version for Listing {
    const KIND: u32 = 2;
    type Operation = ListingOperation;

    fn apply(&mut self, context: Context, operations: &[ListingOperation]) -> Result<(), String> {
        operations
            .iter()
            .try_for_each(|operation| self.apply_one(context, operation))
    }

    fn snapshot(&self) -> Vec<ListingOperation> {
        let mut operations: Vec<_> = self
            .entries
            .iter()
            .map(|(&number, entry)| ListingOperation::Add {
                number,
                entry: entry.clone(),
            })
            .collect();
        operations.push(ListingOperation::Advance { next: self.next() });
        operations
    }
}

/// One change of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListingOperation {
    /// List an entry.
    Add {
        /// Never given before.
        number: u64,
        /// What the caller says of it.
        entry: Arc<[u8]>,
    },
    /// Forget an entry.
    Remove {
        /// Its number.
        number: u64,
    },
    /// Written by snapshots only: numbers below this were given.
    Advance {
        /// Next number.
        next: u64,
    },
}

impl Operation for ListingOperation {
    const NEWEST_TAG: u16 = 18;

    fn tag(&self) -> u16 {
        match self {
            Self::Add { .. } => 16,
            Self::Remove { .. } => 17,
            Self::Advance { .. } => 18,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Add { number, entry } => {
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(entry);
            }
            Self::Remove { number } => out.extend_from_slice(&number.to_le_bytes()),
            Self::Advance { next } => out.extend_from_slice(&next.to_le_bytes()),
        }
    }

    fn decode(tag: u16, bytes: &[u8]) -> Option<Result<Self, String>> {
        let read = || -> Result<Self, String> {
            let mut from = FieldReader::new(bytes);
            let number = from.u64()?;
            if tag == 16 {
                let entry = bytes[8..].into();
                return Ok(Self::Add { number, entry });
            }
            from.end()?;
            Ok(match tag {
                17 => Self::Remove { number },
                _ => Self::Advance { next: number },
            })
        };
        (16..=Self::NEWEST_TAG).contains(&tag).then(read)
    }
}
