//! Readers of a table that another one writes: they see what the log has, or say why not.
// One file: a reader and its tests, which share nothing with the others.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::wal::Follower;

/// Key, position and value of each record.
type Found = Vec<(Vec<u8>, u64, Vec<u8>)>;

/// A reader as another process has it: it shares nothing with the writer but the disk.
struct Reader {
    log: Mutex<Follower>,
    table: Arc<TableFollower>,
}

impl Reader {
    fn open(
        vfs: &MemoryVfs,
        definition: &TableDefinition,
        options: TableOptions,
        cache: &Arc<RunCache>,
    ) -> Result<Self> {
        let disk = shared(vfs);
        let wal = Options {
            segment_bytes: 256 << 10,
            ..Options::default()
        };
        let log = Follower::open(Arc::clone(&disk), Path::new("/data"), &wal)?;
        let first = log.view().stream(STREAM)?.range().first;
        let tables = Path::new(TABLES);
        let table = TableFollower::open(&disk, tables, definition, options, first, cache)?;
        Ok(Self {
            log: Mutex::new(log),
            table,
        })
    }

    fn of(fixture: &Fixture) -> Result<Self> {
        let cache = Arc::new(RunCache::default());
        let (definition, options) = (&fixture.definition, fixture.options.clone());
        Self::open(&fixture.vfs, definition, options, &cache)
    }

    fn with<T>(&self, f: impl FnOnce(&FollowedLog<'_>) -> Result<T>) -> Result<T> {
        let view = Arc::clone(self.log.lock().view());
        let stream = view.stream(STREAM)?;
        f(&FollowedLog {
            view: &view,
            stream: &stream,
            refresh: &|| self.log.lock().refresh().map(|_| ()),
        })
    }

    fn snapshot(&self) -> Result<TableSnapshot> {
        self.with(|log| self.table.snapshot(log))
    }
}

/// Rows of a snapshot, forward and backward, and those of each index; or the error that ended one of them.
fn try_all(snapshot: &TableSnapshot) -> Result<Found> {
    let mut found = Vec::new();
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut rows = snapshot.scan(None, None, direction)?;
        let mut seen = Vec::new();
        while rows.advance()? {
            let value = rows.payload()?.value.unwrap_or_default().to_vec();
            seen.push((rows.key().to_vec(), rows.position(), value));
        }
        if direction == Direction::Reverse {
            seen.reverse();
            assert_eq!(seen, found);
        }
        found = seen;
    }
    Ok(found)
}

/// What a reader finds in what a crash left, before a writer opens it.
pub fn read_crashed(image: &MemoryVfs, definition: &TableDefinition) -> Found {
    let cache = Arc::new(RunCache::default());
    let reader = Reader::open(image, definition, table_options(), &cache).unwrap();
    try_all(&reader.snapshot().unwrap()).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Append(u8, u8),
    Follow,
    Flush,
    Merge,
    Compact,
    Reopen,
    Build,
    Read,
    Keep,
    Anew,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        30 => (0u8..12, 0u8..12).prop_map(|(key, value)| Step::Append(key, value)),
        4 => Just(Step::Follow),
        5 => Just(Step::Flush),
        3 => Just(Step::Merge),
        2 => Just(Step::Compact),
        1 => Just(Step::Reopen),
        1 => Just(Step::Build),
        6 => Just(Step::Read),
        2 => Just(Step::Keep),
        1 => Just(Step::Anew),
    ];
    proptest::collection::vec(step, 1..120)
}

