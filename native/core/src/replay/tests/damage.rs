//! Damaged directories against the log in memory: whatever is damaged, nothing comes out that is not in the log,
//! and nothing is missing that is not named.

#![allow(clippy::unwrap_used)]

use super::*;

const WAL: &str = "/node/wal";

/// The frames of a directory's segment files, and what indexes them.
fn files(vfs: &MemoryVfs, extension: &str) -> Vec<std::path::PathBuf> {
    let names = vfs.list(Path::new(WAL)).unwrap();
    let wanted = names.iter().filter(|name| name.ends_with(extension));
    wanted.map(|name| Path::new(WAL).join(name)).collect()
}

fn flip(vfs: &MemoryVfs, slot: &Path, offset: u64) {
    // It may have been cut off before that.
    let _ = vfs.flip_bit(slot, offset, 1);
}

fn hurt(vfs: &MemoryVfs, rng: &mut Rng) {
    let slots = files(vfs, ".wal");
    let slot = &slots[rng.below(slots.len() as u64) as usize];
    match rng.below(14) {
        0 => vfs.remove(slot).unwrap(),
        1 => vfs.truncate_file(slot, rng.below(64 << 10)).unwrap(),
        2 => {
            for index in files(vfs, ".idx") {
                vfs.remove(&index).unwrap();
            }
        }
        // The header, and the preamble.
        3 => flip(vfs, slot, rng.below(40)),
        5 => flip(vfs, Path::new("/node/CURRENT"), rng.below(16)),
        4 => flip(vfs, slot, 4096 + rng.below(200)),
        _ => {
            for _ in 0..=rng.below(4) {
                flip(vfs, slot, rng.below(64 << 10));
            }
        }
    }
}

type Sources = Vec<(Arc<Directory>, BTreeMap<u32, u64>)>;

fn opened(world: &World, left_out: &mut u32) -> Sources {
    let mut sources = Vec::new();
    for node in &world.nodes {
        match node.try_directory(None) {
            Ok(found) => sources.push(found),
            Err(Error::Corruption { .. } | Error::Missing { .. }) => *left_out += 1,
            Err(error) => panic!("{error}"),
        }
    }
    sources
}

/// Any cut: what comes out is the log without the holes.
fn check_all_that_is_there(seed: u64, sources: &Sources, all: &[Row]) {
    let end = all.len() as u64 + 1;
    for known in [None, Some(end)] {
        let mut merge = Merge::new(sources, Some(1), known, OnHole::Skip).unwrap();
        let found = drain(&mut merge).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let figures = merge.figures();
        let upto = known.unwrap_or(figures.next);
        let hole = |row: &&Row| figures.holes.iter().any(|(b, e)| (*b..*e).contains(&row.0));
        let expected: Vec<Row> = all
            .iter()
            .filter(|row| row.0 < upto && !hole(row))
            .copied()
            .collect();
        assert_eq!(found, expected, "seed {seed}");
        let told = !figures.unproven.is_empty();
        assert!(upto == end || told, "seed {seed}: {upto} of {end} unsaid");
    }
}

/// The strict cut: all of the log, or damage by name.
fn check_strict(seed: u64, sources: &Sources, all: &[Row], whole: bool) -> bool {
    let end = Some(all.len() as u64 + 1);
    let mut complete = false;
    for known in [None, end] {
        let mut merge = Merge::new(sources, Some(1), known, OnHole::Stop).unwrap();
        match drain(&mut merge) {
            Ok(found) => {
                assert_eq!(found, all, "seed {seed}: strict and not all of it");
                complete = true;
            }
            Err(Error::Corruption { path, reason, .. }) => {
                assert!(!whole, "seed {seed}: {} {reason}", path.display());
                assert!(path.starts_with("/node"), "{}", path.display());
                assert!(!merge.figures().sources.iter().all(|s| s.damages.is_empty()));
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    complete
}

#[test]
fn what_is_damaged_comes_from_another_copy_or_is_named() {
    let (mut united, mut refused, mut left_out) = (0, 0, 0);
    for story_seed in 300..312 {
        let mut world = story(story_seed, 400, 8_000, story_seed % 3 == 0);
        world.nodes.iter_mut().for_each(Node::stop);
        let all = expected(&world, u64::MAX);
        let whole: Vec<_> = world.nodes.iter().map(|node| node.vfs.snapshot()).collect();
        for round in 0..10 {
            let seed = story_seed * 100 + round;
            let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let victims = 1 + rng.below(3) as usize;
            for (at, node) in world.nodes.iter_mut().enumerate() {
                node.vfs = whole[at].snapshot();
                for _ in 0..if at < victims { 1 + rng.below(3) } else { 0 } {
                    hurt(&node.vfs, &mut rng);
                }
            }
            let sources = opened(&world, &mut left_out);
            if sources.is_empty() {
                continue;
            }
            check_all_that_is_there(seed, &sources, &all);
            let complete = check_strict(seed, &sources, &all, victims < 3);
            if victims == 3 {
                united += u32::from(complete);
                refused += u32::from(!complete);
            }
        }
    }
    // Each of these has to happen for this to show anything.
    assert!(
        united > 5 && refused > 5 && left_out > 0,
        "{united} {refused} {left_out}"
    );
}

#[test]
fn only_the_damaged_range_is_left_out() {
    let mut world = story(4, 500, 1 << 20, true);
    world.nodes.iter_mut().for_each(Node::stop);
    let all = expected(&world, u64::MAX);
    let slots = files(&world.nodes[0].vfs, ".wal");
    assert!(slots.len() > 2, "{slots:?}");
    for slot in &slots {
        let whole = world.nodes[0].vfs.snapshot();
        world.nodes[0].vfs.flip_bit(slot, 30_000, 3).unwrap();
        let (found, figures) = merged(&world, &[0], OnHole::Skip).unwrap();
        let [damage] = &figures.sources[0].damages[..] else {
            panic!("{figures:?}");
        };
        assert_eq!(&damage.path, slot);
        let end = damage.end.unwrap();
        assert!((damage.begin..end).contains(&30_000) && end - damage.begin < 8 << 10);
        let missing: u64 = figures.holes.iter().map(|(begin, end)| end - begin).sum();
        assert_eq!(found.len() as u64 + missing, all.len() as u64);
        assert!((1..60).contains(&missing), "{missing}");
        world.nodes[0].vfs = whole;
    }
}

#[test]
fn what_was_taken_back_in_the_damage_does_not_come_out() {
    let mut node = Node::new(1 << 20);
    node.create(1, 0);
    let (before, after) = (batch(1, 1, 2, 10), batch(1, 1, 2, 50));
    node.place(1, 1, &before);
    node.store().rollback(node.streams[&1].0, 0, 1).unwrap();
    node.place(1, 1, &after);
    let runs = BTreeMap::from([(1, (1, 1, 2))]);
    let high_watermark = 2;
    let cut = Cut {
        runs,
        high_watermark,
    };
    node.apply(1, &[cut]);
    node.stop();
    let slot = Path::new(WAL).join("slot-000001.wal");
    let bytes = node.vfs.read(&slot, 64 << 10).unwrap();
    let at = bytes.windows(before.len()).position(|w| w == before);
    let rollback = (at.unwrap() + before.len()).next_multiple_of(8);
    flip(&node.vfs, &slot, rollback as u64 + 20);
    let mut merge = Merge::new(&[node.directory(None)], None, None, OnHole::Skip).unwrap();
    let piece = merge.next().unwrap().unwrap();
    assert_eq!(piece.bytes(), after);
    assert_eq!(merge.figures().sources[0].damages.len(), 1);
}
