//! Figures for the eye: `cargo test --release memory_speed -- --ignored --nocapture`.

use std::time::Instant;

use super::*;

fn key_of(n: u64) -> [u8; 16] {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = *b"k-00000000000000";
    key[8..].copy_from_slice(&mixed.to_be_bytes());
    key
}

#[test]
#[ignore = "prints figures"]
fn memory_speed() {
    const COUNT: u32 = 1 << 20;
    for size in [1_u32, 100, 10_000, 65_536] {
        let begin = Instant::now();
        let mut level = Level::default();
        for first in (0..COUNT).step_by(size as usize) {
            let mut piece = Piece::with_capacity(size as usize, size as usize * 116);
            for n in first..(first + size).min(COUNT) {
                let (key, payload) = (&key_of(n.into())[..], Some(&[7; 100][..]));
                piece
                    .push(&Entry {
                        key,
                        position: u64::from(n) + 1,
                        payload,
                    })
                    .unwrap();
            }
            level = level.push(piece.sort().unwrap());
        }
        let applied = begin.elapsed();
        let begin = Instant::now();
        let mut found = 0;
        for n in 0..COUNT {
            let n = n.wrapping_mul(40_503) % COUNT;
            found += u32::from(level.get(&key_of(n.into()), u64::MAX).is_some());
        }
        let read = begin.elapsed();
        assert_eq!(found, COUNT);
        println!(
            "pieces of {size}: {:.2} M entries/s, {} chunks, {} MiB, get {} ns",
            f64::from(COUNT) / applied.as_secs_f64() / 1e6,
            level.chunks(),
            level.bytes() >> 20,
            read.as_nanos() / u128::from(COUNT),
        );
    }
}
