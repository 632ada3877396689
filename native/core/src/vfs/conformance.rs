//! What every [`Vfs`] must do, run by each of them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Access, AlignedBuf, FaultVfs, MemoryVfs, RealVfs, SyncMethod, Vfs};
use crate::error::Error;
use crate::limits::BLOCK_BYTES;

const METHODS: [SyncMethod; 3] = [SyncMethod::Fdatasync, SyncMethod::Dsync, SyncMethod::Direct];

/// A directory of its own, removed at the end.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Self {
        Self::within(&std::env::temp_dir()).unwrap()
    }

    /// None if there is no such folder to make it in.
    fn within(folder: &Path) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("braidlog-vfs-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        Some(Self(path))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Run each check against each implementation, in an empty directory that it may fill.
macro_rules! conformance {
    ($($check:ident)*) => {
        mod real {
            $(#[test] fn $check() {
                let dir = super::TempDir::new();
                super::$check(&super::RealVfs, &dir.0);
            })*
        }
        /// Where the file system is memory, if the machine has such a folder.
        mod shared_memory {
            $(#[test] fn $check() {
                if let Some(dir) = super::TempDir::within("/dev/shm".as_ref()) {
                    super::$check(&super::RealVfs, &dir.0);
                }
            })*
        }
        mod memory {
            use super::Vfs;
            $(#[test] fn $check() {
                let vfs = super::MemoryVfs::new();
                vfs.create_dir_all("/data".as_ref()).unwrap();
                super::$check(&vfs, "/data".as_ref());
            })*
        }
        mod fault {
            $(#[test] fn $check() {
                let dir = super::TempDir::new();
                super::$check(&super::FaultVfs::new(super::Arc::new(super::RealVfs)), &dir.0);
            })*
        }
    };
}

conformance! {
    files_are_written_and_read
    opening_needs_the_right_state
    read_only_files_refuse_writes
    reads_past_the_end_fail
    durable_writes_by_every_method
    durable_writes_must_be_aligned
    zeroed_files
    create_zeroed_keeps_an_existing_file
    create_zeroed_leaves_nothing_when_it_fails
    extended_files_keep_what_they_hold
    extend_zeroed_leaves_nothing_when_it_fails
    whole_files_are_read_up_to_a_bound
    directories_list_sorted_names
    renaming_replaces
    removed_files_stay_readable_when_open
    only_empty_directories_are_removed
    replacing_a_small_file
    locks_exclude_and_name_their_holder
    probing_a_lock_disturbs_nobody
    errors_name_operation_and_path
}

fn create(vfs: &dyn Vfs, path: &Path, data: &[u8]) {
    let file = vfs.open(path, Access::CreateNew).unwrap();
    file.write_all_at(data, 0).unwrap();
}

/// The reason of an operating-system error.
#[track_caller]
fn kind<T>(result: crate::Result<T>) -> ErrorKind {
    match result {
        Err(Error::Io { source, .. }) => source.kind(),
        Err(other) => panic!("not an operating-system error: {other}"),
        Ok(_) => panic!("should have failed"),
    }
}

fn files_are_written_and_read(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("file");
    let file = vfs.open(&path, Access::CreateNew).unwrap();
    assert!(file.is_empty().unwrap());
    assert_eq!(file.path(), path);
    file.write_all_at(b"world", 5000).unwrap();
    file.write_all_at(b"hello", 0).unwrap();
    file.write_all_at(b"", 9000).unwrap();
    file.sync().unwrap();
    vfs.sync_dir(dir).unwrap();
    assert_eq!(file.len().unwrap(), 5005);
    let mut all = vec![1; 5005];
    file.read_exact_at(&mut all, 0).unwrap();
    assert_eq!((&all[..5], &all[5000..]), (&b"hello"[..], &b"world"[..]));
    assert!(all[5..5000].iter().all(|&byte| byte == 0));
    let other = vfs.open(&path, Access::Write).unwrap();
    other.write_all_at(b"HE", 0).unwrap();
    let mut start = [0; 5];
    file.read_exact_at(&mut start, 0).unwrap();
    assert_eq!(&start, b"HEllo");
}

