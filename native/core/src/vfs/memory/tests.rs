//! Crash images: what each policy must keep, may lose, and shows over enough seeds.

use std::collections::BTreeSet;
use std::path::Path;

use super::super::{Access, AlignedBuf, SyncMethod, Vfs};
use super::*;

const SEEDS: u64 = 64;

/// A file system with an empty, durable file `/f` of `len` zeros.
fn with_file(len: u64) -> (MemoryVfs, Arc<dyn VfsFile>) {
    let vfs = MemoryVfs::new();
    vfs.create_zeroed(Path::new("/f"), len).unwrap();
    vfs.settle();
    let file = vfs.open(Path::new("/f"), Access::Write).unwrap();
    (vfs, file)
}

fn blocks(byte: u8, count: usize) -> AlignedBuf {
    let mut data = AlignedBuf::new(0);
    data.extend_from_slice(&vec![byte; count * 4096]);
    data
}

fn read(vfs: &MemoryVfs, path: &str) -> Vec<u8> {
    vfs.read(Path::new(path), 1 << 30).unwrap()
}

/// The distinct results of `look` over all images of the last cut under `policy`.
fn outcomes<T: Ord>(
    vfs: &MemoryVfs,
    policy: impl Fn(u64) -> CrashPolicy,
    look: impl Fn(&MemoryVfs) -> T,
) -> BTreeSet<T> {
    let trace = vfs.trace();
    (0..SEEDS)
        .map(|seed| look(&trace.crash(trace.len(), policy(seed))))
        .collect()
}

fn subset(seed: u64) -> CrashPolicy {
    CrashPolicy::Subset { seed }
}

fn torn(seed: u64) -> CrashPolicy {
    CrashPolicy::Torn { seed }
}

#[test]
fn synced_writes_survive_every_crash_behind_them() {
    let (vfs, file) = with_file(16 << 10);
    let durable = vfs
        .open_durable(Path::new("/f"), SyncMethod::Direct)
        .unwrap();
    file.write_all_at(&[1; 3000], 100).unwrap();
    file.sync().unwrap();
    vfs.mark(1);
    file.write_all_at(&[3; 5000], 11_000).unwrap();
    durable.write_durable_at(&blocks(2, 1), 4096).unwrap();
    vfs.mark(2);
    file.write_all_at(&[4; 100], 0).unwrap();
    let trace = vfs.trace();
    let mut seen = BTreeSet::new();
    for (cut, policy, image) in trace.crashes(SEEDS) {
        let data = read(&image, "/f");
        let marks: Vec<u64> = trace.marks_before(cut).collect();
        if marks.contains(&1) {
            assert_eq!(data[100..3100], [1; 3000], "{cut} {policy:?}");
        }
        if marks.contains(&2) {
            assert_eq!(data[4096..8192], [2; 4096], "{cut} {policy:?}");
        }
        seen.insert((marks, data[11_000], data[0]));
    }
    let all = vec![1, 2];
    assert!(seen.contains(&(all.clone(), 0, 0)) && seen.contains(&(all.clone(), 3, 4)));
    assert!(seen.contains(&(all.clone(), 0, 4)) && seen.contains(&(all, 3, 0)));
}

#[test]
fn keep_all_is_the_live_state_and_drop_unsynced_the_durable_one() {
    let (vfs, file) = with_file(4096);
    file.write_all_at(&[1; 512], 0).unwrap();
    file.sync().unwrap();
    file.write_all_at(&[2; 512], 512).unwrap();
    let kept = vfs.trace().crash(3, CrashPolicy::KeepAll);
    assert_eq!(read(&kept, "/f"), read(&vfs, "/f"));
    let dropped = read(&vfs.trace().crash(3, CrashPolicy::DropUnsynced), "/f");
    assert_eq!((dropped[511], dropped[512]), (1, 0));
    // Before the sync returned nothing was promised.
    let dropped = read(&vfs.trace().crash(1, CrashPolicy::DropUnsynced), "/f");
    assert_eq!(dropped, [0; 4096]);
}

#[test]
fn any_subset_of_unsynced_writes_may_survive() {
    let (vfs, file) = with_file(4096);
    for write in 0..3_u8 {
        file.write_all_at(&[write + 1; 512], u64::from(write) * 512)
            .unwrap();
    }
    let seen = outcomes(&vfs, subset, |image| {
        let data = read(image, "/f");
        for sector in data.chunks(512) {
            assert!(
                sector.iter().all(|byte| *byte == sector[0]),
                "a subset tears nothing"
            );
        }
        (data[0] != 0, data[512] != 0, data[1024] != 0)
    });
    assert_eq!(seen.len(), 8);
}

