//! Figures for the eye: `cargo test --release tree_speed -- --ignored --nocapture`.

use super::*;

/// Time that this thread has run: on a machine that does other things as well, others mean little.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "prints figures"]
fn tree_speed() {
    const COUNT: u64 = 1 << 20;
    let options = TreeOptions::default();
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::untraced());
    let cache = Arc::new(RunCache::new(256 << 20, 64));
    let tree = Tree::create(vfs, Path::new(DIR), ID, 0, options, &cache).unwrap();
    let key_of = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let say = |what: &str, begin: u64, count: u64| {
        let nanos = (cpu_nanos() - begin) / count;
        println!("{what}: {nanos} ns each");
    };
    let mut position = 0;
    for _ in 0..3 {
        let begin = cpu_nanos();
        for _ in 0..COUNT >> 14 {
            let mut piece = Piece::with_capacity(1 << 14, (1 << 14) * 108);
            for _ in 0..1 << 14 {
                position += 1;
                let (key, payload) = (&key_of(position)[..], Some(&[7; 100][..]));
                piece
                    .push(&Entry {
                        key,
                        position,
                        payload,
                    })
                    .unwrap();
            }
            tree.apply(piece, position).unwrap();
        }
        say("apply", begin, COUNT);
        let begin = cpu_nanos();
        let snapshot = tree.snapshot();
        for n in 0..COUNT {
            let n = position - n.wrapping_mul(40_503) % COUNT;
            assert!(snapshot.get(&key_of(n), position).unwrap().is_some());
        }
        say("get from memory", begin, COUNT);
        drop(snapshot);
        let begin = cpu_nanos();
        tree.flush().unwrap();
        say("flush", begin, COUNT);
    }
    let begin = cpu_nanos();
    while tree.compact(None).unwrap() {}
    say("merge (about 120 bytes)", begin, 3 * COUNT);
    let snapshot = tree.snapshot();
    let begin = cpu_nanos();
    for n in 0..COUNT {
        let n = n.wrapping_mul(40_503) % COUNT + 1;
        assert!(snapshot.get(&key_of(n), position).unwrap().is_some());
    }
    say("get from a run", begin, COUNT);
    let begin = cpu_nanos();
    let scan = snapshot.entries(None, None, Direction::Forward, position, Tombstones::Hidden);
    let (mut scan, mut found) = (scan.unwrap(), 0);
    while scan.advance().unwrap() {
        found += 1;
    }
    assert_eq!(found, 3 * COUNT);
    say("scan", begin, found);
    println!("{:?}", tree.stats());
}
