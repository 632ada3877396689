//! What reading costs, in reads and bytes rather than in time.

use super::*;
use crate::vfs::{FaultVfs, OpKind};

fn counted(entries: u64, options: RunOptions) -> (FaultVfs, RunInfo, Vec<Owned>) {
    let model = some_entries(entries);
    let vfs = FaultVfs::new(Arc::new(memory()));
    let info = write(&vfs, &model, options).unwrap().unwrap();
    (vfs, info, model)
}

#[test]
fn opening_reads_no_page_and_a_warm_get_reads_nothing() {
    let (vfs, info, model) = counted(5000, RunOptions::default());
    vfs.reset_counts();
    let run = open(&vfs, &info).unwrap();
    assert_eq!(vfs.count(OpKind::Read), 3, "footer, index, filter");
    for (key, ..) in model.iter().step_by(100) {
        run.get(key, u64::MAX).unwrap().unwrap();
    }
    let cold = vfs.count(OpKind::Read);
    for (key, ..) in model.iter().step_by(100) {
        run.get(key, u64::MAX).unwrap().unwrap();
    }
    assert_eq!(vfs.count(OpKind::Read), cold);
    assert!(
        run.memory_bytes() * 20 < info.bytes as usize,
        "{}",
        run.memory_bytes()
    );
}

#[test]
fn scans_read_ahead_and_short_ones_do_not() {
    let (vfs, info, model) = counted(5000, options(Compression::None, 8 << 10));
    let cache = Arc::new(RunCache::default());
    let run = Run::open(vfs.arc(), Path::new(DIR), ID, &info, &cache).unwrap();
    for direction in [Direction::Forward, Direction::Reverse] {
        let before = vfs.count(OpKind::Read);
        let mut entries = run.entries(Some(&model[5000].0), None, direction);
        assert!(entries.advance().unwrap());
        assert!(vfs.count(OpKind::Read) - before <= 1);
    }
    let before = vfs.count(OpKind::Read);
    assert_eq!(
        collect(run.entries_once(None, None)).unwrap().len(),
        model.len()
    );
    let reads = vfs.count(OpKind::Read) - before;
    let least = info.bytes / crate::limits::RUN_READ_AHEAD_BYTES as u64;
    assert!(reads <= least + 3, "{reads} reads of {} bytes", info.bytes);
    assert!(
        cache.bytes() < 40 << 10,
        "a pass that nobody repeats filled the cache"
    );
    all(&run).unwrap();
    assert!(cache.bytes() < 100 << 10, "a long scan filled the cache");
}

#[test]
fn the_cache_keeps_its_bound() {
    let (vfs, info, model) = counted(5000, options(Compression::None, 1 << 10));
    let bound = 128 << 10;
    assert!(info.bytes > 2 * bound);
    let cache = Arc::new(RunCache::new(bound as usize, 8));
    let run = Run::open(vfs.arc(), Path::new(DIR), ID, &info, &cache).unwrap();
    for (key, ..) in &model {
        run.get(key, u64::MAX).unwrap().unwrap();
        assert!(cache.bytes() <= cache.bytes_max());
    }
    assert!(cache.bytes() > bound / 2);
    assert_eq!(cache.bytes_max(), bound);
}

/// A big entry does not make its neighbours expensive.
#[test]
fn a_big_entry_has_a_page_of_its_own() {
    let mut model = some_entries(100);
    model.push((b"kez".to_vec(), 1, Some(vec![7; 1 << 20])));
    model.push((b"kezz".to_vec(), 1, Some(vec![7])));
    let vfs = memory();
    let info = write(&vfs, &model, options(Compression::None, 512))
        .unwrap()
        .unwrap();
    let run = open(&vfs, &info).unwrap();
    for (key, most) in [
        (&b"key-00099"[..], 2048),
        (b"kezz", 2048),
        (b"kez", 2 << 20),
    ] {
        let found = run.get(key, u64::MAX).unwrap().unwrap();
        assert!(found.page.memory_bytes() < most, "{key:?}");
    }
}
