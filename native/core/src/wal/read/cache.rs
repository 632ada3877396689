//! Heads and pages of large batches, kept for the lookups that come back to them.
//!
//! # Theory of operation
//!
//! A lookup in a large batch needs its head, the pages with the record's offsets and those with its data.
//! The first two are a few per cent of the bytes and serve many records, so they are kept here; data is
//! left to the system's page cache. What is kept goes by second chance: the oldest is dropped unless it
//! was used since it became the oldest last. Shards let threads look records up at once.
//!
//! # Invariants
//!
//! - What is kept was verified when it was read, and its name is all that its frame's checksum is seeded
//!   with: another lap of a slot, also one of the same segment number, has another name.
//! - It does not say what a reader may see: ranges and cuts are asked each time.
//! - A shard never holds more than its share of `bytes_max`.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::batch::OwnedHead;
use crate::wal::format::frame::{Frame, Seed};

/// Enough that a few threads rarely meet.
const SHARDS: usize = 16;

/// What an entry takes apart from its bytes: its places in the map and in the order, reference counts.
const ENTRY_BYTES: usize = 160;

/// A frame and the head of its batch, both verified.
#[derive(Debug)]
pub(super) struct KeptHead {
    pub(crate) frame: Frame,
    pub(crate) head: OwnedHead,
}

/// Salt, segment, offset.
type Name = (u64, u64, u32);

/// Hashes names. The salts are random already, so that nobody can make names collide.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        // Fibonacci hashing makes the upper bits depend on all of the number; the shift brings them down.
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

/// Frames and pages do not begin at the same offsets.
#[derive(Clone)]
enum Kept {
    Head(Arc<KeptHead>),
    Page(Arc<[u8]>),
}

impl Kept {
    fn bytes(&self) -> usize {
        ENTRY_BYTES
            + match self {
                Self::Head(kept) => size_of::<KeptHead>() + kept.head.table_len(),
                Self::Page(bytes) => bytes.len(),
            }
    }
}

struct Entry {
    kept: Kept,
    /// Since it was inserted or last spared.
    used: bool,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<Name, Entry, BuildHasherDefault<Mix>>,
    /// Oldest first; names each entry once.
    order: VecDeque<Name>,
    bytes: usize,
}

impl Shard {
    fn get(&mut self, name: &Name) -> Option<Kept> {
        let entry = self.entries.get_mut(name)?;
        entry.used = true;
        Some(entry.kept.clone())
    }

    fn put(&mut self, name: Name, kept: Kept, bytes_max: usize) {
        let bytes = kept.bytes();
        // Another thread may have been faster; both read the same.
        if bytes > bytes_max || self.entries.contains_key(&name) {
            return;
        }
        while self.bytes + bytes > bytes_max {
            self.drop_oldest();
        }
        self.bytes += bytes;
        self.order.push_back(name);
        let used = false;
        self.entries.insert(name, Entry { kept, used });
    }

    fn drop_oldest(&mut self) {
        while let Some(name) = self.order.pop_front() {
            let entry = self.entries.get_mut(&name);
            if entry.is_some_and(|entry| mem::take(&mut entry.used)) {
                self.order.push_back(name);
            } else {
                let dropped = self.entries.remove(&name);
                self.bytes -= dropped.map_or(0, |entry| entry.kept.bytes());
                return;
            }
        }
    }
}

/// What lookups keep, for all streams of a view.
pub(super) struct LookupCache {
    shards: [Mutex<Shard>; SHARDS],
    shard_bytes_max: usize,
}

