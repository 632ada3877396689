//! The filter keeps what it promises: never a false no, and few false yeses.

use super::super::filter::{Filter, KeyHash};
use super::*;

#[test]
fn few_keys_that_are_not_there_pass() {
    let hash = |n: u32| KeyHash::of(format!("user:{n:08}").as_bytes());
    let hashes: Vec<KeyHash> = (0..50_000).map(hash).collect();
    // In a thousand; a perfect filter would have 24, 8.2 and 0.5 with these sizes.
    for (bits, most) in [(8, 35), (10, 15), (16, 3)] {
        let filter = Filter::build(&hashes, bits, 1 << 30);
        assert!(hashes.iter().all(|hash| filter.may_contain(*hash)));
        let wrong = (1_000_000..1_100_000)
            .filter(|n| filter.may_contain(hash(*n)))
            .count();
        assert!(wrong / 100 < most, "{bits} bits: {wrong} of 100,000");
    }
}

/// The hash is part of the format.
#[test]
fn the_hash_is_xxh3() {
    assert_eq!(KeyHash::of(b""), KeyHash::of(&[]));
    let raw = |key: &[u8]| format!("{:?}", KeyHash::of(key));
    // From the reference implementation: XXH3_64bits("", seed 0) and of "abc".
    assert_eq!(raw(b""), format!("KeyHash({})", 0x2d06_8005_38d3_94c2_u64));
    assert_eq!(
        raw(b"abc"),
        format!("KeyHash({})", 0x78af_5f94_892f_3950_u64)
    );
}

#[test]
fn a_bound_on_the_bytes_only_makes_it_pass_more() {
    let hashes: Vec<KeyHash> = (0..1000u32)
        .map(|n| KeyHash::of(&n.to_le_bytes()))
        .collect();
    let filter = Filter::build(&hashes, 10, 128);
    assert_eq!(filter.bytes().len(), 128);
    assert!(hashes.iter().all(|hash| filter.may_contain(*hash)));
}

/// A lookup that the filter answers reads no page.
#[test]
fn a_key_that_is_not_there_is_not_looked_for() {
    let vfs = memory();
    let model = some_entries(300);
    let info = write(&vfs, &model, RunOptions::default()).unwrap().unwrap();
    let cache = Arc::new(RunCache::default());
    let run = Run::open(Arc::new(vfs), Path::new(DIR), ID, &info, &cache).unwrap();
    assert!(run.get(b"key-00100", 0).unwrap().is_none());
    assert!(run.get(b"key-00100.5", u64::MAX).unwrap().is_none());
    assert_eq!(cache.bytes(), 0);
    assert!(run.get(b"key-00100", u64::MAX).unwrap().is_some());
    assert!(cache.bytes() > 0);
}
