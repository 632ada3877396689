//! Ranges that have no run in common become one.

use super::*;

/// Run, first key and end of a slice.
type Shown = (u64, Vec<u8>, Option<Vec<u8>>);

/// Which slices each range has, newest first.
type Slices = Vec<Vec<Shown>>;

fn slices(world: &World) -> Slices {
    let version = Arc::clone(&world.tree.state().view.version);
    let ranges = version.ranges().values();
    let of_range = ranges.map(|range| {
        let slices = range.slices.iter();
        slices
            .map(|slice| (slice.run, slice.begin.clone(), slice.end.clone()))
            .collect()
    });
    of_range.collect()
}

fn compact(world: &World) {
    while world.tree.compact(None).unwrap() {}
}

/// Two ranges, each with a run of its own, that are small, because ranges may have much more by now.
fn two_small_ranges() -> World {
    let mut world = World::memory();
    world.flushed("abcdefghijklmnopqr", &[1; 20]);
    assert!(world.tree.reshape().unwrap());
    world.options.shape.range_bytes = 1 << 20;
    world = world.reopen();
    world.flushed("aceprq", &[2; 5]);
    compact(&world);
    world.check_whole();
    let found = slices(&world);
    assert!(matches!(&found[..], [left, right] if left.len() == 1 && right.len() == 1));
    assert_ne!(found[0][0].0, found[1][0].0, "each has a run of its own");
    world
}

#[test]
fn slices_of_different_runs_become_slices_of_one_range() {
    // What is flushed on top: nothing, in one of them, in both.
    for newer in [&[][..], &["b"], &["q"], &["b", "q"], &["q", "b", "aq"]] {
        let mut world = two_small_ranges();
        let middle = slices(&world)[1][0].1.clone();
        for keys in newer {
            world.flushed(keys, b"new");
        }
        let before = slices(&world);
        assert!(world.tree.reshape().unwrap(), "{newer:?}");
        let after = slices(&world);
        assert_eq!(after.len(), 1, "{newer:?}");
        check_slices(&world, &before, &after[0], &middle);
        world.check_whole();

        world = world.reopen();
        assert_eq!(slices(&world), after);
        world.check_whole();
        // A flush across the old border, and a merge of all of it.
        world.flushed("ahiq", b"newest");
        world.check();
        world.settle();
        compact(&world);
        assert_eq!(slices(&world)[0].len(), 1, "{newer:?}");
        world.check_whole();
        world.reopen().check_whole();
    }
}

/// No slice has more keys than before, none is lost, and the newest come first.
fn check_slices(world: &World, before: &Slices, after: &[Shown], middle: &[u8]) {
    let (left, right) = (&before[0], &before[1]);
    for (run, begin, end) in after {
        let in_left = left.iter().any(|slice| slice.0 == *run);
        let in_right = right.iter().any(|slice| slice.0 == *run);
        let expected = match (in_left, in_right) {
            // What lies in both becomes one slice again.
            (true, true) => (&b""[..], None),
            (true, false) => (&b""[..], Some(middle)),
            (false, true) => (middle, None),
            (false, false) => panic!("run {run} comes from nowhere"),
        };
        assert_eq!((begin.as_slice(), end.as_deref()), expected, "run {run}");
    }
    let both = left.iter().chain(right).map(|slice| slice.0);
    let found: BTreeSet<u64> = after.iter().map(|slice| slice.0).collect();
    assert_eq!(found, both.collect());
    assert_eq!(found.len(), after.len());
    let version = Arc::clone(&world.tree.state().view.version);
    let newest = after.iter().map(|slice| version.runs()[&slice.0].newest);
    assert!(newest.is_sorted_by(|one, next| one >= next));
}

/// Both borders count: what a slice does not have of its run stays out.
#[test]
fn what_a_slice_leaves_out_of_its_run_stays_out() {
    let mut world = two_small_ranges();
    // One run over both ranges, of which a merge replaces the left part.
    world.flushed("bq", b"both");
    let run = slices(&world)[0][0].0;
    let mut task = world.tree.pick_any().unwrap();
    assert!(task.range().is_empty(), "the left one");
    task.run(None).unwrap();
    task.install().unwrap();
    world.check();
    let middle = slices(&world)[1][0].1.clone();
    assert!(slices(&world)[0].iter().all(|slice| slice.0 != run));
    assert!(slices(&world)[1].iter().any(|slice| slice.0 == run));

    assert!(world.tree.reshape().unwrap());
    let after = slices(&world);
    assert_eq!(after.len(), 1);
    let rest = after[0].iter().find(|slice| slice.0 == run).unwrap();
    assert_eq!((&rest.1, &rest.2), (&middle, &None));
    world.check_whole();
    // The record that the merged part has is newer than the one that the rest of the run has left out.
    world.flushed("b", b"newer");
    world.check();
    world.settle();
    world.check_whole();
    world.reopen().check_whole();
}
