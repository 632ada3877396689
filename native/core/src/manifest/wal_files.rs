//! The write-ahead log's file list: which slot holds which segment.
//!
//! # Theory of operation
//!
//! A *slot* is a preallocated file that is reused for ever; a *segment* is what one lap of the log
//! wrote into it. The manifest maps one to the other, so that reuse renames nothing.
//!
//! ```text
//! AddSlot ──► free ──OpenSegment──► active ──SealSegment──► sealed ──DropSegment──► free
//!               └──RemoveSlot──► gone
//! ```
//!
//! # Invariants
//!
//! 1. At most one segment is not sealed, and it is the newest.
//! 2. Segment numbers are dense when given, slot ids grow; neither is ever given twice. Zero is no
//!    number and no id.
//! 3. A slot holds at most one segment; each segment has a slot of the list.
//! 4. The newest segment is never dropped: its preamble is the state of the log.

use std::collections::{BTreeMap, BTreeSet};

use super::{Context, Version, WalOperation};

/// What sealing fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Bytes in use; all of them are durable.
    pub bytes: u64,
    /// Length of the side file.
    pub side_bytes: u32,
    /// CRC32C of the side file.
    pub side_crc: u32,
}

/// One segment of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number, from 1.
    pub number: u64,
    /// The slot that holds it.
    pub slot: u32,
    /// Salt of its frame checksums.
    pub salt: u64,
    /// The edit that opened it.
    pub created_by: u64,
    /// `None` while it is active.
    pub sealed: Option<Sealed>,
}

/// The file list of one write-ahead log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalFiles {
    slots: BTreeMap<u32, u64>,
    /// Bytes that the files of slots have which are not whole yet.
    short: BTreeMap<u32, u64>,
    segments: BTreeMap<u64, Segment>,
    free: BTreeSet<u32>,
    next_segment: u64,
    next_slot: u32,
    bound: Option<u64>,
    nulls: bool,
}

impl Default for WalFiles {
    fn default() -> Self {
        Self {
            slots: BTreeMap::new(),
            short: BTreeMap::new(),
            segments: BTreeMap::new(),
            free: BTreeSet::new(),
            next_segment: 1,
            next_slot: 1,
            bound: None,
            nulls: false,
        }
    }
}

impl WalFiles {
    /// The segment being written, if any.
    pub fn active(&self) -> Option<&Segment> {
        self.newest().filter(|segment| segment.sealed.is_none())
    }

    /// The newest segment, sealed or not.
    pub fn newest(&self) -> Option<&Segment> {
        self.segments.values().next_back()
    }

