//! Random steps of a whole tree against its log.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Apply(Vec<Change>),
    Flush,
    Merge,
    Compact,
    Reshape,
    /// Allow that versions are forgotten, so many positions behind what is applied.
    Floor(u64),
    /// Hold the floor where it is.
    Hold,
    /// Keep a snapshot, and look whether it still says the same in the end.
    Snapshot,
    /// Let go of what is held and kept.
    LetGo,
    Reopen,
    Close,
}

fn change() -> impl Strategy<Value = Change> {
    let key = prop_oneof![
        (0..30_u8).prop_map(|key| vec![b'a' + key % 3, b'A' + key]),
        proptest::collection::vec(0..2_u8, 0..3),
        Just(b"longer than eight bytes".to_vec()),
    ];
    let payload = proptest::collection::vec(any::<u8>(), 0..30);
    (key, proptest::option::weighted(0.8, payload))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => proptest::collection::vec(change(), 0..12).prop_map(Step::Apply),
        6 => Just(Step::Flush),
        5 => Just(Step::Merge),
        1 => Just(Step::Compact),
        4 => Just(Step::Reshape),
        3 => (0..20_u64).prop_map(Step::Floor),
        1 => Just(Step::Hold),
        2 => Just(Step::Snapshot),
        1 => Just(Step::LetGo),
        2 => Just(Step::Reopen),
        1 => Just(Step::Close),
    ];
    proptest::collection::vec(step, 1..60)
}

struct Kept {
    snapshot: Snapshot,
    log: Vec<Change>,
}

impl Kept {
    fn check(&self) {
        let (floor, position) = (self.snapshot.floor(), self.snapshot.position());
        for at in BTreeSet::from([floor, position]) {
            check_answers(&self.snapshot, &self.log, at);
        }
    }
}

fn run(steps: Vec<Step>) {
    let mut world = World::memory();
    let mut kept: Vec<Kept> = Vec::new();
    let mut holds = Vec::new();
    for step in steps {
        match step {
            Step::Apply(changes) => world.apply(&changes),
            Step::Flush => {
                let due = world.tree.applied() > world.tree.flushed();
                assert_eq!(world.tree.flush().unwrap(), due);
                assert_eq!(world.tree.flushed(), world.tree.applied());
            }
            Step::Merge => drop(world.tree.merge(None).unwrap()),
            Step::Compact => while world.tree.compact(None).unwrap() {},
            Step::Reshape => drop(world.tree.reshape().unwrap()),
            Step::Floor(behind) => {
                world
                    .tree
                    .raise_floor(world.tree.applied().saturating_sub(behind));
            }
            Step::Hold => holds.push(world.tree.hold(world.tree.floor()).unwrap()),
            Step::Snapshot => {
                let (snapshot, log) = (world.tree.snapshot(), world.log.clone());
                kept.push(Kept { snapshot, log });
            }
            Step::LetGo => {
                kept.iter().for_each(Kept::check);
                kept.clear();
                holds.clear();
                world.tree.settle().unwrap();
                world.check_whole();
            }
            Step::Reopen | Step::Close => {
                // What another process removes is not kept for this one.
                kept.iter().for_each(Kept::check);
                kept.clear();
                holds.clear();
                if matches!(step, Step::Close) {
                    world.tree.close().unwrap();
                }
                world = world.reopen();
                world.check_whole();
            }
        }
        world.check_version();
        let held = holds.iter().map(Hold::position).min();
        assert!(held.is_none_or(|held| world.tree.snapshot().floor() <= held));
    }
    world.check();
    kept.iter().for_each(Kept::check);
    drop(kept);
    drop(holds);
    while world.tree.compact(None).unwrap() {}
    world.tree.raise_floor(world.tree.applied());
    world.tree.flush().unwrap();
    while world.tree.compact(None).unwrap() {}
    world.tree.settle().unwrap();
    world.check_whole();
    check_nothing_is_left_over(&world);
}

/// After a merge of everything, with the floor at the end, there is one entry for each key that
/// is there, and none for any other.
fn check_nothing_is_left_over(world: &World) {
    let mut versions = world
        .tree
        .snapshot()
        .versions(None, None, Direction::Forward);
    let mut found = Vec::new();
    while versions.advance().unwrap() {
        found.push(versions.entry().key.to_vec());
    }
    let keys: BTreeSet<&Vec<u8>> = world.log.iter().map(|change| &change.0).collect();
    let applied = world.log.len() as u64;
    let is_there =
        |key: &&&Vec<u8>| matches!(visible(&world.log, key, applied), Some((_, Some(_))));
    let expected: Vec<_> = keys.iter().filter(is_there).copied().cloned().collect();
    if world.tree.floor() == applied {
        assert_eq!(found, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_tree_is_its_log(steps in steps()) {
        run(steps);
    }
}
