//! Tables that are given their log, against a list of everything that was appended.
// One file: a log and a host in memory, and what happens to them.

use proptest::prelude::*;

use super::*;
use crate::batch::{BatchBuilder, Compression};
use crate::vfs::Access;

const OTHER: &str = "/other/tables";

/// A log by itself, and a table on some disk that is given it.
struct Host {
    vfs: MemoryVfs,
    dir: &'static str,
    definition: TableDefinition,
    options: TableOptions,
    table: HostedTable,
}

/// Encoded batches with the position of their first records.
#[derive(Clone, Default)]
struct Log {
    batches: Vec<(u64, u32, Vec<u8>)>,
    appended: Appended,
}

impl Log {
    /// Append records as one batch.
    fn append(&mut self, records: &[(Option<&str>, &str)]) {
        let first = self.appended.len() as u64 + 1;
        let mut builder = BatchBuilder::new();
        for (key, value) in records {
            let timestamp = 1_000 + self.appended.len() as i64;
            let (key, headers) = (key.map(str::as_bytes), [("h", Some(&b"x"[..]))]);
            builder
                .push(Some(value.as_bytes()), key, timestamp, &headers)
                .unwrap();
            let record = (key.map(Into::into), value.as_bytes().to_vec());
            self.appended.push(record);
        }
        let mut bytes = Vec::new();
        builder.encode_into(Compression::None, &mut bytes).unwrap();
        self.batches.push((first, records.len() as u32, bytes));
    }

    fn put(&mut self, key: &str, value: &str) {
        self.append(&[(Some(key), value)]);
    }

    /// Everything from a position on.
    fn from(&self, position: u64) -> Vec<LogSpan<'_>> {
        let spans = self.batches.iter().map(|(first, count, batch)| {
            let skip = position.saturating_sub(*first).min((*count).into()) as u32;
            LogSpan {
                batch,
                first: first + u64::from(skip),
                skip,
                records: count - skip,
            }
        });
        spans.filter(|span| span.records > 0).collect()
    }
}

fn hosted_definition(indexes: &[(&str, &str)]) -> TableDefinition {
    TableDefinition {
        node: 0,
        ..definition(indexes)
    }
}

fn open_hosted(
    vfs: &MemoryVfs,
    dir: &str,
    definition: &TableDefinition,
    options: &TableOptions,
    first: u64,
) -> Result<HostedTable> {
    let cache = Arc::new(RunCache::default());
    let dir = Path::new(dir);
    vfs.create_dir_all(dir).unwrap();
    HostedTable::open(&shared(vfs), dir, definition, options, first, &cache)
}

impl Host {
    fn new(indexes: &[(&str, &str)], options: TableOptions) -> Self {
        let (vfs, definition) = (MemoryVfs::new(), hosted_definition(indexes));
        let table = open_hosted(&vfs, TABLES, &definition, &options, 1).unwrap();
        Self {
            vfs,
            dir: TABLES,
            definition,
            options,
            table,
        }
    }

    fn reopen(&mut self, first: u64) {
        self.table =
            open_hosted(&self.vfs, self.dir, &self.definition, &self.options, first).unwrap();
    }

    fn give(&self, log: &Log) {
        self.table.apply(&log.from(self.table.wanted())).unwrap();
        assert_eq!(self.table.applied(), log.appended.len() as u64);
    }

    fn attach(&mut self, name: &str, spec: &str, tree: u128) {
        let index = index_definition(name, spec, tree, 0);
        self.table.attach(&index).unwrap();
        self.definition.indexes.push(index);
    }

    fn build(&self, tree: u128) {
        self.table.build(tree, &mut |_| true).unwrap();
        assert_eq!(self.table.is_built(tree), Some(true));
    }

    fn check(&self, log: &Log) {
        let snapshot = self.table.table().snapshot().unwrap();
        for at in snapshot.floor()..=snapshot.position() {
            let snapshot = snapshot.clone().at(at).unwrap();
            let model = state_at(&log.appended, at);
            assert_eq!(rows(&snapshot, Direction::Forward), model);
            for (index, _) in snapshot.indexes() {
                if index.base() > at {
                    continue;
                }
                let expected = index_model(&model, index.spec());
                let found = index_rows(&snapshot, index.name(), None, None, Direction::Forward);
                assert_eq!(found.unwrap(), expected, "{} at {at}", index.name());
            }
        }
        self.table.verify(&mut |_| true).unwrap();
    }