fn opening_needs_the_right_state(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("file");
    for access in [Access::Read, Access::Write] {
        assert_eq!(kind(vfs.open(&path, access)), ErrorKind::NotFound);
    }
    assert_eq!(
        kind(vfs.open_durable(&path, SyncMethod::Direct)),
        ErrorKind::NotFound
    );
    assert!(!vfs.exists(&path).unwrap());
    create(vfs, &path, b"kept");
    assert!(vfs.exists(&path).unwrap());
    assert_eq!(
        kind(vfs.open(&path, Access::CreateNew)),
        ErrorKind::AlreadyExists
    );
    assert_eq!(vfs.read(&path, 10).unwrap(), b"kept");
    let lost = dir.join("nowhere").join("file");
    assert_eq!(
        kind(vfs.open(&lost, Access::CreateNew)),
        ErrorKind::NotFound
    );
}

fn read_only_files_refuse_writes(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("file");
    create(vfs, &path, b"kept");
    let file = vfs.open(&path, Access::Read).unwrap();
    assert!(file.write_all_at(b"lost", 0).is_err());
    assert!(
        file.write_durable_at(&AlignedBuf::zeroed(BLOCK_BYTES), 0)
            .is_err()
    );
    assert_eq!(vfs.read(&path, 10).unwrap(), b"kept");
}

fn reads_past_the_end_fail(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("file");
    create(vfs, &path, &[7; 6000]);
    let mut files = vec![vfs.open(&path, Access::Read).unwrap()];
    files.extend(METHODS.map(|method| vfs.open_durable(&path, method).unwrap()));
    for file in files {
        let mut buffer = [0; 100];
        file.read_exact_at(&mut buffer, 5900).unwrap();
        assert_eq!(buffer, [7; 100]);
        for offset in [5901, 6000, 1 << 30] {
            let result = file.read_exact_at(&mut buffer, offset);
            assert_eq!(kind(result), ErrorKind::UnexpectedEof);
        }
        file.read_exact_at(&mut [], 6000).unwrap();
    }
}

fn durable_writes_by_every_method(vfs: &dyn Vfs, dir: &Path) {
    let block = BLOCK_BYTES as u64;
    for (number, method) in METHODS.into_iter().enumerate() {
        let path = dir.join(format!("file-{number}"));
        vfs.create_zeroed(&path, 4 * block).unwrap();
        let file = vfs.open_durable(&path, method).unwrap();
        let reader = vfs.open(&path, Access::Read).unwrap();
        let mut data = AlignedBuf::new(0);
        for round in 1..=3_u8 {
            data.resize(0);
            data.extend_from_slice(&[round; 2 * BLOCK_BYTES]);
            // The last one makes the file longer.
            file.write_durable_at(&data, u64::from(round) * block)
                .unwrap();
            for (name, file) in [("writer", &file), ("reader", &reader)] {
                let mut found = vec![0; 2 * BLOCK_BYTES - 7];
                file.read_exact_at(&mut found, u64::from(round) * block + 5)
                    .unwrap();
                assert!(
                    found.iter().all(|&byte| byte == round),
                    "{method:?} {name} {round}"
                );
            }
        }
        file.write_all_at(&AlignedBuf::zeroed(BLOCK_BYTES), 0)
            .unwrap();
        file.sync().unwrap();
        assert_eq!(file.len().unwrap(), 5 * block);
        let all = vfs.read(&path, 5 * block).unwrap();
        let starts: Vec<u8> = all.chunks(BLOCK_BYTES).map(|block| block[0]).collect();
        assert_eq!(starts, [0, 1, 2, 3, 3], "{method:?}");
    }
}

fn durable_writes_must_be_aligned(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("file");
    vfs.create_zeroed(&path, 8192).unwrap();
    let mut data = AlignedBuf::new(2 * BLOCK_BYTES);
    data.extend_from_slice(&[1; 2 * BLOCK_BYTES]);
    for method in METHODS {
        let file = vfs.open_durable(&path, method).unwrap();
        for (data, offset) in [
            (&data[..BLOCK_BYTES], 512),
            (&data[..100], 0),
            (&data[64..][..BLOCK_BYTES], 0),
        ] {
            let result = file.write_durable_at(data, offset);
            assert!(
                matches!(result, Err(Error::InvalidArgument(_))),
                "{method:?}"
            );
        }
    }
    assert!(vfs.read(&path, 8192).unwrap().iter().all(|&byte| byte == 0));
}

