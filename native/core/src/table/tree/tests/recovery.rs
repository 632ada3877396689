//! Opening: what is missing, foreign or left over.

use super::*;
use crate::vfs::{Access, Fault, FaultVfs, OpKind, Rule};

fn three_runs() -> (MemoryVfs, World) {
    let vfs = MemoryVfs::untraced();
    let mut world = World::create(Arc::new(vfs.clone()), TINY).unwrap();
    for keys in ["abc", "bcd", "cde"] {
        world.flushed(keys, b"some payload");
    }
    assert_eq!(world.files().len(), 3);
    (vfs, world)
}

fn open(vfs: &MemoryVfs) -> Result<(Arc<Tree>, TreeReport)> {
    Tree::open(Arc::new(vfs.clone()), Path::new(DIR), ID, TINY, &cache())
}

fn run_path(number: u64) -> std::path::PathBuf {
    Path::new(DIR).join(format!("{number:06}.run"))
}

#[track_caller]
fn refused(vfs: &MemoryVfs) -> Error {
    let names = vfs.list(Path::new(DIR)).unwrap();
    let runs = |names: &[String]| names.iter().filter(|name| name.contains(".run")).count();
    let Err(error) = open(vfs) else {
        panic!("it opens");
    };
    let after = vfs.list(Path::new(DIR)).unwrap();
    assert_eq!(runs(&names), runs(&after), "nothing is removed");
    error
}

/// Scenario 38, and invariant 9.
#[test]
fn a_listed_run_that_is_not_what_it_should_be_is_named() {
    let path = run_path(2);
    let (vfs, world) = three_runs();
    drop(world);
    let damaged = |damage: &dyn Fn(&MemoryVfs)| {
        let vfs = vfs.snapshot();
        // An orphan that must survive as long as it is not certain that it is one.
        vfs.open(&run_path(77), Access::CreateNew).unwrap();
        damage(&vfs);
        let error = refused(&vfs);
        assert!(error.to_string().contains("000002.run"), "{error}");
        error
    };
    let error = damaged(&|vfs| vfs.remove(&path).unwrap());
    assert!(matches!(error, Error::Missing { .. }), "{error}");
    let error = damaged(&|vfs| vfs.truncate_file(&path, 100).unwrap());
    assert!(matches!(error, Error::Missing { .. }), "{error}");
    let len = vfs.read(&path, 9999).unwrap().len() as u64;
    let error = damaged(&|vfs| vfs.flip_bit(&path, len - 9, 3).unwrap());
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
    let error = damaged(&|vfs| {
        vfs.remove(&path).unwrap();
        vfs.rename(&run_path(1), &path).unwrap();
        let bytes = vfs.read(&path, 9999).unwrap();
        vfs.open(&run_path(1), Access::CreateNew)
            .unwrap()
            .write_all_at(&bytes, 0)
            .unwrap();
    });
    assert!(
        !matches!(error, Error::Io { .. }),
        "another run's file: {error}"
    );
}

/// Scenario 35, X7: a lost manifest is not an empty one.
#[test]
fn a_lost_manifest_is_not_an_empty_tree() {
    let (vfs, world) = three_runs();
    drop(world);
    vfs.remove(&Path::new(DIR).join("CURRENT")).unwrap();
    assert!(matches!(refused(&vfs), Error::Missing { .. }));
    let again = Tree::create(Arc::new(vfs.clone()), Path::new(DIR), ID, 0, TINY, &cache());
    assert!(matches!(again, Err(Error::Missing { .. })));
    for name in vfs.list(Path::new(DIR)).unwrap() {
        if name.starts_with("MANIFEST") {
            vfs.remove(&Path::new(DIR).join(name)).unwrap();
        }
    }
    assert!(matches!(refused(&vfs), Error::Missing { .. }));
    let again = Tree::create(Arc::new(vfs.clone()), Path::new(DIR), ID, 0, TINY, &cache());
    assert!(matches!(again, Err(Error::Missing { .. })));
}

#[test]
fn a_tree_is_created_once_and_belongs_to_one_node() {
    let (vfs, world) = three_runs();
    let again = Tree::create(Arc::new(vfs.clone()), Path::new(DIR), ID, 0, TINY, &cache());
    assert!(matches!(again, Err(Error::AlreadyExists { .. })));
    drop(world);
    let other = Identity { node: 1, ..ID };
    let error = Tree::open(Arc::new(vfs.clone()), Path::new(DIR), other, TINY, &cache());
    assert!(matches!(
        error,
        Err(Error::WrongIdentity { what: "node", .. })
    ));
    let nothing = Tree::open(Arc::new(vfs), Path::new("/tables/8"), ID, TINY, &cache());
    assert!(matches!(nothing, Err(Error::NotFound { .. })));
}