    /// Copy the files of a pinned version to another place.
    fn copy(&self, pinned: &PinnedTable, to: &'static str) -> Host {
        let vfs = MemoryVfs::new();
        for file in &pinned.files {
            let path = Table::dir_in(Path::new(to), 2).join(&file.path);
            vfs.create_dir_all(path.parent().unwrap()).unwrap();
            let copy = vfs.open(&path, Access::CreateNew).unwrap();
            let mut at = 0;
            // In parts, and beyond the end.
            loop {
                let part = pinned.read(&file.path, at, 100).unwrap();
                if part.is_empty() {
                    break;
                }
                copy.write_all_at(&part, at).unwrap();
                at += part.len() as u64;
            }
            assert_eq!(at, file.len());
        }
        let first = pinned.flushed + 1;
        let (definition, options) = (self.definition.clone(), self.options.clone());
        let table = open_hosted(&vfs, to, &definition, &options, first).unwrap();
        Host {
            vfs,
            dir: to,
            definition,
            options,
            table,
        }
    }
}

fn filled(host: &Host, log: &mut Log, keys: u64) {
    for n in 0..keys {
        let (key, value) = (format!("k{n:04}"), format!(r#"{{"n": {}}}"#, n % 7));
        log.append(&[(Some(&key), &value), (None, "left out")]);
    }
    host.give(log);
}

#[test]
fn a_damaged_run_is_found_before_it_is_copied() {
    let host = Host::new(&[("by_n", "json:/n:int")], table_options());
    let mut log = Log::default();
    filled(&host, &mut log, 50);
    host.table.flush().unwrap();
    host.check(&log); // Its pages are in memory from here on.
    let pinned = host.table.pin().unwrap();
    let mut runs = 0;
    for file in &pinned.files {
        pinned.verify(&file.path).unwrap();
        if matches!(file.content, PinnedContent::Run(..)) {
            runs += 1;
            let path = Table::dir_in(Path::new(TABLES), 2).join(&file.path);
            host.vfs.flip_bit(&path, 5, 0).unwrap();
            let found = pinned.verify(&file.path);
            assert!(matches!(found, Err(Error::Corruption { .. })), "{found:?}");
        }
    }
    assert_eq!(runs, 2);
    let missing = pinned.verify("nothing");
    assert!(matches!(missing, Err(Error::NotFound { .. })));
}

#[test]
fn what_was_pinned_is_restored_on_another_host() {
    let mut host = Host::new(&[("by_n", "json:/n:int")], table_options());
    let mut log = Log::default();
    filled(&host, &mut log, 40);
    host.attach("later", "json:/n", 21);
    host.build(21);
    filled(&host, &mut log, 60);
    host.table.flush().unwrap();
    let pinned = host.table.pin().unwrap();
    let content = |path: &str| pinned.read(path, 0, usize::MAX >> 1).unwrap();
    let bases = bases_of(2, &content("BASES")).unwrap();
    assert_eq!(bases.len(), 2);
    let vfs = MemoryVfs::new();
    let mut restore = TableRestore::new(shared(&vfs), OTHER.into(), 2);
    for tree in bases.iter().map(|(tree, _)| *tree).chain([3]) {
        let dir = format!("{tree:032x}/");
        let files = || {
            pinned
                .files
                .iter()
                .filter(|file| file.path.starts_with(&dir))
        };
        let manifest = files().find(|file| file.path.contains("MANIFEST-"));
        restore
            .begin(2, tree, &content(&manifest.unwrap().path))
            .unwrap();
        for file in files() {
            if let PinnedContent::Run(_, run) = &file.content {
                let bytes = content(&file.path);
                restore.append(run.info().number, &bytes).unwrap();
            }
        }
        restore.end().unwrap();
    }
    restore.put_bases(2, &bases).unwrap();
    restore.end_table(2, Some(&content("COUNTERS"))).unwrap();
    let (definition, options) = (host.definition.clone(), host.options.clone());
    let first = pinned.flushed + 1;
    let table = open_hosted(&vfs, OTHER, &definition, &options, first).unwrap();
    let other = Host {
        vfs,
        dir: OTHER,
        definition,
        options,
        table,
    };
    assert_eq!(other.table.is_built(21), Some(true));
    other.give(&log);
    other.check(&log);
    assert_eq!(
        other.table.stats().counters.records,
        host.table.stats().counters.records
    );
}

#[test]
fn it_is_what_its_log_says_after_every_open() {
    let mut host = Host::new(&[("n", "json:/n:int")], table_options());
    let mut log = Log::default();
    filled(&host, &mut log, 30);
    host.check(&log);
    assert!(host.table.flush().unwrap());
    assert_eq!(host.table.flushed(), 60);
    for n in 0..10 {
        log.put(&format!("k{n:04}"), if n < 5 { "" } else { r#"{"n": 9}"# });
    }
    host.give(&log);
    host.check(&log);
    let counters = host.table.stats().counters;
    host.reopen(1);
    // The last one that was counted, once more.
    assert_eq!(host.table.wanted(), 60);
    host.give(&log);
    host.check(&log);
    assert_eq!(host.table.stats().counters, counters);
    assert_eq!(counters.without_key.count, 30);
    while host.table.merge().unwrap() {}
    host.table.close().unwrap();
}

#[test]
fn another_record_where_it_counted_last_is_refused() {
    let mut host = Host::new(&[("n", "json:/n:int")], table_options());
    let mut log = Log::default();
    filled(&host, &mut log, 3);
    host.table.flush().unwrap();
    let mut other = Log::default();
    for (key, value) in &log.appended[..4] {
        let key = key.as_ref().map(|key| std::str::from_utf8(key).unwrap());
        other.append(&[(key, std::str::from_utf8(value).unwrap())]);
    }
    for n in 0..5 {
        other.put(&format!("other{n}"), "1");
    }
    host.reopen(1);
    assert_eq!((host.table.reached(), host.table.applied()), (6, 6));
    for _ in 0..2 {
        // Nothing is applied, and it is asked for again.
        let refused = host.table.apply(&other.from(host.table.wanted()));
        let Err(Error::Corruption { reason, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert!(reason.contains("another record at position 6"), "{reason}");
        assert_eq!((host.table.wanted(), host.table.applied()), (6, 6));
    }
    // What begins behind it would not prove anything.
    let behind = host.table.apply(&log.from(7));
    assert!(behind.is_ok(), "nothing is nothing");
    log.put("k", "1");
    let behind = host.table.apply(&log.from(7));
    assert!(matches!(behind, Err(Error::InvalidArgument(_))));
    host.give(&log);
    assert_eq!(host.table.wanted(), 8);
    host.check(&log);
    // Of what the log let go of, nothing can be compared.
    host.table.flush().unwrap();
    host.reopen(8);
    assert_eq!(host.table.wanted(), 8);
}

#[test]
fn what_is_left_out_or_no_batch_is_refused_and_changes_nothing() {
    let host = Host::new(&[], table_options());
    let mut log = Log::default();
    filled(&host, &mut log, 5);
    log.put("a", "1");
    log.put("b", "2");
    let spans = log.from(11);
    let refused = |spans: &[LogSpan<'_>]| {
        let error = host.table.apply(spans).unwrap_err();
        assert_eq!((host.table.applied(), host.table.wanted()), (10, 11));
        error
    };
    assert!(matches!(
        refused(&spans[1..]),
        Error::InvalidArgument(text) if text.contains("goes on at 11")
    ));
    let twice = [spans[0], spans[0]];
    assert!(
        matches!(refused(&twice), Error::InvalidArgument(text) if text.contains("comes where"))
    );
    let longer = LogSpan {
        records: 2,
        ..spans[0]
    };
    assert!(
        matches!(refused(&[longer]), Error::InvalidArgument(text) if text.contains("batch with 1"))
    );
    let nothing = LogSpan {
        records: 0,
        ..spans[0]
    };
    assert!(matches!(refused(&[nothing]), Error::InvalidArgument(_)));
    let mut damaged = spans[1].batch.to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let bad = LogSpan {
        batch: &damaged,
        ..spans[1]
    };
    assert!(matches!(refused(&[spans[0], bad]), Error::Malformed { .. }));
    // What was applied before is passed over.
    host.table.apply(&log.from(1)).unwrap();
    host.check(&log);
    host.table.apply(&[]).unwrap();
}

#[test]
fn an_index_is_built_of_what_the_table_has() {
    let mut host = Host::new(&[], table_options());
    let mut log = Log::default();
    filled(&host, &mut log, 40);
    log.put("k0001", "no json");
    host.give(&log);
    host.attach("n", "json:/n:int", 50);
    assert_eq!(host.table.is_built(50), Some(false));
    // Once more does nothing.
    let again = host.definition.indexes[0].clone();
    host.table.attach(&again).unwrap();
    // What comes before it is built is in it, also what is replaced again and again, flushed and merged.
    for round in 0..4 {
        for n in 0..10 {
            log.put(&format!("k{n:04}"), &format!(r#"{{"n": 1{round}{n}}}"#));
        }
        log.put("k0002", "no json");
        log.put("k0003", "");
        host.give(&log);
        host.table.flush().unwrap();
        while host.table.merge().unwrap() {}
        if round == 1 {
            host.reopen(1);
            assert_eq!(host.table.is_built(50), Some(false));
            host.give(&log);
        }
    }
    host.build(50);
    host.build(50);
    host.check(&log);
    let refused = host.table.stats().indexes[0].3.clone();
    let positions: Vec<_> = refused
        .first
        .iter()
        .map(|(position, _)| *position)
        .collect();
    assert_eq!(refused.count, positions.len() as u64);
    let mut expected: Vec<u64> = (1..)
        .zip(&log.appended)
        .filter(|(_, (key, value))| key.is_some() && value == b"no json")
        .map(|(position, _)| position)
        .collect();
    assert_eq!(positions, std::mem::take(&mut expected));
    log.put("k0009", r#"{"n": 1}"#);
    host.give(&log);
    host.check(&log);
    host.reopen(1);
    host.give(&log);
    host.check(&log);
}

#[test]
fn a_building_stops_and_an_index_goes_with_its_files() {
    let mut host = Host::new(&[], table_options());
    let mut log = Log::default();
    filled(&host, &mut log, 10);
    host.attach("n", "json:/n:int", 50);
    log.put("k", "1");
    host.give(&log);
    let stopped = host.table.build(50, &mut |_| false);
    assert!(matches!(stopped, Err(Error::Closed)));
    assert_eq!(host.table.is_built(50), Some(false));
    host.build(50);
    let tree = Table::dir_in(Path::new(TABLES), 2).join(format!("{:032x}", 50));
    assert!(host.vfs.exists(&tree).unwrap());
    host.table.detach(50).unwrap();
    host.table.detach(50).unwrap();
    assert!(!host.vfs.exists(&tree).unwrap());
    assert!(matches!(
        host.table.build(50, &mut |_| true),
        Err(Error::NotFound { .. })
    ));
    // One that the catalog has no more is not opened, and its files are removed.
    host.attach("m", "value", 51);
    host.build(51);
    host.definition.indexes.clear();
    host.reopen(1);
    assert_eq!(host.table.is_built(51), None);
    host.give(&log);
    host.check(&log);
}

#[test]
fn an_index_begins_where_others_have_less_than_the_records() {
    let mut host = Host::new(&[], table_options());
    let mut log = Log::default();
    filled(&host, &mut log, 10);
    host.attach("n", "json:/n:int", 50);
    host.build(50);
    for n in 0..10 {
        log.put(&format!("k{n:04}"), r#"{"n": 3}"#);
    }
    host.give(&log);
    // Only the records are in files: the index has less after the open.
    host.table.table().primary().raise_floor(30);
    host.table.table().primary().flush().unwrap();
    while host.table.table().primary().compact(None).unwrap() {}
    host.reopen(1);
    assert!(host.table.applied() < host.table.floor());
    host.attach("m", "value", 51);
    host.build(51);
    host.give(&log);
    host.check(&log);
}

#[test]
fn an_index_that_is_lost_begins_anew() {
    let mut host = Host::new(&[], table_options());
    let mut log = Log::default();
    filled(&host, &mut log, 20);
    host.attach("n", "json:/n:int", 50);
    host.build(50);
    host.table.flush().unwrap();
    let tree = Table::dir_in(Path::new(TABLES), 2).join(format!("{:032x}", 50));
    host.vfs.remove(&tree.join("CURRENT")).unwrap();
    host.reopen(41);
    assert_eq!(host.table.is_built(50), None);
    let index = host.definition.indexes[0].clone();
    host.table.attach(&index).unwrap();
    host.build(50);
    host.check(&log);
}

#[test]
fn a_copy_is_a_table_that_goes_on() {
    let mut host = Host::new(&[("first", "json:/n:int")], table_options());
    let mut log = Log::default();
    for round in 0..5 {
        filled(&host, &mut log, 30);
        host.table.flush().unwrap();
        log.put("k0000", &format!(r#"{{"n": {round}}}"#));
    }
    host.attach("later", "json:/n", 50);
    host.build(50);
    host.attach("not built", "value", 51);
    host.give(&log);
    let early = host.table.pin().unwrap();
    host.table.flush().unwrap();
    let pinned = host.table.pin().unwrap();
    assert_eq!(pinned.flushed, log.appended.len() as u64);
    // What is pinned stays, whatever is merged.
    for _ in 0..4 {
        log.put("k0001", r#"{"n": 1}"#);
        host.give(&log);
        host.table.flush().unwrap();
        while host.table.table().compact().unwrap() {}
    }
    for pinned in [pinned, early] {
        let mut copy = host.copy(&pinned, OTHER);
        assert_eq!(copy.table.wanted(), pinned.flushed + 1);
        assert_eq!(copy.table.is_built(50), Some(true));
        // Who copies builds by itself what is not built.
        assert_eq!(copy.table.is_built(51), None);
        copy.give(&log);
        copy.check(&log);
        assert_eq!(copy.table.stats().counters, host.table.stats().counters);
        log.put("k0002", r#"{"n": 2}"#);
        host.give(&log);
        copy.give(&log);
        copy.table.flush().unwrap();
        while copy.table.table().compact().unwrap() {}
        copy.reopen(pinned.flushed + 1);
        copy.give(&log);
        copy.check(&log);
        host.check(&log);
    }
    let pinned = host.table.pin().unwrap();
    assert!(matches!(
        pinned.read("none", 0, 1),
        Err(Error::NotFound { .. })
    ));
}

#[test]
fn a_table_that_is_not_here_is_made_only_of_the_whole_log() {
    let definition = hosted_definition(&[]);
    let vfs = MemoryVfs::new();
    let opened = open_hosted(&vfs, TABLES, &definition, &table_options(), 2);
    assert!(matches!(opened, Err(Error::Missing { .. })));
    let mut host = Host::new(&[], table_options());
    let mut log = Log::default();
    filled(&host, &mut log, 5);
    host.table.flush().unwrap();
    let bases = Table::dir_in(Path::new(TABLES), 2).join("BASES");
    host.vfs.remove(&bases).unwrap();
    let opened = open_hosted(&host.vfs, TABLES, &host.definition, &host.options, 1);
    assert!(matches!(opened, Err(Error::Missing { .. })));
    host.vfs = MemoryVfs::new();
    host.reopen(1);
    host.give(&log);
    host.check(&log);
}

#[test]
fn a_lease_keeps_what_a_position_sees() {
    let host = Host::new(&[("n", "json:/n:int")], table_options());
    let mut log = Log::default();
    filled(&host, &mut log, 10);
    let lease = host.table.lease(20).unwrap();
    assert!(matches!(host.table.lease(21), Err(Error::BeyondEnd { .. })));
    for n in 0..10 {
        log.put(&format!("k{n:04}"), r#"{"n": 100}"#);
    }
    host.give(&log);
    host.table.flush().unwrap();
    while host.table.table().compact().unwrap() {}
    let key = &b"k0003"[..];
    assert_eq!(host.table.get_rows(&[key], 20, 1).unwrap().positions, [7]);
    drop(lease);
    log.put("k0000", "1");
    host.give(&log);
    host.table.flush().unwrap();
    while host.table.table().compact().unwrap() {}
    let gone = host.table.get_rows(&[key], 20, 1);
    assert!(matches!(gone, Err(Error::Trimmed { .. })));
}

/// Scan page by page, and return keys and positions.
fn paged(host: &Host, tree: Option<u128>, direction: Direction, count_max: usize) -> Vec<u64> {
    let (mut begin, mut end): (Vec<u8>, Option<Vec<u8>>) = (Vec::new(), None);
    let mut found = Vec::new();
    loop {
        let bounds = Bounds {
            tree,
            begin: &begin,
            end: end.as_deref(),
            direction,
            count_max,
            bytes_max: usize::MAX,
        };
        let rows = host.table.scan_rows(&bounds, 0).unwrap();
        assert!(rows.positions.len() <= count_max);
        found.extend(&rows.positions);
        let Some(next) = rows.next else { break };
        assert_eq!(rows.positions.len(), count_max);
        match direction {
            Direction::Forward => begin = next,
            Direction::Reverse => end = Some(next),
        }
    }
    found
}

#[test]
fn pages_are_all_rows_in_order() {
    let host = Host::new(&[("n", "json:/n:int")], table_options());
    let mut log = Log::default();
    filled(&host, &mut log, 20);
    log.put("k0004", "");
    host.give(&log);
    let expected: Vec<u64> = (0..20).filter(|n| *n != 4).map(|n| 2 * n + 1).collect();
    let reversed: Vec<u64> = expected.iter().rev().copied().collect();
    for count_max in 1..22 {
        assert_eq!(paged(&host, None, Direction::Forward, count_max), expected);
        assert_eq!(paged(&host, None, Direction::Reverse, count_max), reversed);
        let by_index = paged(&host, Some(10), Direction::Forward, count_max);
        let mut back = paged(&host, Some(10), Direction::Reverse, count_max);
        back.reverse();
        assert_eq!(by_index, back);
        assert_eq!(by_index.len(), 19);
    }
    let keys: Vec<Vec<u8>> = (0..25).map(|n| format!("k{n:04}").into_bytes()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let whole = host.table.get_rows(&keys, 0, usize::MAX).unwrap();
    assert_eq!((whole.looked, whole.positions), (25, expected.clone()));
    let (mut done, mut found) = (0, Vec::new());
    while done < keys.len() {
        let part = host.table.get_rows(&keys[done..], 0, 1).unwrap();
        found.extend(part.positions);
        done += part.looked as usize;
    }
    assert_eq!(found, expected);
    let none = host.table.scan_rows(
        &Bounds {
            tree: Some(99),
            begin: &[],
            end: None,
            direction: Direction::Forward,
            count_max: 1,
            bytes_max: 1,
        },
        0,
    );
    assert!(matches!(none, Err(Error::NotFound { .. })));
}

#[test]
fn memory_that_is_full_says_so() {
    let options = TableOptions {
        memory_bytes: 4 << 10,
        ..table_options()
    };
    let host = Host::new(&[], options);
    let mut log = Log::default();
    filled(&host, &mut log, 200);
    assert!(host.table.is_full());
    host.table.flush().unwrap();
    assert!(!host.table.is_full());
}

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<(Option<u8>, u8)>),
    Give,
    Flush,
    Merge,
    Reopen,
    Attach,
    Build,
    Detach,
    Copy,
    Check,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = prop_oneof![9 => (0u8..10).prop_map(Some), 1 => Just(None)];
    let records = proptest::collection::vec((key, 0u8..12), 1..6);
    let step = prop_oneof![
        20 => records.prop_map(Step::Append),
        8 => Just(Step::Give),
        5 => Just(Step::Flush),
        4 => Just(Step::Merge),
        2 => Just(Step::Reopen),
        2 => Just(Step::Attach),
        2 => Just(Step::Build),
        1 => Just(Step::Detach),
        1 => Just(Step::Copy),
        2 => Just(Step::Check),
    ];
    proptest::collection::vec(step, 1..80)
}

fn value(n: u8) -> String {
    match n {
        0 => String::new(),
        1 => "no json".into(),
        n => format!(r#"{{"n": {}, "t": "{n}"}}"#, n % 4),
    }
}

fn run(steps: &[Step]) {
    let mut host = Host::new(&[("n", "json:/n:int")], table_options());
    let (mut log, mut trees) = (Log::default(), 50);
    for step in steps {
        match step {
            Step::Append(records) => {
                let keys = records.iter().map(|(key, n)| {
                    let key = key.map(|key| format!("k{key}"));
                    (key, value(*n))
                });
                let owned: Vec<_> = keys.collect();
                let records: Vec<_> = owned
                    .iter()
                    .map(|(key, value)| (key.as_deref(), value.as_str()))
                    .collect();
                log.append(&records);
            }
            Step::Give => host.give(&log),
            Step::Flush => {
                host.table.flush().unwrap();
            }
            Step::Merge => {
                host.table.merge().unwrap();
            }
            Step::Reopen => {
                let first = host.table.flushed() + 1;
                host.reopen(first);
            }
            Step::Attach => {
                trees += 1;
                host.attach(&format!("late {trees}"), "json:/t", trees);
            }
            Step::Build => {
                for index in &host.definition.indexes.clone() {
                    host.table.attach(index).unwrap();
                    host.build(index.tree);
                }
            }
            Step::Detach => {
                if host.definition.indexes.len() > 1 {
                    let gone = host.definition.indexes.remove(1);
                    host.table.detach(gone.tree).unwrap();
                }
            }
            Step::Copy => {
                let pinned = host.table.pin().unwrap();
                host = host.copy(&pinned, OTHER);
            }
            Step::Check => {}
        }
        assert!(host.table.flushed() <= host.table.applied());
        if matches!(step, Step::Check | Step::Build) {
            host.give(&log);
            host.check(&log);
        }
    }
    host.give(&log);
    for index in &host.definition.indexes.clone() {
        host.table.attach(index).unwrap();
        host.build(index.tree);
    }
    host.check(&log);
    let counters = host.table.stats().counters;
    assert_eq!(counters.records, log.appended.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_hosted_table_is_a_list(steps in steps()) {
        run(&steps);
    }
}

/// A crash at any time leaves what opens and, given its log from there on, is what that says.
#[test]
fn every_crash_leaves_a_table_that_goes_on() {
    let mut host = Host::new(&[("n", "json:/n:int")], table_options());
    let mut log = Log::default();
    host.vfs.settle();
    for round in 0..3 {
        filled(&host, &mut log, 6);
        host.table.flush().unwrap();
        if round == 0 {
            host.attach("later", "json:/n", 50);
            log.put("k0001", r#"{"n": 5}"#);
            host.give(&log);
            host.build(50);
        }
        host.table.merge().unwrap();
    }
    host.table.detach(50).unwrap();
    let trace = host.vfs.trace();
    let mut images = 0;
    for (cut, policy, image) in trace.crashes(1) {
        images += 1;
        if images % 2 == 0 {
            continue;
        }
        let (definition, options) = (host.definition.clone(), host.options.clone());
        let table = open_hosted(&image, TABLES, &definition, &options, 1)
            .unwrap_or_else(|error| panic!("cut {cut}, {policy:?}: {error}"));
        let after = Host {
            vfs: image,
            dir: TABLES,
            definition,
            options,
            table,
        };
        after.give(&log);
        for index in &after.definition.indexes.clone() {
            after.table.attach(index).unwrap();
            after.build(index.tree);
        }
        after.check(&log);
        assert_eq!(
            after.table.stats().counters.records,
            log.appended.len() as u64
        );
    }
    assert!(images > 100, "{images} images");
}
