//! Tables of a directory that is made of a backup, also where making it was cut short.

use super::*;
use crate::manifest::Identity;
use crate::table::table::{TableRestore, counters_of};
use crate::table::tree::{RunCopy, TreeImage, TreeRestore};
use crate::vfs::CrashPolicy;
use crate::wal::backup::part::Header;
use crate::wal::backup::{Cut, NewDirectory, Restore, TABLES as NAME, TableCut};
use crate::wal::{Follower, Index as CatalogIndex, IndexState, NewIndex, Table as CatalogTable};

const TARGET: &str = "/restored";
const NODE: u128 = 1;
const TABLE: u128 = 2;

/// A tree: its identity, its image, and its runs with their bytes.
type TakenTree = (u128, Vec<u8>, Vec<(u64, Vec<u8>)>);

/// What a backup has.
struct Taken {
    cut: Cut,
    part: Vec<u8>,
    trees: Vec<TakenTree>,
    counters: Option<Vec<u8>>,
}

fn dir_of(tree: u128) -> std::path::PathBuf {
    Table::dir_in(Path::new(TABLES), TABLE).join(format!("{tree:032x}"))
}

fn image_of(vfs: &Arc<dyn Vfs>, tree: u128) -> TreeImage {
    let identity = Identity {
        object: tree,
        node: NODE,
    };
    TreeImage::read(vfs, &dir_of(tree), identity).unwrap()
}

fn take_tree(vfs: &Arc<dyn Vfs>, tree: u128) -> TakenTree {
    let image = image_of(vfs, tree);
    let runs = image.runs().map(|run| {
        let number = run.info.number;
        let copy = RunCopy::open(vfs, &dir_of(tree), &image, number).unwrap();
        let mut bytes = Vec::new();
        loop {
            let piece = copy.read(bytes.len() as u64, 1000).unwrap();
            if piece.is_empty() {
                return (number, bytes);
            }
            bytes.extend(piece);
        }
    });
    let runs = runs.collect();
    (tree, image.encode().unwrap(), runs)
}

fn take(fixture: &Fixture) -> Taken {
    let vfs = shared(&fixture.vfs);
    let trees = [10, 11, 3].map(|tree| take_tree(&vfs, tree)).into();
    let (view, stream) = fixture.view();
    let tables = Path::new(TABLES);
    let counters = counters_of(vfs.as_ref(), tables, TABLE, &view, &stream).unwrap();
    let follower = Follower::open(vfs, Path::new("/data"), &Options::default()).unwrap();
    let cut = follower.cut();
    let log = &cut.logs[0];
    let mut part = Header {
        log: log.log.id,
        stream: 1,
    }
    .encode();
    let end = follower
        .copy_part(log.stream, log.first, log.end, 1 << 20, &mut part)
        .unwrap();
    assert_eq!(end, log.end);
    Taken {
        part,
        trees,
        counters: counters.map(|(bytes, _)| bytes),
        cut,
    }
}

fn cataloged() -> TableCut {
    let index = |(tree, name): (u128, &str)| CatalogIndex {
        index: NewIndex {
            tree,
            name: name.into(),
            spec: b"json:/city".into(),
        },
        state: IndexState::Active(1),
    };
    let table = CatalogTable {
        id: TABLE,
        name: "stock".into(),
        log: 9,
        created: 5,
        start: 1,
        primary: 3,
        options: b"{}".into(),
        indexes: [(10, "city"), (11, "n")].map(index).into(),
    };
    TableCut { table, pin: 1 }
}

fn restore(vfs: &Arc<dyn Vfs>, taken: &Taken) -> Result<u128> {
    let how = NewDirectory {
        segment_bytes: taken.cut.segment_bytes,
        bytes: 1 << 20,
        entropy: 4711,
        holder: "a test".into(),
        note: "{}".into(),
        ..NewDirectory::default()
    };
    let (target, logs) = (Path::new(TARGET), taken.cut.logs.clone());
    let mut restore = Restore::create(Arc::clone(vfs), target, logs, vec![cataloged()], &how)?;
    restore.place(&taken.part)?;
    let node = restore.node();
    let mut tables = TableRestore::new(Arc::clone(vfs), target.join(NAME), node);
    for (tree, image, runs) in &taken.trees {
        tables.begin(TABLE, *tree, image)?;
        for (run, bytes) in runs {
            for piece in bytes.chunks(1500) {
                tables.append(*run, piece)?;
            }
        }
        tables.end()?;
    }
    tables.end_table(TABLE, taken.counters.as_deref())?;
    restore.finish()?;
    Ok(node)
}