    /// All segments, oldest first.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &Segment> + ExactSizeIterator {
        self.segments.values()
    }

    /// One segment.
    pub fn segment(&self, number: u64) -> Option<&Segment> {
        self.segments.get(&number)
    }

    /// The slot that holds a segment.
    pub fn slot_of(&self, number: u64) -> Option<u32> {
        self.segment(number).map(|segment| segment.slot)
    }

    /// All slots as (id, bytes), by id.
    pub fn slots(&self) -> impl ExactSizeIterator<Item = (u32, u64)> {
        self.slots.iter().map(|(&slot, &bytes)| (slot, bytes))
    }

    /// Length of a slot: of its file once that is whole.
    pub fn slot_bytes(&self, slot: u32) -> Option<u64> {
        self.slots.get(&slot).copied()
    }

    /// Bytes that a slot's file has at least: fewer than the slot's length while it grows.
    pub fn filled_bytes(&self, slot: u32) -> Option<u64> {
        self.short
            .get(&slot)
            .copied()
            .or_else(|| self.slot_bytes(slot))
    }

    /// Slots that hold no segment, by id.
    pub fn free_slots(&self) -> impl ExactSizeIterator<Item = u32> {
        self.free.iter().copied()
    }

    /// Number that the next segment gets.
    pub fn next_segment(&self) -> u64 {
        self.next_segment
    }

    /// Smallest id that the next slot may get.
    pub fn next_slot(&self) -> u32 {
        self.next_slot
    }

    /// Most bytes of all segments together; `None` where an earlier build made the directory.
    pub fn bound(&self) -> Option<u64> {
        self.bound
    }

    /// Whether there may be batches with null values.
    pub fn nulls(&self) -> bool {
        self.nulls
    }

    fn add_slot(&mut self, slot: u32, bytes: u64) -> Result<(), String> {
        if slot < self.next_slot {
            return Err(format!(
                "slot {slot}: ids below {} were given",
                self.next_slot
            ));
        }
        if bytes == 0 {
            return Err(format!("slot {slot} has no bytes"));
        }
        self.next_slot = slot.checked_add(1).ok_or("slot ids are used up")?;
        self.slots.insert(slot, bytes);
        self.free.insert(slot);
        Ok(())
    }

    fn remove_slot(&mut self, slot: u32) -> Result<(), String> {
        if !self.free.remove(&slot) {
            let is = if self.slots.contains_key(&slot) {
                "in use"
            } else {
                "unknown"
            };
            return Err(format!("slot {slot} is {is}"));
        }
        self.slots.remove(&slot);
        self.short.remove(&slot);
        Ok(())
    }

    fn fill_slot(&mut self, slot: u32, bytes: u64) -> Result<(), String> {
        let Some(&whole) = self.slots.get(&slot) else {
            return Err(format!("slot {slot} is unknown"));
        };
        // A slot is added as whole, and before a segment is in it a second field may say that it is not.
        let least = if self.free.contains(&slot) { 1 } else { whole };
        let before = self.short.get(&slot).copied().unwrap_or(least);
        if bytes < before || bytes > whole {
            return Err(format!(
                "slot {slot}: {bytes} bytes filled, after {before} of {whole}"
            ));
        }
        if bytes < whole {
            self.short.insert(slot, bytes);
        } else {
            self.short.remove(&slot);
        }
        Ok(())
    }

    fn open_segment(&mut self, segment: Segment) -> Result<(), String> {
        let Segment { number, slot, .. } = segment;
        if let Some(active) = self.active() {
            return Err(format!("segment {} is not sealed", active.number));
        }
        if !self.free.contains(&slot) {
            let is = if self.slots.contains_key(&slot) {
                "in use"
            } else {
                "unknown"
            };
            return Err(format!("segment {number}: slot {slot} is {is}"));
        }
        self.next_segment = number.checked_add(1).ok_or("segment numbers are used up")?;
        self.free.remove(&slot);
        self.segments.insert(number, segment);
        Ok(())
    }

    fn seal_segment(&mut self, number: u64, sealed: Sealed) -> Result<(), String> {
        let segment = self
            .segments
            .get_mut(&number)
            .ok_or_else(|| format!("segment {number} is unknown"))?;
        if segment.sealed.is_some() {
            return Err(format!("segment {number} is sealed already"));
        }
        let slot = segment.slot;
        let room = self.short.get(&slot).or(self.slots.get(&slot));
        let room = room.copied().unwrap_or(0);
        if sealed.bytes > room {
            return Err(format!(
                "segment {number}: {} bytes in a slot of {room}",
                sealed.bytes
            ));
        }
        segment.sealed = Some(sealed);
        Ok(())
    }

    fn drop_segment(&mut self, number: u64) -> Result<(), String> {
        let segment = self
            .segment(number)
            .ok_or_else(|| format!("segment {number} is unknown"))?;
        if segment.sealed.is_none() {
            return Err(format!("segment {number} is not sealed"));
        }
        if self.newest() == Some(segment) {
            return Err(format!("segment {number} is the newest"));
        }
        let slot = segment.slot;
        self.segments.remove(&number);
        self.free.insert(slot);
        Ok(())
    }

    fn apply_one(&mut self, context: Context, operation: WalOperation) -> Result<(), String> {
        use WalOperation as Op;
        match operation {
            Op::AddSlot { slot, bytes } => self.add_slot(slot, bytes),
            Op::RemoveSlot { slot } => self.remove_slot(slot),
            Op::OpenSegment { number, slot, salt } => {
                if number != self.next_segment {
                    return Err(format!(
                        "segment {number} is not the next, {}",
                        self.next_segment
                    ));
                }
                let created_by = context.edit;
                self.open_segment(Segment {
                    number,
                    slot,
                    salt,
                    created_by,
                    sealed: None,
                })
            }
            Op::SealSegment {
                number,
                sealed_bytes,
                side_bytes,
                side_crc,
            } => {
                let sealed = Sealed {
                    bytes: sealed_bytes,
                    side_bytes,
                    side_crc,
                };
                self.seal_segment(number, sealed)
            }
            Op::DropSegment { number } => self.drop_segment(number),
            Op::RestoreSegment { .. } | Op::Advance { .. } if !context.snapshot => {
                Err("an operation of snapshots".into())
            }
            Op::RestoreSegment {
                number,
                slot,
                salt,
                created_by,
            } => {
                // Segments between may have been dropped.
                if number < self.next_segment || created_by >= context.edit {
                    return Err(format!("segment {number} (edit {created_by}) out of order"));
                }
                self.open_segment(Segment {
                    number,
                    slot,
                    salt,
                    created_by,
                    sealed: None,
                })
            }
            Op::Advance {
                next_segment,
                next_slot,
            } => {
                if next_segment < self.next_segment || next_slot < self.next_slot {
                    return Err("numbers go back".into());
                }
                self.next_segment = next_segment;
                self.next_slot = next_slot;
                Ok(())
            }
            Op::FillSlot { slot, bytes } => self.fill_slot(slot, bytes),
            Op::SetBound { bytes: 0 } => Err("a bound of 0 bytes".into()),
            Op::SetBound { bytes } => {
                self.bound = Some(bytes);
                Ok(())
            }
            Op::AllowNulls => {
                self.nulls = true;
                Ok(())
            }
        }
    }
}