/// Invariant 12: what no edit lists goes, what nobody here names stays.
#[test]
fn orphans_go_and_foreign_files_stay() {
    let (vfs, world) = three_runs();
    drop(world);
    let names = [
        "000009.run",
        "000011.run.tmp",
        "CURRENT.tmp",
        "MANIFEST-000077",
    ];
    for name in names.iter().chain(&["notes.txt", "9.run"]) {
        vfs.open(&Path::new(DIR).join(name), Access::CreateNew)
            .unwrap();
    }
    let (tree, report) = open(&vfs).unwrap();
    let shown = |paths: &[std::path::PathBuf]| -> Vec<String> {
        paths
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    };
    let found: BTreeSet<String> = shown(&report.orphans.files).into_iter().collect();
    // The manifest removes what is its own.
    let expected = names[..2].iter().map(ToString::to_string).collect();
    assert!(found.is_superset(&expected), "{found:?}");
    assert_eq!(shown(&report.orphans.foreign), ["9.run", "notes.txt"]);
    assert_eq!(report.runs, 3);
    let left = vfs.list(Path::new(DIR)).unwrap();
    assert!(left.contains(&"notes.txt".into()) && left.contains(&"9.run".into()));
    assert!(
        !left.iter().any(|name| names.contains(&name.as_str())),
        "{left:?}"
    );
    assert_eq!(tree.stats().runs, 3);
    // Numbers go on behind the orphans'.
    let mut piece = Piece::new();
    piece
        .push(&Entry {
            key: b"z",
            position: 10,
            payload: None,
        })
        .unwrap();
    tree.apply(piece, 10).unwrap();
    tree.flush().unwrap();
    assert!(vfs.exists(&run_path(12)).unwrap());
}

/// Scenario 40: positions at the ends of what there is.
#[test]
fn positions_at_both_ends() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::untraced());
    let id = Identity {
        object: u128::MAX,
        node: 0,
    };
    let dir = Path::new("/t");
    let open = || {
        Tree::open(Arc::clone(&vfs), dir, id, TINY, &cache())
            .unwrap()
            .0
    };
    let piece = |position| {
        let mut piece = Piece::new();
        piece
            .push(&Entry {
                key: b"",
                position,
                payload: Some(b""),
            })
            .unwrap();
        piece
    };
    let tree = Tree::create(Arc::clone(&vfs), dir, id, 0, TINY, &cache()).unwrap();
    assert!(!tree.flush().unwrap(), "there is nothing to flush");
    drop(tree);
    let tree = open();
    assert_eq!((tree.applied(), tree.flushed(), tree.floor()), (0, 0, 0));
    let error = tree.apply(piece(0), 0).unwrap_err();
    assert!(
        matches!(error, Error::InvalidArgument(_)),
        "position 0 is none"
    );
    for position in [1, 2, u64::MAX - 1] {
        tree.apply(piece(position), position).unwrap();
        assert!(tree.flush().unwrap());
    }
    let check = |tree: &Tree| {
        let snapshot = tree.snapshot();
        assert_eq!(snapshot.position(), u64::MAX - 1);
        assert!(snapshot.get(b"", 0).unwrap().is_none());
        for (at, expected) in [(1, 1), (2, 2), (3, 2), (u64::MAX - 1, u64::MAX - 1)] {
            let hit = snapshot.get(b"", at).unwrap().unwrap();
            assert_eq!((hit.position(), hit.payload()), (expected, Some(&b""[..])));
        }
    };
    check(&tree);
    drop(tree);
    let tree = open();
    check(&tree);
    while tree.compact(None).unwrap() {}
    check(&tree);
    drop(tree);
    check(&open());
}