/// Open what was restored, and compare it with the list.
fn check(vfs: &MemoryVfs, node: u128, of: &Fixture) {
    let options = Options {
        entropy: 43,
        ..Options::default()
    };
    let (store, _) = open(shared(vfs), Path::new(TARGET), options).unwrap();
    let state = store.state();
    assert_eq!(state.tables.get(TABLE), Some(&cataloged().table));
    let first = store.view().stream(STREAM).unwrap().range().first;
    let definition = TableDefinition {
        node,
        ..of.definition.clone()
    };
    let table = Table::open(
        &shared(vfs),
        &Path::new(TARGET).join(NAME),
        &definition,
        of.options.clone(),
        first,
        &Arc::new(RunCache::default()),
    )
    .unwrap();
    assert_eq!(table.lost(), []);
    let mut after = Fixture {
        vfs: vfs.clone(),
        store,
        table,
        definition,
        options: of.options.clone(),
        appended: of.appended.clone(),
    };
    after.catch_up();
    after.check();
    assert_eq!(after.table.counters(), of.table.counters());
    after.put("k3", r#"{"city": "new", "n": 9}"#);
    after.catch_up();
    after.table.flush().unwrap();
    while after.table.compact().unwrap() {}
    after.check();
}

/// A table with files, and records that are in none.
fn sample() -> (Fixture, Taken) {
    let indexes = [("city", "json:/city"), ("n", "json:/n:int")];
    let mut fixture = Fixture::new(&indexes, table_options());
    for n in 0..60 {
        let text = format!(r#"{{"city": "c{}", "n": {n}}}"#, n % 3);
        fixture.put(&format!("k{}", n % 7), if n % 9 == 8 { "" } else { &text });
        if n % 20 == 15 {
            fixture.catch_up();
            fixture.table.flush().unwrap();
        }
    }
    fixture.append(None, b"without a key");
    fixture.catch_up();
    let taken = take(&fixture);
    (fixture, taken)
}

#[test]
fn a_restored_table_equals_its_log_under_another_node() {
    let (fixture, taken) = sample();
    let vfs = MemoryVfs::new();
    let node = restore(&shared(&vfs), &taken).unwrap();
    assert_ne!(node, NODE);
    check(&vfs, node, &fixture);
}

#[test]
fn a_crash_of_a_restore_leaves_all_tables_or_nothing_that_opens() {
    let (fixture, taken) = sample();
    let vfs = MemoryVfs::new();
    vfs.create_dir_all(Path::new("/")).unwrap();
    restore(&shared(&vfs), &taken).unwrap();
    let trace = vfs.trace();
    let (mut whole, mut again) = (0, 0);
    for at in 0..=trace.len() {
        for policy in CrashPolicy::all(1) {
            let image = trace.crash(at, policy);
            let identity = Path::new(TARGET).join("IDENTITY");
            if image.exists(&identity).unwrap() {
                let follower =
                    Follower::open(shared(&image), Path::new(TARGET), &Options::default());
                let node = follower.unwrap().node();
                check(&image, node, &fixture);
                whole += 1;
            } else {
                let node = restore(&shared(&image), &taken)
                    .unwrap_or_else(|error| panic!("cut {at} {policy:?}: {error}"));
                // Each takes a while, and all are the same.
                if again % 17 == 0 {
                    check(&image, node, &fixture);
                }
                again += 1;
            }
        }
    }
    assert!(whole > 2 && again > 100, "{whole} {again}");
}

#[test]
fn a_run_that_is_not_the_listed_one_is_refused() {
    let (_, taken) = sample();
    let (tree, image, runs) = &taken.trees[2];
    assert!(runs.len() > 1);
    let vfs = shared(&MemoryVfs::new());
    let dir = Path::new("/t");
    let identity = Identity {
        object: *tree,
        node: 77,
    };
    let begin = || {
        let image = TreeImage::decode(dir, image).unwrap();
        TreeRestore::begin(&vfs, dir, identity, image).unwrap()
    };
    let clean = || {
        for name in vfs.list(dir).unwrap() {
            vfs.remove(&dir.join(name)).unwrap();
        }
    };
    let (number, bytes) = &runs[0];
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let refused = begin().append(*number, &damaged);
    assert!(
        matches!(refused, Err(Error::Corruption { .. })),
        "{refused:?}"
    );
    clean();
    // The run of another number, if it is as long; else it is too long or never whole.
    let refused = begin().append(999, bytes);
    assert!(
        matches!(refused, Err(Error::NotFound { .. })),
        "{refused:?}"
    );
    let mut tree = begin();
    tree.append(*number, &bytes[..10]).unwrap();
    let other = tree.append(runs[1].0, &runs[1].1);
    assert!(matches!(other, Err(Error::Missing { .. })), "{other:?}");
    clean();
    let mut tree = begin();
    tree.append(*number, &bytes[..10]).unwrap();
    let refused = tree.append(*number, bytes);
    assert!(
        matches!(refused, Err(Error::TooLarge { .. })),
        "{refused:?}"
    );
    clean();
    let mut tree = begin();
    tree.append(*number, bytes).unwrap();
    let refused = tree.append(*number, bytes);
    assert!(
        matches!(refused, Err(Error::AlreadyExists { .. })),
        "{refused:?}"
    );
    let refused = tree.finish();
    assert!(matches!(refused, Err(Error::Missing { .. })), "{refused:?}");
    clean();
    let image = TreeImage::decode(dir, image).unwrap();
    let identity = Identity {
        object: 5,
        ..identity
    };
    let refused = TreeRestore::begin(&vfs, dir, identity, image).map(|_| ());
    assert!(
        matches!(refused, Err(Error::WrongIdentity { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_run_that_is_gone_or_damaged_is_not_copied() {
    let (fixture, taken) = sample();
    let vfs = shared(&fixture.vfs);
    let image = image_of(&vfs, 3);
    let run = taken.trees[2].2[0].0;
    let path = dir_of(3).join(crate::table::run::file_name(run));
    fixture.vfs.flip_bit(&path, 20, 3).unwrap();
    let refused = RunCopy::open(&vfs, &dir_of(3), &image, run).map(|_| ());
    assert!(
        matches!(refused, Err(Error::Corruption { .. })),
        "{refused:?}"
    );
    fixture.vfs.flip_bit(&path, 20, 3).unwrap();
    let copy = RunCopy::open(&vfs, &dir_of(3), &image, run).unwrap();
    fixture.vfs.remove(&path).unwrap();
    // Who has it open reads it to the end.
    assert_eq!(copy.read(0, usize::MAX).unwrap(), taken.trees[2].2[0].1);
    let refused = RunCopy::open(&vfs, &dir_of(3), &image, run).map(|_| ());
    assert!(matches!(refused, Err(Error::Missing { .. })), "{refused:?}");
}

#[test]
fn an_image_is_read_only_as_it_was_written() {
    let (_, taken) = sample();
    let path = Path::new("image");
    for (_, image, _) in &taken.trees {
        let whole = TreeImage::decode(path, image).unwrap();
        assert_eq!(&whole.encode().unwrap(), image);
        for at in 0..image.len() {
            let mut damaged = image.clone();
            damaged[at] ^= 1;
            assert!(TreeImage::decode(path, &damaged).is_err(), "byte {at}");
        }
        for len in 0..image.len() {
            assert!(
                TreeImage::decode(path, &image[..len]).is_err(),
                "{len} bytes"
            );
        }
        let mut longer = image.clone();
        longer.push(0);
        assert!(TreeImage::decode(path, &longer).is_err());
    }
}