impl Version for WalFiles {
    const KIND: u32 = 1;
    type Operation = WalOperation;

    fn apply(&mut self, context: Context, operations: &[WalOperation]) -> Result<(), String> {
        operations
            .iter()
            .try_for_each(|&operation| self.apply_one(context, operation))
    }

    /// Slots by id, those that are not whole, then each segment with its seal, oldest first, then the counters, the bound
    /// and whether there may be nulls.
    fn snapshot(&self) -> Vec<WalOperation> {
        let mut out: Vec<_> = self
            .slots()
            .map(|(slot, bytes)| WalOperation::AddSlot { slot, bytes })
            .collect();
        let short = self.short.iter();
        out.extend(short.map(|(&slot, &bytes)| WalOperation::FillSlot { slot, bytes }));
        for segment in self.segments() {
            let Segment {
                number,
                slot,
                salt,
                created_by,
                sealed,
            } = *segment;
            out.push(WalOperation::RestoreSegment {
                number,
                slot,
                salt,
                created_by,
            });
            out.extend(sealed.map(|sealed| WalOperation::SealSegment {
                number,
                sealed_bytes: sealed.bytes,
                side_bytes: sealed.side_bytes,
                side_crc: sealed.side_crc,
            }));
        }
        let (next_segment, next_slot) = (self.next_segment, self.next_slot);
        out.push(WalOperation::Advance {
            next_segment,
            next_slot,
        });
        out.extend(self.bound.map(|bytes| WalOperation::SetBound { bytes }));
        out.extend(self.nulls.then_some(WalOperation::AllowNulls));
        out
    }
}

/// Name of a slot's file in `wal/`.
pub fn slot_name(slot: u32) -> String {
    format!("slot-{slot:06}.wal")
}

/// Name of a sealed segment's side file in `wal/`.
pub fn side_name(number: u64) -> String {
    format!("{number:012}.idx")
}

/// Slot of a file name, if it is exactly one that [`slot_name`] gives.
pub fn parse_slot_name(name: &str) -> Option<u32> {
    let slot = name
        .strip_prefix("slot-")?
        .strip_suffix(".wal")?
        .parse()
        .ok()?;
    (slot_name(slot) == name).then_some(slot)
}

/// Segment of a file name, if it is exactly one that [`side_name`] gives.
pub fn parse_side_name(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".idx")?.parse().ok()?;
    (side_name(number) == name).then_some(number)
}