#[test]
fn pieces_come_in_the_order_of_the_log() {
    let world = World::memory();
    let piece = |position| {
        let mut piece = Piece::new();
        piece
            .push(&Entry {
                key: b"k",
                position,
                payload: None,
            })
            .unwrap();
        piece
    };
    world.tree.apply(piece(3), 5).unwrap();
    for (first, up_to) in [(5, 7), (8, 7)] {
        let error = world.tree.apply(piece(first), up_to).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)));
    }
    let error = world.tree.apply(Piece::new(), 4).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)));
    world.tree.apply(Piece::new(), 5).unwrap();
    assert_eq!(world.tree.applied(), 5);
    let snapshot = world.tree.snapshot();
    assert!(matches!(
        snapshot.get(b"k", 6),
        Err(Error::BeyondEnd {
            position: 6,
            next: 6
        })
    ));
    // Positions without an entry for this tree are flushed too, without a file.
    let world = World::memory();
    world.tree.apply(Piece::new(), 40).unwrap();
    assert!(world.tree.flush().unwrap() && !world.tree.flush().unwrap());
    assert_eq!((world.tree.flushed(), world.files().len()), (40, 0));
}

#[test]
fn a_full_memory_level_refuses_and_takes_the_same_after_a_flush() {
    let options = TreeOptions {
        memory_bytes_max: 300,
        ..TINY
    };
    let world = World::create(Arc::new(MemoryVfs::untraced()), options).unwrap();
    let piece = |position| {
        let mut piece = Piece::new();
        let payload = Some(&[7; 200][..]);
        piece
            .push(&Entry {
                key: b"k",
                position,
                payload,
            })
            .unwrap();
        piece
    };
    world.tree.apply(piece(1), 1).unwrap();
    let error = world.tree.apply(piece(2), 2).unwrap_err();
    assert!(matches!(error, Error::TooLarge { max: 300, .. }), "{error}");
    assert_eq!(world.tree.applied(), 1);
    world.tree.flush().unwrap();
    world.tree.apply(piece(2), 2).unwrap();
}

#[test]
fn a_follower_reads_on_while_runs_are_merged_under_it() {
    let vfs = MemoryVfs::untraced();
    let mut world = World::create(Arc::new(vfs.clone()), TINY).unwrap();
    // More than it keeps open.
    for round in 0..30 {
        world.flushed("abc", &[round; 60]);
    }
    let shared: Arc<dyn Vfs> = Arc::new(vfs);
    let cache = Arc::new(RunCache::new(0, 1));
    let mut follower = TreeFollower::open(&shared, Path::new(DIR), ID, TINY, &cache).unwrap();
    check_answers(&follower.snapshot(), &world.log, 90);
    assert!(!follower.refresh().unwrap());
    world.flushed("xyz", b"more");
    while world.tree.compact(None).unwrap() {}
    let mut tried = Vec::new();
    let found = follower.read(|snapshot| {
        tried.push(snapshot.position());
        let mut scan = snapshot.versions(None, None, Direction::Forward);
        while scan.advance()? {}
        Ok(snapshot.position())
    });
    assert_eq!((found.unwrap(), tried), (93, vec![90, 93]));
    check_answers(&follower.snapshot(), &world.log, 93);
    let cache = Arc::new(RunCache::new(0, 1));
    // A run that is gone for good is no reason to go on for ever.
    let files = world.files();
    drop(world);
    for number in files {
        shared.remove(&run_path(number)).unwrap();
    }
    let gone = follower.read(|_| -> Result<()> {
        Err(Error::Missing {
            path: DIR.into(),
            reason: "a run".into(),
        })
    });
    assert!(matches!(gone, Err(Error::Missing { .. })));
    let reopened = TreeFollower::open(&shared, Path::new(DIR), ID, TINY, &cache);
    assert!(matches!(reopened, Err(Error::Missing { .. })));
}

/// A follower that opens runs while the writer merges them sees the newer version.
#[test]
fn a_follower_is_overtaken_while_it_opens() {
    let (vfs, world) = three_runs();
    let faults = FaultVfs::new(Arc::new(vfs));
    let gate = crate::vfs::Gate::new();
    faults.add(Rule::hang(OpKind::Open, &gate).on("000002.run").once());
    let shared: Arc<dyn Vfs> = Arc::new(faults.clone());
    std::thread::scope(|scope| {
        let opening =
            scope.spawn(|| TreeFollower::open(&shared, Path::new(DIR), ID, TINY, &cache()));
        gate.wait_for(1);
        while world.tree.compact(None).unwrap() {}
        gate.open();
        let follower = opening.join().unwrap().unwrap();
        check_answers(&follower.snapshot(), &world.log, 9);
        assert!(!follower.snapshot().state.view.runs.contains_key(&1));
    });
    faults.add(Rule::fail(OpKind::Open, Fault::Io).on(".run"));
    let failed = TreeFollower::open(&shared, Path::new(DIR), ID, TINY, &cache());
    assert!(matches!(failed, Err(Error::Io { .. })));
}
