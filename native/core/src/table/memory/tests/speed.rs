//! Figures for the eye: `cargo test --release memory_speed -- --ignored --nocapture`.

use super::*;

fn key_of(n: u64) -> [u8; 16] {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = *b"k-00000000000000";
    key[8..].copy_from_slice(&mixed.to_be_bytes());
    key
}

/// Time that this thread has run: on a machine that does other things as well, others mean little.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "prints figures"]
fn memory_speed() {
    const COUNT: u32 = 1 << 20;
    for size in [1_u32, 100, 10_000, 65_536] {
        let begin = cpu_nanos();
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
        let applied = cpu_nanos() - begin;
        let begin = cpu_nanos();
        let mut found = 0;
        for n in 0..COUNT {
            let n = n.wrapping_mul(40_503) % COUNT;
            found += u32::from(level.get(&key_of(n.into()), u64::MAX).is_some());
        }
        let read = cpu_nanos() - begin;
        assert_eq!(found, COUNT);
        println!(
            "pieces of {size}: apply {} ns, get {} ns each, {} chunks, {} MiB",
            applied / u64::from(COUNT),
            read / u64::from(COUNT),
            level.chunks(),
            level.bytes() >> 20,
        );
    }
}