#[test]
fn overlapping_unsynced_writes_may_be_applied_in_either_order() {
    let (vfs, file) = with_file(4096);
    file.write_all_at(&[1; 1024], 0).unwrap();
    file.write_all_at(&[2; 1024], 512).unwrap();
    let seen = outcomes(&vfs, subset, |image| read(image, "/f")[512]);
    assert_eq!(seen, BTreeSet::from([0, 1, 2]));
    let both = outcomes(&vfs, subset, |image| {
        let data = read(image, "/f");
        (data[0], data[512], data[1024])
    });
    assert!(both.contains(&(1, 1, 2)) && both.contains(&(1, 2, 2)));
}

#[test]
fn an_old_write_never_comes_back_over_a_durable_one() {
    let (vfs, file) = with_file(16 << 10);
    file.write_all_at(&[1; 12_000], 1000).unwrap();
    file.write_durable_at(&blocks(2, 1), 4096).unwrap();
    let seen = outcomes(&vfs, subset, |image| {
        let data = read(image, "/f");
        assert_eq!(data[4096..8192], [2; 4096]);
        (
            data[1000],
            data[4095],
            data[8192],
            data[12_999],
            data[13_000],
        )
    });
    // What is left of the old write are two writes now, on both sides.
    assert!(seen.contains(&(0, 0, 0, 0, 0)) && seen.contains(&(1, 1, 1, 1, 0)));
    assert!(seen.contains(&(1, 1, 0, 0, 0)) && seen.contains(&(0, 0, 1, 1, 0)));
    assert_eq!(seen.len(), 4);
}

#[test]
fn a_durable_write_takes_an_earlier_change_of_length_with_it() {
    let (vfs, file) = with_file(8192);
    file.write_durable_at(&blocks(1, 2), 0).unwrap();
    {
        let state = &mut *vfs.state.lock();
        let node = state.live.find(Path::new("/f")).unwrap();
        state.set_len(node, Path::new("/f"), 0);
    }
    file.write_durable_at(&blocks(2, 1), 4096).unwrap();
    let seen = outcomes(&vfs, subset, |image| read(image, "/f"));
    assert_eq!(seen, BTreeSet::from([[[0; 4096], [2; 4096]].concat()]));
}

#[test]
fn torn_writes_change_at_sector_boundaries_only() {
    let (vfs, file) = with_file(8192);
    file.write_all_at(&[1; 3000], 300).unwrap();
    let seen = outcomes(&vfs, torn, |image| {
        let data = read(image, "/f");
        assert!(
            data[..300]
                .iter()
                .chain(&data[3300..])
                .all(|&byte| byte == 0)
        );
        let changes: Vec<usize> = (301..3300).filter(|&i| data[i] != data[i - 1]).collect();
        assert!(changes.iter().all(|i| i.is_multiple_of(512)), "{changes:?}");
        changes
    });
    assert!(seen.len() > 10, "torn in many ways: {}", seen.len());
}

#[test]
fn a_torn_append_may_leave_its_length_without_its_bytes() {
    let (vfs, file) = with_file(512);
    file.write_all_at(&[1; 1024], 512).unwrap();
    let seen = outcomes(&vfs, torn, |image| {
        let data = read(image, "/f");
        (
            data.len(),
            data.get(512) == Some(&1),
            data.get(1024) == Some(&1),
        )
    });
    assert!(seen.contains(&(512, false, false)) && seen.contains(&(1536, false, false)));
    assert!(seen.contains(&(1024, true, false)) && seen.contains(&(1536, false, true)));
}

#[test]
fn the_operation_under_way_may_be_done_in_part_when_torn() {
    let (vfs, file) = with_file(4096);
    file.write_durable_at(&blocks(1, 1), 0).unwrap();
    vfs.rename(Path::new("/f"), Path::new("/g")).unwrap();
    let trace = vfs.trace();
    let sums: BTreeSet<u32> = (0..SEEDS)
        .map(|seed| {
            read(&trace.crash(0, torn(seed)), "/f")
                .into_iter()
                .map(u32::from)
                .sum()
        })
        .collect();
    assert!(
        sums.len() > 4 && sums.contains(&0) && sums.contains(&4096),
        "{sums:?}"
    );
    assert!((0..SEEDS).all(|seed| read(&trace.crash(0, subset(seed)), "/f") == [0; 4096]));
    let names: BTreeSet<_> = (0..SEEDS)
        .map(|seed| trace.crash(1, torn(seed)).paths())
        .collect();
    assert_eq!(
        names,
        BTreeSet::from([vec!["/f".to_owned()], vec!["/g".to_owned()]])
    );
}