fn zeroed_files(vfs: &dyn Vfs, dir: &Path) {
    for len in [
        0,
        1,
        4096,
        4097,
        (1 << 20) - 1,
        (2 << 20) + 4096,
        (3 << 20) + 17,
    ] {
        let path = dir.join(format!("zeros-{len}"));
        vfs.create_zeroed(&path, len).unwrap();
        let data = vfs.read(&path, len).unwrap();
        assert_eq!(data.len() as u64, len);
        assert!(data.iter().all(|&byte| byte == 0));
    }
}

fn create_zeroed_keeps_an_existing_file(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("file");
    create(vfs, &path, b"kept");
    assert_eq!(
        kind(vfs.create_zeroed(&path, 4096)),
        ErrorKind::AlreadyExists
    );
    assert_eq!(vfs.read(&path, 10).unwrap(), b"kept");
}

/// No file system takes a length beyond `i64`, and none tries for long.
fn create_zeroed_leaves_nothing_when_it_fails(vfs: &dyn Vfs, dir: &Path) {
    assert!(vfs.create_zeroed(&dir.join("file"), 1 << 63).is_err());
    assert!(vfs.list(dir).unwrap().is_empty());
}

fn extended_files_keep_what_they_hold(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("file");
    vfs.create_zeroed(&path, 4096).unwrap();
    let file = vfs.open(&path, Access::Write).unwrap();
    file.write_all_at(&[7; 4096], 0).unwrap();
    // What an attempt before left is behind the beginning, and goes.
    file.write_all_at(&[8; 5000], 4096).unwrap();
    for (begin, end) in [(4096, 8192), (8192, (2 << 20) + 4096), (8192, 12288)] {
        vfs.extend_zeroed(&path, begin, end).unwrap();
        let data = vfs.read(&path, 4 << 20).unwrap();
        assert_eq!(data.len() as u64, end);
        assert!(data[..4096].iter().all(|&byte| byte == 7));
        assert!(data[4096..].iter().all(|&byte| byte == 0));
    }
    let none = vfs.extend_zeroed(&dir.join("none"), 0, 4096);
    assert_eq!(kind(none), ErrorKind::NotFound);
}

fn extend_zeroed_leaves_nothing_when_it_fails(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("file");
    vfs.create_zeroed(&path, 4096).unwrap();
    assert!(vfs.extend_zeroed(&path, 4096, 1 << 63).is_err());
    assert_eq!(vfs.read(&path, 8192).unwrap(), [0; 4096]);
}

fn whole_files_are_read_up_to_a_bound(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("file");
    create(vfs, &path, &[9; 5000]);
    assert_eq!(vfs.read(&path, 5000).unwrap(), [9; 5000]);
    assert_eq!(vfs.read(&path, u64::MAX).unwrap(), [9; 5000]);
    let result = vfs.read(&path, 4999);
    assert!(matches!(
        result,
        Err(Error::TooLarge {
            size: 5000,
            max: 4999,
            ..
        })
    ));
    assert_eq!(kind(vfs.read(&dir.join("none"), 10)), ErrorKind::NotFound);
}

fn directories_list_sorted_names(vfs: &dyn Vfs, dir: &Path) {
    vfs.create_dir_all(&dir.join("d").join("e")).unwrap();
    vfs.create_dir_all(&dir.join("d")).unwrap();
    for name in ["c", "a", "d/inner", "b10", "b9"] {
        create(vfs, &dir.join(name), b"");
    }
    assert_eq!(vfs.list(dir).unwrap(), ["a", "b10", "b9", "c", "d"]);
    assert_eq!(vfs.list(&dir.join("d")).unwrap(), ["e", "inner"]);
    assert!(vfs.exists(&dir.join("d")).unwrap());
    assert_eq!(kind(vfs.list(&dir.join("none"))), ErrorKind::NotFound);
    assert_eq!(kind(vfs.sync_dir(&dir.join("none"))), ErrorKind::NotFound);
    assert!(vfs.create_dir_all(&dir.join("a").join("x")).is_err());
}