fn value(n: u8) -> String {
    match n {
        0 => String::new(),
        1 => "no json".into(),
        n => format!(r#"{{"city": "c{}", "price": {}.5}}"#, n % 3, n / 2),
    }
}

fn run(steps: &[Step], history: u64, files: usize) {
    let options = TableOptions {
        history,
        ..table_options()
    };
    let mut fixture = Fixture::new(&[("city", "json:/city")], options);
    let cache = Arc::new(RunCache::new(0, files));
    let open = |fixture: &Fixture| {
        let (definition, options) = (&fixture.definition, fixture.options.clone());
        Reader::open(&fixture.vfs, definition, options, &cache).unwrap()
    };
    let mut reader = open(&fixture);
    let mut kept = Vec::new();
    let mut trees = 100;
    for step in steps {
        match step {
            Step::Append(key, n) => {
                fixture.put(&format!("k{key}"), &value(*n));
            }
            Step::Follow => {
                fixture.catch_up();
            }
            Step::Flush => {
                fixture.catch_up();
                fixture.table.flush().unwrap();
            }
            Step::Merge => {
                fixture.table.merge().unwrap();
            }
            Step::Compact => while fixture.table.compact().unwrap() {},
            Step::Reopen => fixture.reopen(),
            Step::Build => {
                trees += 1;
                let name = format!("late {trees}");
                fixture.build(&name, "json:/price", trees).unwrap();
                // The catalog says so, and another one is opened.
                reader = open(&fixture);
                assert!(reader.table.lost().is_empty());
            }
            Step::Read => {
                let snapshot = reader.snapshot().unwrap();
                assert_eq!(snapshot.position(), fixture.appended.len() as u64);
                for at in snapshot.floor()..=snapshot.position() {
                    fixture.check_at(&snapshot.clone().at(at).unwrap());
                }
                let key = b"k1";
                let found = reader.with(|log| reader.table.get(log, key)).unwrap();
                let model = state_at(&fixture.appended, snapshot.position());
                let expected = model.iter().find(|(known, ..)| known == key);
                assert_eq!(
                    found.map(|row| row.position()),
                    expected.map(|(_, position, _)| *position)
                );
                let records = reader.table.stats().counters.records;
                assert_eq!(records, fixture.appended.len() as u64);
            }
            Step::Keep => kept.push(reader.snapshot().unwrap()),
            Step::Anew => reader = open(&fixture),
        }
    }
    while fixture.table.compact().unwrap() {}
    let _ = reader.snapshot().unwrap();
    for snapshot in &kept {
        match try_all(snapshot) {
            Ok(found) => assert_eq!(found, state_at(&fixture.appended, snapshot.position())),
            // Its files are gone, and newer ones do not have the position.
            Err(Error::Overtaken { position, first }) => {
                assert!(files == 1 && position == snapshot.position() && first > position);
            }
            Err(error) => panic!("{error}"),
        }
    }
    let found = reader.with(|log| reader.table.verify(log, &mut |_| true));
    let written = fixture.table.verify(&mut |_| {}).unwrap();
    if fixture.table.position() == fixture.appended.len() as u64 {
        assert_eq!(found.unwrap(), written);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_reader_sees_what_was_appended(
        steps in steps(),
        history in prop::sample::select(vec![0u64, 5, 1000]),
        files in prop::sample::select(vec![1usize, 1000]),
    ) {
        run(&steps, history, files);
    }
}

/// More runs than are kept open, and the writer replaces all of them while they are read.
fn many_runs(history: u64) -> (Fixture, Reader) {
    let options = TableOptions {
        history,
        ..table_options()
    };
    let mut fixture = Fixture::new(&[("city", "json:/city")], options);
    for round in 0..30 {
        for key in 0..12 {
            let value = format!(r#"{{"city": "c{}", "n": {round}}}"#, key % 5);
            fixture.put(&format!("k{key:02}"), &value);
        }
        fixture.catch_up();
        fixture.table.flush().unwrap();
    }
    let cache = Arc::new(RunCache::new(0, 1));
    let (definition, options) = (&fixture.definition, fixture.options.clone());
    let reader = Reader::open(&fixture.vfs, definition, options, &cache).unwrap();
    (fixture, reader)
}

fn replace_all(fixture: &mut Fixture) {
    for key in 0..12 {
        fixture.put(&format!("k{key:02}"), r#"{"city": "new"}"#);
    }
    fixture.catch_up();
    fixture.table.flush().unwrap();
    while fixture.table.compact().unwrap() {}
}

#[test]
fn a_scan_goes_on_in_the_files_that_replace_its_own() {
    let (mut fixture, reader) = many_runs(1_000);
    let snapshot = reader.snapshot().unwrap();
    let model = state_at(&fixture.appended, snapshot.position());
    let mut scans = Vec::new();
    let mut whole = snapshot.scan(None, None, Direction::Forward).unwrap();
    assert!(whole.advance_stretch(1).unwrap());
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut rows = snapshot.scan(None, None, direction).unwrap();
        let mut by = snapshot.scan_index("city", None, None, direction).unwrap();
        let (mut keys, mut places) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            assert!(rows.advance().unwrap() && by.advance().unwrap());
            keys.push((rows.key().to_vec(), rows.position()));
            places.push((by.index_key().to_vec(), by.row().position()));
        }
        scans.push((direction, rows, by, keys, places));
    }
    replace_all(&mut fixture);
    let positions = positions_in_stretches(&mut whole, 4);
    assert_eq!(positions, positions_of(&model)[1..]);
    let (_, spec) = (0, IndexSpec::parse("json:/city").unwrap());
    for (direction, mut rows, mut by, mut keys, mut places) in scans {
        while rows.advance().unwrap() {
            keys.push((rows.key().to_vec(), rows.position()));
        }
        while by.advance().unwrap() {
            places.push((by.index_key().to_vec(), by.row().position()));
        }
        if direction == Direction::Reverse {
            keys.reverse();
            places.reverse();
        }
        let expected: Vec<_> = model
            .iter()
            .map(|(key, at, _)| (key.clone(), *at))
            .collect();
        assert_eq!(keys, expected, "{direction:?}");
        assert_eq!(places, index_model(&model, &spec), "{direction:?}");
    }
    for (key, position, _) in &model {
        let row = snapshot.get(key).unwrap().unwrap();
        assert_eq!(row.position(), *position);
    }
}

#[test]
fn what_was_merged_away_is_an_error_with_the_oldest_position() {
    let (mut fixture, reader) = many_runs(0);
    let snapshot = reader.snapshot().unwrap();
    let mut rows = snapshot.scan(None, None, Direction::Forward).unwrap();
    assert!(rows.advance().unwrap());
    replace_all(&mut fixture);
    let mut ended = Ok(true);
    while matches!(ended, Ok(true)) {
        ended = rows.advance();
    }
    let Err(Error::Overtaken { position, first }) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(position, snapshot.position());
    assert_eq!(first, fixture.appended.len() as u64);
    // Who asks for the newest gets it.
    let row = reader.with(|log| reader.table.get(log, b"k03")).unwrap();
    assert_eq!(
        row.unwrap().payload().unwrap().value.unwrap(),
        br#"{"city": "new"}"#
    );
    let verified = reader.with(|log| reader.table.verify(log, &mut |_| true));
    assert_eq!(verified.unwrap().records, 12);
}

/// A writer in one thread, readers in others: what they see is a state that the log had, and never an older one than before.
#[test]
fn readers_beside_a_writer_see_states_of_the_log() {
    let options = TableOptions {
        history: 3,
        ..table_options()
    };
    let mut fixture = Fixture::new(&[("city", "json:/city")], options);
    let vfs = fixture.vfs.clone();
    let (definition, options) = (fixture.definition.clone(), fixture.options.clone());
    let is_over = AtomicBool::new(false);
    // What record n says is known to everybody.
    let record = |n: u64| {
        (
            format!("k{}", n * 7 % 11),
            format!(r#"{{"city": "c{}"}}"#, n % 4),
        )
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|files| {
                let (vfs, definition, options) = (&vfs, &definition, options.clone());
                let is_over = &is_over;
                scope.spawn(move || {
                    let cache = Arc::new(RunCache::new(0, files));
                    let reader = Reader::open(vfs, definition, options, &cache).unwrap();
                    let (mut looks, mut last) = (0, 0);
                    loop {
                        let ends = is_over.load(Ordering::SeqCst);
                        let snapshot = reader.snapshot().unwrap();
                        let position = snapshot.position();
                        assert!(position >= last, "{position} after {last}");
                        last = position;
                        let mut newest = BTreeMap::new();
                        for n in 1..=position {
                            newest.insert(record(n).0.into_bytes(), n);
                        }
                        let mut found = BTreeMap::new();
                        let mut rows = snapshot.scan(None, None, Direction::Forward).unwrap();
                        let whole = loop {
                            match rows.advance() {
                                Ok(true) => found.insert(rows.key().to_vec(), rows.position()),
                                Ok(false) => break true,
                                Err(Error::Overtaken { .. }) => break false,
                                Err(error) => panic!("{error}"),
                            };
                        };
                        if whole {
                            assert_eq!(found, newest);
                            looks += 1;
                        }
                        if ends {
                            return (looks, last);
                        }
                    }
                })
            })
            .collect();
        for n in 1..=400 {
            let (key, value) = record(n);
            assert_eq!(fixture.put(&key, &value), n);
            if n % 7 == 0 {
                fixture.catch_up();
                fixture.table.flush().unwrap();
            }
            if n % 5 == 0 {
                fixture.table.merge().unwrap();
            }
            if n % 50 == 0 {
                while fixture.table.compact().unwrap() {}
            }
        }
        is_over.store(true, Ordering::SeqCst);
        for reader in readers {
            let (looks, last) = reader.join().unwrap();
            assert!(looks > 0);
            assert_eq!(last, 400);
        }
    });
}

#[test]
fn more_than_memory_may_have_is_refused_until_it_is_flushed() {
    let options = TableOptions {
        memory_bytes: 2_000,
        ..table_options()
    };
    let mut fixture = Fixture::new(&[], options);
    let reader = Reader::of(&fixture).unwrap();
    let fill = |fixture: &mut Fixture| {
        for n in 0..20 {
            fixture.put(&format!("k{n}"), &"x".repeat(500));
        }
    };
    fill(&mut fixture);
    assert_eq!(reader.snapshot().unwrap().position(), 20);
    fill(&mut fixture);
    let refused = |reader: &Reader| match reader.snapshot() {
        Err(Error::Unflushed { max }) => assert_eq!(max, 8_000),
        Err(error) => panic!("{error}"),
        Ok(snapshot) => panic!("{}", snapshot.position()),
    };
    refused(&reader);
    refused(&reader);
    fixture.catch_up();
    fixture.table.flush().unwrap();
    let snapshot = reader.snapshot().unwrap();
    assert_eq!(snapshot.position(), 40);
    assert_eq!(
        rows(&snapshot, Direction::Forward),
        state_at(&fixture.appended, 40)
    );
    assert_eq!(reader.table.stats().primary.memory_bytes, 0);
}

#[test]
fn a_log_that_was_trimmed_behind_a_reader_is_read_from_the_files() {
    let mut fixture = Fixture::new(&[("city", "json:/city")], table_options());
    let reader = Reader::of(&fixture).unwrap();
    assert_eq!(reader.snapshot().unwrap().position(), 0);
    for n in 0..30 {
        fixture.put(
            &format!("k{}", n % 7),
            &format!(r#"{{"city": "c{}"}}"#, n % 3),
        );
    }
    fixture.append(None, b"no key");
    fixture.catch_up();
    fixture.table.flush().unwrap();
    fixture.store.trim(STREAM, 31).unwrap();
    fixture.put("k1", r#"{"city": "last"}"#);
    let snapshot = reader.snapshot().unwrap();
    assert_eq!(snapshot.position(), 32);
    fixture.check_at(&snapshot);
    let counters = reader.table.stats().counters;
    assert_eq!((counters.records, counters.without_key.count), (32, 1));
}

#[test]
fn what_is_not_there_is_said() {
    let mut fixture = Fixture::new(&[("city", "json:/city")], table_options());
    for n in 0..9 {
        fixture.put(&format!("k{n}"), r#"{"city": "Oslo"}"#);
    }
    fixture.catch_up();
    fixture.table.flush().unwrap();
    let other = TableDefinition {
        primary: 77,
        ..fixture.definition.clone()
    };
    let cache = Arc::new(RunCache::default());
    let open = |definition: &TableDefinition| {
        Reader::open(&fixture.vfs, definition, table_options(), &cache)
    };
    let missing = open(&other).err();
    assert!(
        matches!(missing, Some(Error::Missing { .. })),
        "{missing:?}"
    );
    // An index that is lost, or whose building has not ended, leaves the table readable.
    let mut with_more = fixture.definition.clone();
    with_more
        .indexes
        .push(index_definition("absent", "value", 60, 0));
    let late = index_definition("late", "value", 61, 0);
    fixture
        .table
        .begin_index(&fixture.definition, &late, &cache)
        .unwrap();
    with_more
        .indexes
        .push(index_definition("late", "value", 61, 9));
    let reader = open(&with_more).unwrap();
    let lost: Vec<_> = reader.table.lost().iter().map(|lost| &*lost.name).collect();
    assert_eq!(lost, ["absent", "late"]);
    let snapshot = reader.snapshot().unwrap();
    fixture.check_at(&snapshot);
    assert!(matches!(
        snapshot.index_spec("late"),
        Err(Error::NotFound { .. })
    ));
    assert_eq!(
        snapshot.index_spec("city").unwrap().to_string(),
        "json:/city:scalar"
    );
    // A table whose files go while it is read: said once they are looked for.
    let dir = Table::dir_in(Path::new(TABLES), 2).join(format!("{:032x}", 3));
    for name in fixture.vfs.list(&dir).unwrap() {
        fixture.vfs.remove(&dir.join(name)).unwrap();
    }
    let gone = reader.snapshot().err();
    assert!(matches!(gone, Some(Error::Missing { .. })), "{gone:?}");
    assert_eq!(rows(&snapshot, Direction::Forward).len(), 9);
}

#[test]
fn an_index_that_must_not_lack_a_record_is_refused_to_readers_too() {
    let mut fixture = Fixture::new(&[("n", "json:/n:int")], table_options());
    fixture.definition.indexes[0].on_refusal = OnRefusal::Refuse;
    fixture.put("a", r#"{"n": 1}"#);
    let reader = Reader::of(&fixture).unwrap();
    let snapshot = reader.snapshot().unwrap();
    let by = |snapshot: &TableSnapshot| {
        let found = index_rows(snapshot, "n", None, None, Direction::Forward);
        found.map(|rows| rows.len())
    };
    assert_eq!(by(&snapshot).unwrap(), 1);
    // In memory, in the files, and after the reader has begun anew.
    fixture.put("b", r#"{"n": "text"}"#);
    assert!(matches!(
        by(&reader.snapshot().unwrap()),
        Err(Error::InvalidArgument(_))
    ));
    fixture.catch_up();
    fixture.table.flush().unwrap();
    assert!(matches!(
        by(&reader.snapshot().unwrap()),
        Err(Error::InvalidArgument(_))
    ));
    let reader = Reader::of(&fixture).unwrap();
    assert!(matches!(
        by(&reader.snapshot().unwrap()),
        Err(Error::InvalidArgument(_))
    ));
}