#[test]
fn entries_survive_as_a_prefix_until_the_directory_is_synced() {
    let vfs = MemoryVfs::new();
    vfs.create_dir_all(Path::new("/d")).unwrap();
    vfs.settle();
    for name in ["/d/1", "/d/2", "/d/3"] {
        let file = vfs.open(Path::new(name), Access::CreateNew).unwrap();
        file.write_all_at(b"synced, but its name is not", 0)
            .unwrap();
        file.sync().unwrap();
    }
    vfs.rename(Path::new("/d/1"), Path::new("/d/4")).unwrap();
    vfs.remove(Path::new("/d/2")).unwrap();
    let seen = outcomes(&vfs, subset, |image| {
        image.list(Path::new("/d")).unwrap().concat()
    });
    let prefixes = ["", "1", "12", "123", "234", "34"].map(str::to_owned);
    assert_eq!(seen, BTreeSet::from(prefixes));
    let image = vfs
        .trace()
        .crash(vfs.operations(), CrashPolicy::DropUnsynced);
    assert_eq!(image.paths(), ["/d/"]);
    vfs.sync_dir(Path::new("/d")).unwrap();
    let seen = outcomes(&vfs, torn, |image| {
        image.list(Path::new("/d")).unwrap().concat()
    });
    assert_eq!(seen, BTreeSet::from(["34".to_owned()]));
}

#[test]
fn a_new_directory_is_lost_with_all_it_holds() {
    let vfs = MemoryVfs::new();
    vfs.create_dir_all(Path::new("/d/e")).unwrap();
    vfs.replace(Path::new("/d/e/f"), b"x").unwrap();
    vfs.sync_dir(Path::new("/d")).unwrap();
    let lost = vfs
        .trace()
        .crash(vfs.operations(), CrashPolicy::DropUnsynced);
    assert!(lost.paths().is_empty());
    vfs.sync_dir(Path::new("/")).unwrap();
    let kept = vfs
        .trace()
        .crash(vfs.operations(), CrashPolicy::DropUnsynced);
    assert_eq!(kept.paths(), ["/d/", "/d/e/", "/d/e/f"]);
}

#[test]
fn a_rename_between_directories_is_there_or_not_in_both() {
    let vfs = MemoryVfs::new();
    vfs.create_dir_all(Path::new("/a")).unwrap();
    vfs.create_dir_all(Path::new("/b")).unwrap();
    vfs.replace(Path::new("/a/f"), b"x").unwrap();
    vfs.settle();
    vfs.open(Path::new("/b/new"), Access::CreateNew).unwrap();
    vfs.rename(Path::new("/a/f"), Path::new("/b/f")).unwrap();
    let seen = outcomes(&vfs, subset, |image| image.paths()[1..].concat());
    let allowed = ["/a/f/b/", "/a/f/b//b/new", "/b//b/f/b/new"].map(str::to_owned);
    assert_eq!(seen, BTreeSet::from(allowed));
    vfs.sync_dir(Path::new("/a")).unwrap();
    let seen = outcomes(&vfs, torn, |image| image.paths()[1..].concat());
    assert_eq!(seen, BTreeSet::from(["/b//b/f/b/new".to_owned()]));
}

#[test]
fn a_lost_rename_takes_what_came_after_it_in_both_directories() {
    let vfs = MemoryVfs::new();
    vfs.create_dir_all(Path::new("/a")).unwrap();
    vfs.create_dir_all(Path::new("/b")).unwrap();
    vfs.replace(Path::new("/a/f"), b"x").unwrap();
    vfs.settle();
    vfs.rename(Path::new("/a/f"), Path::new("/b/f")).unwrap();
    for name in ["/a/1", "/b/1", "/a/2", "/b/2"] {
        vfs.open(Path::new(name), Access::CreateNew).unwrap();
    }
    let seen = outcomes(&vfs, subset, |image| {
        let names = image.paths();
        let has = |name: &str| names.iter().any(|found| found == name);
        assert!(has("/b/f") || !has("/a/1") && !has("/b/1"), "{names:?}");
        assert!(has("/a/1") || !has("/a/2"), "{names:?}");
        (has("/b/f"), has("/a/2"), has("/b/2"))
    });
    assert_eq!(
        seen.len(),
        5,
        "lost, or there with any of the two last: {seen:?}"
    );
}

