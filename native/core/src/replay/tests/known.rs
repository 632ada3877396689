//! Commits that are in none of the files: the nodes were killed before they wrote them.

#![allow(clippy::unwrap_used)]

use super::*;

/// A directory that was told the cuts that its streams lack.
fn told(node: &Node, cuts: &[Cut]) -> (Arc<Directory>, BTreeMap<u32, u64>) {
    let (mut directory, streams) = node.directory(None);
    let open = Arc::get_mut(&mut directory).unwrap();
    for (number, key) in &streams {
        for (at, cut) in cuts.iter().enumerate() {
            let stream = open.stream(*number).unwrap();
            let (epoch, committed) = (stream.epoch, stream.committed);
            let Some((glsn, llsn, length)) = cut.runs.get(&(*key as u32)) else {
                continue;
            };
            let end = (llsn + length).min(stream.next);
            if committed < end {
                let context = CommitContext {
                    version: at as u64 + 1,
                    glsn_begin: glsn + (committed - llsn),
                    llsn_begin: committed,
                    length: end - committed,
                    high_watermark: cut.high_watermark,
                };
                open.commit(*number, epoch, context).unwrap();
            }
        }
    }
    (directory, streams)
}

fn drained(sources: &[(Arc<Directory>, BTreeMap<u32, u64>)], on_hole: OnHole) -> Vec<Row> {
    let mut merge = Merge::new(sources, None, None, on_hole).unwrap();
    let found = drain(&mut merge).unwrap();
    for source in &merge.figures().sources {
        assert!(source.pending_bytes_peak <= 6_000, "{source:?}");
    }
    found
}

/// A story, then records that are durable everywhere and cuts of which few nodes write that they were made.
fn cut_short(seed: u64) -> World {
    let mut world = story(seed, 300, 6_000, seed.is_multiple_of(3));
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let streams = world.batches.len() as u64;
    for _ in 0..=rng.below(4) {
        for _ in 0..=rng.below(12) {
            let stream = 1 + rng.below(streams) as u32;
            world.append(&mut rng, stream);
        }
        for node in &world.nodes {
            node.store().sync().unwrap();
        }
        world.cut(&mut rng);
        for node in &mut world.nodes {
            for stream in node.streams.keys().copied().collect::<Vec<_>>() {
                if rng.one_in(6) {
                    node.apply(stream, &world.cuts);
                }
            }
        }
    }
    world.nodes.iter_mut().for_each(Node::crash);
    world
}

#[test]
fn commits_that_no_file_tells_of_are_taken_over() {
    let (mut lacking, mut late) = (0, 0);
    for seed in 200..230 {
        let world = cut_short(seed);
        let all = expected(&world, u64::MAX);
        for which in [&[0][..], &[1], &[0, 1, 2]] {
            let (found, _) = merged(&world, which, OnHole::Stop).unwrap();
            assert_eq!(found[..], all[..found.len()], "seed {seed}");
            lacking += usize::from(found.len() < all.len());
            let nodes = which.iter().map(|at| &world.nodes[*at]);
            let sources: Vec<_> = nodes.map(|node| told(node, &world.cuts)).collect();
            let found = drained(&sources, OnHole::Fail);
            assert_eq!(found, all, "seed {seed}, nodes {which:?}");
            let mut merge = Merge::new(&sources, None, None, OnHole::Fail).unwrap();
            drain(&mut merge).unwrap();
            let figures = merge.figures();
            late += usize::from(figures.sources.iter().any(|source| source.late_bytes > 0));
        }
    }
    // Both ways to read were needed: in passing, and through the index.
    assert!(lacking > 30 && late > 10, "{lacking} and {late}");
}

#[test]
fn a_commit_that_does_not_fit_is_refused_and_changes_nothing() {
    let mut node = Node::new(1 << 20);
    node.create(1, 0);
    node.place(1, 1, &batch(1, 1, 4, 10));
    node.stop();
    let (mut directory, streams) = node.directory(None);
    let open = Arc::get_mut(&mut directory).unwrap();
    let [number] = streams.keys().copied().collect::<Vec<_>>()[..] else {
        panic!("{streams:?}");
    };
    let context = |llsn_begin, length| CommitContext {
        version: 1,
        glsn_begin: 7,
        llsn_begin,
        length,
        high_watermark: 20,
    };
    let before = open.stream(number).unwrap().clone();
    let stale = open.commit(number, 1, context(1, 4)).unwrap_err();
    assert!(matches!(stale, Error::StaleEpoch { .. }), "{stale}");
    let gap = open.commit(number, 0, context(2, 1)).unwrap_err();
    assert!(matches!(gap, Error::NotDense { .. }), "{gap}");
    let beyond = open.commit(number, 0, context(1, 5)).unwrap_err();
    assert!(matches!(beyond, Error::BeyondEnd { .. }), "{beyond}");
    let unknown = open.commit(99, 0, context(1, 4)).unwrap_err();
    assert!(matches!(unknown, Error::NotFound { .. }), "{unknown}");
    assert_eq!(*open.stream(number).unwrap(), before);
    open.commit(number, 0, context(1, 3)).unwrap();
    let found = drained(&[(directory, streams)], OnHole::Skip);
    assert_eq!(found, [(7, 1, 1), (8, 1, 2), (9, 1, 3)]);
}
