//! Whatever was written is found: each version at each position, and every range in both directions.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Entries of few keys with many versions, many keys with few, and now and then a huge payload or key.
fn entries() -> impl Strategy<Value = Vec<Owned>> {
    let key = prop_oneof![
        8 => proptest::collection::vec(0u8..3, 0..4),
        8 => any::<u16>().prop_map(|n| format!("user:{n:05}").into_bytes()),
        2 => proptest::collection::vec(any::<u8>(), 0..20),
        1 => (0u8..3).prop_map(|byte| vec![byte; 5000]),
    ];
    let payload = prop_oneof![
        2 => Just(None),
        6 => proptest::collection::vec(0u8..4, 0..60).prop_map(Some),
        1 => (0usize..40_000).prop_map(|len| Some(vec![b'z'; len])),
    ];
    let entry = ((key, (0u64..50).prop_map(Reverse)), payload);
    proptest::collection::vec(entry, 1..150).prop_map(|entries| {
        let sorted: BTreeMap<_, _> = entries.into_iter().collect();
        let owned = |((key, Reverse(position)), payload)| (key, position, payload);
        sorted.into_iter().map(owned).collect()
    })
}

fn any_options() -> impl Strategy<Value = RunOptions> {
    let compression = prop_oneof![
        Just(Compression::None),
        Just(Compression::Zstd),
        Just(Compression::Lz4)
    ];
    let page = prop_oneof![Just(1), Just(64), Just(512), Just(8 << 10)];
    (compression, page, 0u32..12).prop_map(|(compression, page_bytes, filter_bits_per_key)| {
        RunOptions {
            compression,
            page_bytes,
            filter_bits_per_key,
        }
    })
}

fn newest<'a>(model: &'a [Owned], key: &[u8], at: u64) -> Option<&'a Owned> {
    model
        .iter()
        .find(|(found, position, _)| found == key && *position <= at)
}

fn check_gets(run: &Run, model: &[Owned]) {
    let mut keys: Vec<Vec<u8>> = model.iter().map(|(key, ..)| key.clone()).collect();
    keys.extend([
        vec![],
        vec![0],
        vec![1, 1, 1, 1],
        b"user:".to_vec(),
        vec![255; 9],
    ]);
    keys.extend(model.iter().map(|(key, ..)| [key, &b"\0"[..]].concat()));
    keys.extend(model.iter().map(|(key, ..)| key[..key.len() / 2].to_vec()));
    for key in keys {
        for at in [0, 1, 7, 24, 48, 49, 50, u64::MAX] {
            let found = run.get(&key, at).unwrap();
            let found = found.map(|found| owned(found.entry()));
            assert_eq!(found.as_ref(), newest(model, &key, at), "{key:?} at {at}");
        }
    }
}

fn check_range(run: &Arc<Run>, model: &[Owned], begin: Option<&[u8]>, end: Option<&[u8]>) {
    let inside = |key: &[u8]| begin.is_none_or(|b| b <= key) && end.is_none_or(|e| key < e);
    let mut expected: Vec<Owned> = model.iter().filter(|e| inside(&e.0)).cloned().collect();
    let forward = collect(run.entries(begin, end, Direction::Forward)).unwrap();
    assert_eq!(forward, expected, "{begin:?}..{end:?}");
    let once = collect(run.entries_once(begin, end)).unwrap();
    assert_eq!(once, expected, "{begin:?}..{end:?} once");
    expected.reverse();
    let reverse = collect(run.entries(begin, end, Direction::Reverse)).unwrap();
    assert_eq!(reverse, expected, "{begin:?}..{end:?} reversed");
    if let Some(middle) = run.middle_key(begin, end) {
        assert!(
            inside(middle) && begin != Some(middle),
            "{middle:?} in {begin:?}..{end:?}"
        );
    }
    assert!(run.bytes_between(begin, end) <= run.info().bytes);
}

