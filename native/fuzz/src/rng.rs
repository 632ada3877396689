//! Randomness that depends on nothing but the seed: the same on every machine, for ever.

/// A generator for one purpose.
pub struct Rng(oorandom::Rand64);

/// Values that decoders get wrong: around zero, around powers of two, around the limits.
const INTERESTING: [u64; 22] = [
    0,
    1,
    2,
    7,
    8,
    48,
    255,
    256,
    4095,
    4096,
    16384,
    65535,
    65536,
    (1 << 20) + 1,
    (16 << 20) - 1,
    16 << 20,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 62,
    1 << 63,
    u64::MAX,
];

impl Rng {
    /// The generator of iteration `number` of `target`.
    pub fn new(seed: u64, target: &str, number: u64) -> Self {
        let name = target.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let high = mix(seed ^ mix(name));
        let low = mix(high ^ mix(number));
        Self(oorandom::Rand64::new(
            u128::from(high) << 64 | u128::from(low),
        ))
    }

    /// Any number.
    pub fn u64(&mut self) -> u64 {
        self.0.rand_u64()
    }

    /// Any number.
    pub fn u32(&mut self) -> u32 {
        (self.u64() >> 32) as u32
    }

    /// Any byte.
    pub fn byte(&mut self) -> u8 {
        (self.u64() >> 56) as u8
    }

    /// A number below `end`; 0 if there is none.
    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 {
            return 0;
        }
        self.0.rand_range(0..end as u64) as usize
    }

    /// A number from 0 to below `end`.
    pub fn time_below(&mut self, end: u32) -> i64 {
        i64::from(self.below(end as usize) as u32)
    }

    /// A number of `range`, which is not empty.
    pub fn within(&mut self, range: std::ops::RangeInclusive<usize>) -> usize {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// True once in `of` times.
    pub fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    /// One of them; there is at least one.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// That many random bytes; one in two times of few values, so that they compress.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mask = if self.one_in(2) { 0x03 } else { 0xff };
        (0..len).map(|_| self.byte() & mask).collect()
    }

    /// A value that may hurt in place of `old`.
    pub fn hurtful(&mut self, old: u64, len: usize) -> u64 {
        match self.below(8) {
            0 => old.wrapping_add(1),
            1 => old.wrapping_sub(1),
            2 => old.wrapping_add(8),
            3 => old.wrapping_mul(2),
            4 => (len as u64)
                .wrapping_add(self.below(17) as u64)
                .wrapping_sub(8),
            5 => u64::MAX - self.below(64) as u64,
            6 => self.below(len.max(1)) as u64,
            _ => *self.pick(&INTERESTING),
        }
    }
}

/// One step of splitmix64.
pub fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