impl LookupCache {
    /// A cache of about `bytes_max` bytes; 0 keeps nothing.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            shards: Default::default(),
            shard_bytes_max: bytes_max / SHARDS,
        }
    }

    /// The head of the batch whose frame begins at `offset`.
    pub(crate) fn head(&self, seed: Seed, offset: u32) -> Option<Arc<KeptHead>> {
        match self.get(seed, offset)? {
            Kept::Head(head) => Some(head),
            Kept::Page(_) => None,
        }
    }

    /// The page that begins at `offset`.
    pub(crate) fn page(&self, seed: Seed, offset: u32) -> Option<Arc<[u8]>> {
        match self.get(seed, offset)? {
            Kept::Page(page) => Some(page),
            Kept::Head(_) => None,
        }
    }

    /// Keep a verified head.
    pub(super) fn put_head(&self, seed: Seed, head: &Arc<KeptHead>) {
        self.put(seed, head.frame.offset, Kept::Head(Arc::clone(head)));
    }

    /// Keep a verified page.
    pub(super) fn put_page(&self, seed: Seed, offset: u32, page: &[u8]) {
        self.put(seed, offset, Kept::Page(page.into()));
    }

    /// Let go of everything.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            *shard.lock() = Shard::default();
        }
    }

    fn get(&self, seed: Seed, offset: u32) -> Option<Kept> {
        let name = name(seed, offset);
        self.shard(&name).lock().get(&name)
    }

    fn put(&self, seed: Seed, offset: u32, kept: Kept) {
        let name = name(seed, offset);
        let mut shard = self.shard(&name).lock();
        shard.put(name, kept, self.shard_bytes_max);
    }

    fn shard(&self, name: &Name) -> &Mutex<Shard> {
        let hash = BuildHasherDefault::<Mix>::default().hash_one(name);
        // Bits that the map does not go by: it takes the lowest and the highest.
        &self.shards[(hash >> 32) as usize % self.shards.len()]
    }
}

fn name(seed: Seed, offset: u32) -> Name {
    (seed.salt, seed.segment, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(value: u8) -> Kept {
        Kept::Page([value; 40].as_slice().into())
    }

    fn held(shard: &Shard) -> Vec<u32> {
        shard.order.iter().map(|name| name.2).collect()
    }

    #[test]
    fn the_oldest_goes_unless_it_was_used() {
        let (mut shard, max) = (Shard::default(), 3 * (ENTRY_BYTES + 40));
        for offset in 0..3 {
            shard.put((1, 1, offset), page(offset as u8), max);
        }
        assert!(shard.get(&(1, 1, 0)).is_some());
        shard.put((1, 1, 3), page(3), max);
        assert_eq!(held(&shard), [2, 0, 3]);
        // Spared once, not for ever.
        shard.put((1, 1, 4), page(4), max);
        shard.put((1, 1, 5), page(5), max);
        assert_eq!(held(&shard), [3, 4, 5]);
        assert_eq!(shard.entries.len(), 3);
        assert_eq!(shard.bytes, max);
    }

    #[test]
    fn a_name_is_kept_once_and_what_is_too_large_not_at_all() {
        let (mut shard, max) = (Shard::default(), 3 * (ENTRY_BYTES + 40));
        shard.put((1, 1, 0), page(0), max);
        shard.put((1, 1, 0), page(0), max);
        assert_eq!((held(&shard).len(), shard.bytes), (1, max / 3));
        shard.put((1, 1, 8), Kept::Page(vec![0; max].into()), max);
        assert_eq!(held(&shard), [0]);
    }

    #[test]
    fn salt_segment_and_offset_make_the_name() {
        let cache = LookupCache::new(1 << 20);
        let seed = Seed {
            salt: 1,
            segment: 2,
        };
        cache.put_page(seed, 4096, b"mine");
        assert_eq!(cache.page(seed, 4096).as_deref(), Some(&b"mine"[..]));
        assert!(cache.page(Seed { salt: 3, ..seed }, 4096).is_none());
        assert!(cache.page(Seed { segment: 3, ..seed }, 4096).is_none());
        assert!(cache.page(seed, 4104).is_none());
        assert!(cache.head(seed, 4096).is_none(), "a page is no head");
        cache.clear();
        assert!(cache.page(seed, 4096).is_none());
    }
}