#[test]
fn every_cut_of_a_long_trace_is_what_was_done_before_it() {
    let (vfs, file) = with_file(64 << 10);
    let mut expected = vec![read(&vfs, "/f")];
    for write in 0..70_u64 {
        let data = blocks(write as u8 + 1, 1);
        match write % 3 {
            0 => file.write_durable_at(&data, write % 16 * 4096).unwrap(),
            1 => file.write_all_at(&data, write * 700).unwrap(),
            _ => file.sync().unwrap(),
        }
        expected.push(read(&vfs, "/f"));
    }
    let trace = vfs.trace();
    assert_eq!(trace.len() + 1, expected.len());
    for (cut, expected) in expected.iter().enumerate() {
        let image = trace.crash(cut, CrashPolicy::KeepAll);
        assert!(read(&image, "/f") == *expected, "cut {cut}");
    }
}

#[test]
fn a_replaced_file_is_the_old_or_the_new_one() {
    let vfs = MemoryVfs::new();
    vfs.replace(Path::new("/f"), &[1; 2000]).unwrap();
    vfs.settle();
    vfs.replace(Path::new("/f"), &[2; 3000]).unwrap();
    vfs.mark(2);
    let trace = vfs.trace();
    for (cut, policy, image) in trace.crashes(SEEDS) {
        let data = read(&image, "/f");
        let old = data == [1; 2000] && trace.marks_before(cut).next().is_none();
        assert!(old || data == [2; 3000], "{cut} {policy:?}");
    }
}

#[test]
fn an_image_is_a_machine_of_its_own() {
    let (vfs, file) = with_file(4096);
    let lock = vfs.lock(Path::new("/LOCK"), "pid 1").unwrap();
    file.write_all_at(&[1; 512], 0).unwrap();
    let image = vfs.trace().crash(vfs.operations(), CrashPolicy::KeepAll);
    assert!(!image.is_locked(Path::new("/LOCK")).unwrap());
    drop(image.lock(Path::new("/LOCK"), "pid 2").unwrap());
    image.remove(Path::new("/f")).unwrap();
    assert_eq!(read(&vfs, "/f")[0], 1);
    // It crashes again, from its own beginning.
    let again = image
        .trace()
        .crash(image.operations(), CrashPolicy::DropUnsynced);
    assert_eq!(read(&again, "/f")[0], 1);
    drop(lock);
}

#[test]
fn the_same_seed_makes_the_same_image() {
    let (vfs, file) = with_file(64 << 10);
    for write in 0..40_u64 {
        file.write_all_at(&[write as u8; 1500], write * 1000)
            .unwrap();
    }
    let trace = vfs.trace();
    let mut distinct = BTreeSet::new();
    for seed in 0..SEEDS {
        let image = || read(&trace.crash(40, torn(seed)), "/f");
        assert!(image() == image());
        distinct.insert(image());
    }
    assert_eq!(distinct.len() as u64, SEEDS);
}

#[test]
fn damage_changes_what_it_names_and_nothing_else() {
    let (vfs, file) = with_file(4096);
    file.write_all_at(&[8; 4096], 0).unwrap();
    let copy = vfs.snapshot();
    vfs.flip_bit(Path::new("/f"), 17, 0).unwrap();
    let mut expected = vec![8; 4096];
    assert_eq!(read(&copy, "/f"), expected);
    assert_eq!(copy.operations(), 0);
    expected[17] = 9;
    assert_eq!(read(&vfs, "/f"), expected);
    vfs.truncate_file(Path::new("/f"), 18).unwrap();
    vfs.truncate_file(Path::new("/f"), 20).unwrap();
    assert_eq!(read(&vfs, "/f")[16..], [8, 9, 0, 0]);
    assert!(vfs.flip_bit(Path::new("/f"), 20, 0).is_err());
    assert!(vfs.truncate_file(Path::new("/none"), 0).is_err());
}

#[test]
fn untraced_files_record_nothing() {
    let vfs = MemoryVfs::untraced();
    vfs.replace(Path::new("/f"), b"x").unwrap();
    assert_eq!(vfs.operations(), 0);
    assert!(vfs.trace().is_empty());
}