fn renaming_replaces(vfs: &dyn Vfs, dir: &Path) {
    let (from, to) = (dir.join("from"), dir.join("sub").join("to"));
    vfs.create_dir_all(&dir.join("sub")).unwrap();
    create(vfs, &from, b"new");
    create(vfs, &to, b"old");
    vfs.rename(&from, &to).unwrap();
    assert!(!vfs.exists(&from).unwrap());
    assert_eq!(vfs.read(&to, 10).unwrap(), b"new");
    assert_eq!(kind(vfs.rename(&from, &to)), ErrorKind::NotFound);
    vfs.rename(&to, &to).unwrap();
    assert!(vfs.rename(&to, dir).is_err());
    vfs.rename(&dir.join("sub"), &dir.join("moved")).unwrap();
    assert_eq!(vfs.read(&dir.join("moved/to"), 10).unwrap(), b"new");
}

fn removed_files_stay_readable_when_open(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("file");
    create(vfs, &path, b"old");
    let old = vfs.open(&path, Access::Read).unwrap();
    vfs.remove(&path).unwrap();
    assert_eq!(kind(vfs.remove(&path)), ErrorKind::NotFound);
    create(vfs, &path, b"new");
    let mut found = [0; 3];
    old.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"old");
    assert_eq!(vfs.read(&path, 3).unwrap(), b"new");
    assert!(vfs.remove(dir).is_err());
}

fn only_empty_directories_are_removed(vfs: &dyn Vfs, dir: &Path) {
    let (outer, inner) = (dir.join("d"), dir.join("d").join("e"));
    vfs.create_dir_all(&inner).unwrap();
    create(vfs, &dir.join("file"), b"");
    assert!(vfs.remove_dir(&outer).is_err());
    assert!(vfs.remove_dir(&dir.join("file")).is_err());
    vfs.remove_dir(&inner).unwrap();
    assert_eq!(kind(vfs.remove_dir(&inner)), ErrorKind::NotFound);
    vfs.remove_dir(&outer).unwrap();
    assert_eq!(vfs.list(dir).unwrap(), ["file"]);
}

fn replacing_a_small_file(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("CURRENT");
    create(
        vfs,
        &dir.join("CURRENT.tmp"),
        b"left behind by a crash, and longer",
    );
    for data in [&b"first"[..], b"second", b""] {
        vfs.replace(&path, data).unwrap();
        assert_eq!(vfs.read(&path, 10).unwrap(), data);
        assert_eq!(vfs.list(dir).unwrap(), ["CURRENT"]);
    }
}

fn locks_exclude_and_name_their_holder(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("LOCK");
    assert!(!vfs.is_locked(&path).unwrap());
    assert!(!vfs.exists(&path).unwrap());
    let lock = vfs.lock(&path, "a long note of pid 17").unwrap();
    assert!(vfs.is_locked(&path).unwrap());
    match vfs.lock(&path, "pid 18") {
        Err(Error::Locked { holder, .. }) => assert_eq!(holder, "a long note of pid 17"),
        _ => panic!("the lock is held"),
    }
    drop(lock);
    assert!(!vfs.is_locked(&path).unwrap());
    let lock = vfs.lock(&path, "pid 19").unwrap();
    assert_eq!(vfs.read(&path, 100).unwrap(), b"pid 19");
    drop(lock);
}

/// A probe takes no lock that a writer starting at that moment would find taken.
fn probing_a_lock_disturbs_nobody(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("LOCK");
    let stop = Arc::new(AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while stop.load(Ordering::Relaxed) == 0 {
                vfs.is_locked(&path).unwrap();
            }
        });
        for _ in 0..300 {
            let result = vfs.lock(&path, "pid");
            if result.is_err() {
                stop.store(1, Ordering::Relaxed);
            }
            drop(result.unwrap());
        }
        stop.store(1, Ordering::Relaxed);
    });
}

fn errors_name_operation_and_path(vfs: &dyn Vfs, dir: &Path) {
    let missing = dir.join("none");
    let message = vfs.open(&missing, Access::Read).err().unwrap().to_string();
    assert!(
        message.starts_with(&format!("cannot open {}: ", missing.display())),
        "{message}"
    );
    let message = vfs.remove(&missing).err().unwrap().to_string();
    assert!(
        message.starts_with(&format!("cannot remove {}: ", missing.display())),
        "{message}"
    );
}