fn check_info(info: &RunInfo, model: &[Owned]) {
    let positions = || model.iter().map(|(_, position, _)| *position);
    let mut keys: Vec<&[u8]> = model.iter().map(|(key, ..)| key.as_slice()).collect();
    keys.dedup();
    let expected = RunInfo {
        number: ID.number,
        bytes: info.bytes,
        checksum: info.checksum,
        entries: model.len() as u64,
        keys: keys.len() as u64,
        tombstones: model
            .iter()
            .filter(|(.., payload)| payload.is_none())
            .count() as u64,
        first_key: keys[0].to_vec(),
        last_key: keys[keys.len() - 1].to_vec(),
        position_min: positions().min().unwrap(),
        position_max: positions().max().unwrap(),
    };
    assert_eq!(info, &expected);
    let mut bytes = Vec::new();
    info.encode(&mut bytes);
    let mut take = crate::codec::Take::new("info", &bytes);
    assert_eq!(&RunInfo::decode(&mut take).unwrap(), info);
    take.finish().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_run_is_a_sorted_list(model in entries(), options in any_options(), picks in any::<[prop::sample::Index; 4]>()) {
        let vfs = memory();
        let info = write(&vfs, &model, options).unwrap().unwrap();
        check_info(&info, &model);
        let run = open(&vfs, &info).unwrap();
        prop_assert_eq!(run.info().bytes, file(&vfs).len() as u64);
        check_gets(&run, &model);
        let [a, b, c, d] = picks.map(|pick| pick.get(&model).0.clone());
        let behind = [&b[..], b"\0"].concat();
        for (begin, end) in [(None, None), (Some(&a), None), (None, Some(&b)), (Some(&c), Some(&d)), (Some(&a), Some(&behind))] {
            check_range(&run, &model, begin.map(Vec::as_slice), end.map(Vec::as_slice));
        }
        let report = run.verify(&mut |_| {}).unwrap();
        prop_assert_eq!(report, RunReport { entries: info.entries, keys: info.keys, tombstones: info.tombstones });
    }

    #[test]
    fn a_cache_without_room_changes_nothing(model in entries(), options in any_options()) {
        let vfs = memory();
        let info = write(&vfs, &model, options).unwrap().unwrap();
        let cache = Arc::new(RunCache::new(0, 0));
        let run = Run::open(Arc::new(vfs), Path::new(DIR), ID, &info, &cache).unwrap();
        check_gets(&run, &model);
        check_range(&run, &model, None, None);
        prop_assert_eq!(cache.bytes(), 0);
    }
}

/// A key whose versions fill many pages is found at each of its positions.
#[test]
fn versions_of_one_key_span_pages() {
    let model: Vec<Owned> = (0..2000)
        .rev()
        .map(|position| (b"key".to_vec(), 2 * position, Some(vec![1; 30])))
        .collect();
    let vfs = memory();
    let info = write(&vfs, &model, options(Compression::None, 512)).unwrap();
    let run = open(&vfs, &info.unwrap()).unwrap();
    for position in 0..2000 {
        for at in [2 * position, 2 * position + 1] {
            let found = run.get(b"key", at).unwrap().unwrap();
            assert_eq!(found.position(), 2 * position);
        }
    }
    assert_eq!(run.middle_key(None, Some(b"key")), None);
    assert_eq!(all(&run).unwrap(), model);
    run.verify(&mut |_| {}).unwrap();
}

#[test]
fn the_middle_key_halves_the_bytes() {
    let model = some_entries(4000);
    let vfs = memory();
    let info = write(&vfs, &model, options(Compression::None, 512)).unwrap();
    let run = open(&vfs, &info.unwrap()).unwrap();
    let middle = run.middle_key(None, None).unwrap();
    let left = run.bytes_between(None, Some(middle));
    let right = run.bytes_between(Some(middle), None);
    assert!(left.abs_diff(right) < 2048, "{left} and {right}");
    assert_eq!(run.middle_key(Some(b"a"), Some(b"b")), None);
}
