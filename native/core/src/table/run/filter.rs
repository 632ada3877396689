//! Filter over the keys of a run: says of most keys that are not there that they are not.
//!
//! A Bloom filter whose bits for one key lie in one block of 64 bytes, so that a question costs one cache
//! miss (Putze, Sanders and Singler, "Cache-, hash- and space-efficient Bloom filters", 2007).
//!
//! ```text
//! key -> XXH3-64 of its bytes, seed 0
//! block = (upper 32 bits * blocks) >> 32
//! h = lower 32 bits; as often as the footer says: bit (h >> 23) of the block, then h = h * 0x9e3779b9 mod 2^32
//! ```
//!
//! Bit `i` of a block is bit `i % 8` of its byte `i / 8`.

use twox_hash::XxHash3_64;

/// Bytes of a block: one cache line of most processors.
pub(super) const BLOCK_BYTES: usize = 64;

/// Most bits for one key that a footer may ask for.
pub(super) const PROBES_MAX: u32 = 16;

const GOLDEN: u32 = 0x9e37_79b9;

/// The hash of a key, which is the same in all runs: computed once for a lookup in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(u64);

impl KeyHash {
    /// Hash a key.
    pub fn of(key: &[u8]) -> Self {
        Self(XxHash3_64::oneshot(key))
    }

    fn block(self, blocks: usize) -> usize {
        (((self.0 >> 32) * blocks as u64) >> 32) as usize
    }

    fn bits(self, probes: u32) -> impl Iterator<Item = (usize, u8)> {
        let mut h = self.0 as u32;
        (0..probes).map(move |_| {
            let bit = h >> 23;
            h = h.wrapping_mul(GOLDEN);
            (bit as usize / 8, 1 << (bit % 8))
        })
    }
}

/// A filter in memory.
pub(super) struct Filter {
    /// Whole blocks; none if the run has no filter.
    bytes: Vec<u8>,
    probes: u32,
}

impl Filter {
    /// A filter of about `bits_per_key` for these hashes; none for 0 bits.
    pub(super) fn build(hashes: &[KeyHash], bits_per_key: u32, bytes_max: usize) -> Self {
        if bits_per_key == 0 {
            return Self {
                bytes: Vec::new(),
                probes: 0,
            };
        }
        // The optimum is ln 2 = 0.69 of the bits; blocks fill unevenly, which moves it down a little.
        let probes = (bits_per_key * 6 / 10).clamp(1, PROBES_MAX);
        let bits = hashes.len() as u64 * u64::from(bits_per_key);
        let blocks = bits.div_ceil(8 * BLOCK_BYTES as u64);
        let blocks = blocks.clamp(1, (bytes_max / BLOCK_BYTES) as u64) as usize;
        let mut bytes = vec![0; blocks * BLOCK_BYTES];
        for hash in hashes {
            let begin = hash.block(blocks) * BLOCK_BYTES;
            for (byte, mask) in hash.bits(probes) {
                bytes[begin + byte] |= mask;
            }
        }
        Self { bytes, probes }
    }

    /// What was stored; the caller has checked that it is whole blocks and the checksum.
    pub(super) fn new(bytes: Vec<u8>, probes: u32) -> Self {
        Self { bytes, probes }
    }

    /// The stored form.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bits that each key sets.
    pub(super) fn probes(&self) -> u32 {
        self.probes
    }

    /// False only if no such key is in the run.
    pub(super) fn may_contain(&self, hash: KeyHash) -> bool {
        if self.bytes.is_empty() {
            return true;
        }
        let begin = hash.block(self.bytes.len() / BLOCK_BYTES) * BLOCK_BYTES;
        let block = &self.bytes[begin..begin + BLOCK_BYTES];
        hash.bits(self.probes)
            .all(|(byte, mask)| block[byte] & mask != 0)
    }
}
