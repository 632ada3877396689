//! Directories that are not as they were left, or may not be written to.

use std::path::Path;
use std::sync::Arc;

use super::driver::kept;
use super::faults::{Promised, faulty, open_on, run};
use super::{DIR, append, contents, create, options};
use crate::error::Error;
use crate::vfs::{Access, CrashPolicy, Fault, FaultVfs, MemoryVfs, OpKind, Rule, Vfs};
use crate::wal::{Follower, IDENTITY};

#[test]
fn a_read_only_directory_is_refused_and_can_be_followed() {
    let (memory, vfs) = faulty();
    let mut promised = Promised::default();
    run(&vfs, &mut promised).unwrap();
    let vfs = FaultVfs::new(Arc::new(memory));
    for kind in [
        OpKind::Create,
        OpKind::Write,
        OpKind::WriteDurable,
        OpKind::Rename,
        OpKind::Lock,
    ] {
        vfs.add(Rule::fail(kind, Fault::ReadOnly));
    }
    match open_on(&vfs, 2).map(|_| ()) {
        Err(Error::Io { path, source, .. }) => {
            assert!(path.starts_with(DIR));
            assert_eq!(source.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        }
        other => panic!("{other:?}"),
    }
    let follower = Follower::open(Arc::new(vfs), Path::new(DIR), &options()).unwrap();
    assert_eq!(contents(follower.view(), 1).unwrap().len(), 3);
}

/// What befalls a file.
type Damage<'a> = &'a dyn Fn(&MemoryVfs, &str);

/// Whether it is the error for that.
type Expected = fn(&Error) -> bool;

#[test]
fn a_directory_that_is_not_as_it_was_left_is_refused_by_its_own_name() {
    let (memory, vfs) = faulty();
    run(&vfs, &mut Promised::default()).unwrap();
    let write = |vfs: &MemoryVfs, path: &str, at: u64, bytes: &[u8]| {
        let file = vfs.open(Path::new(path), Access::Write).unwrap();
        file.write_all_at(bytes, at).unwrap();
    };
    let remove: Damage<'_> = &|vfs, path| vfs.remove(Path::new(path)).unwrap();
    let foreign: Damage<'_> = &|vfs, path| write(vfs, path, 0, &[b'#'; 4096]);
    let empty: Damage<'_> = &|vfs, path| vfs.truncate_file(Path::new(path), 0).unwrap();
    let half: Damage<'_> = &|vfs, path| vfs.truncate_file(Path::new(path), 32 << 10).unwrap();
    let newer: Damage<'_> = &|vfs, path| {
        let mut head = vfs.read(Path::new(path), 1 << 20).unwrap();
        head[4] += 9;
        let checked = if path.ends_with(IDENTITY) { 44 } else { 48 };
        let crc = crc32c::crc32c(&head[..checked]);
        head[checked..checked + 4].copy_from_slice(&crc.to_le_bytes());
        write(vfs, path, 0, &head[..checked + 4]);
    };
    let paths = memory.paths();
    let newest = {
        let (store, _) = open_on(&FaultVfs::new(Arc::new(memory.snapshot())), 3).unwrap();
        let segments = store.view().segments();
        segments.last().unwrap().path().to_str().unwrap().to_owned()
    };
    let manifest = paths
        .iter()
        .find(|path| path.contains("MANIFEST-"))
        .unwrap();
    let (identity, current) = (format!("{DIR}/IDENTITY"), format!("{DIR}/CURRENT"));
    let missing: Expected = |e| matches!(e, Error::Missing { .. });
    let is_foreign: Expected = |e| matches!(e, Error::Foreign { .. });
    let corrupt: Expected = |e| matches!(e, Error::Corruption { .. });
    let is_newer: Expected = |e| matches!(e, Error::Newer { .. });
    let zeros: Damage<'_> = &|vfs, path| write(vfs, path, 0, &[0; 4096]);
    let cases: [(&str, Damage<'_>, Expected); 16] = [
        (&identity, zeros, corrupt),
        (manifest, zeros, corrupt),
        (&identity, remove, missing),
        (&identity, foreign, is_foreign),
        (&identity, newer, is_newer),
        (&identity, empty, corrupt),
        (&current, remove, missing),
        (&current, foreign, |e| {
            matches!(e, Error::Foreign { .. } | Error::Corruption { .. })
        }),
        (&current, empty, corrupt),
        (manifest, remove, missing),
        (manifest, foreign, |e| {
            matches!(e, Error::Foreign { .. } | Error::Corruption { .. })
        }),
        (&newest, remove, missing),
        (&newest, half, missing),
        (&newest, empty, missing),
        (&newest, foreign, is_foreign),
        (&newest, newer, is_newer),
    ];
    for (i, (path, damage, expected)) in cases.into_iter().enumerate() {
        let image = memory.snapshot();
        damage(&image, path);
        let before = image.paths();
        let error = open_on(&FaultVfs::new(Arc::new(image.clone())), 4)
            .map(|_| ())
            .unwrap_err();
        assert!(expected(&error), "case {i}: {error:?}");
        assert!(error.to_string().contains(path), "case {i}: {error}");
        assert!(
            before
                .iter()
                .all(|path| path.contains("MANIFEST-") || image.paths().contains(path))
        );
    }
    let (store, _) = open_on(&vfs, 5).unwrap();
    match open_on(&vfs, 6).map(|_| ()) {
        Err(Error::Locked { path, .. }) => assert!(path.ends_with("LOCK")),
        other => panic!("{other:?}"),
    }
    drop(store);
}

/// A first open that was cut off leaves free slots, so nothing is lost without them; but their directory may be on
/// a disk that is not mounted.
#[test]
fn a_directory_without_wal_is_refused_and_left_as_it_is() {
    let memory = MemoryVfs::new();
    drop(open_on(&FaultVfs::new(Arc::new(memory.clone())), 1).unwrap());
    let trace = memory.trace();
    let mut free = 0;
    for operation in 0..=memory.operations() {
        let crashed = trace.crash(operation, CrashPolicy::DropUnsynced);
        let kept = |path: &String| !path.contains("/wal/") && !path.ends_with('/');
        let image = MemoryVfs::new();
        image.create_dir_all(Path::new(DIR)).unwrap();
        for path in crashed.paths().into_iter().filter(kept) {
            let bytes = crashed.read(Path::new(&path), 1 << 20).unwrap();
            let file = image.open(Path::new(&path), Access::CreateNew).unwrap();
            file.write_all_at(&bytes, 0).unwrap();
        }
        let opened = open_on(&FaultVfs::new(Arc::new(image.clone())), 2);
        match opened.map(|_| ()) {
            Ok(()) => {}
            Err(Error::Missing { path, .. }) => {
                free += usize::from(path.ends_with("wal"));
                let wal = Path::new(DIR).join("wal");
                assert!(!image.exists(&wal).unwrap(), "after {operation}");
            }
            Err(error) => panic!("after {operation}: {error:?}"),
        }
    }
    assert!(free > 0, "no crash left free slots alone");
}

/// Whichever files are lost, what is left is never taken for a log that holds nothing.
#[test]
fn no_part_of_a_log_is_an_empty_one() {
    let (memory, vfs) = faulty();
    let (store, _) = open_on(&vfs, 1).unwrap();
    let stream = create(&store, "a");
    append(&store, stream, b"kept").unwrap();
    // So much that the close leaves a checkpoint.
    append(&store, stream, &[7; 12_000]).unwrap();
    store.close().unwrap();
    drop(store);
    let names = [
        "IDENTITY",
        "CURRENT",
        "MANIFEST-",
        "WATERMARK",
        "CHECKPOINT",
        "wal/",
    ];
    let prefixes = names.map(|name| format!("{DIR}/{name}"));
    for (name, prefix) in names.iter().zip(&prefixes) {
        let there = |path: &String| path.starts_with(prefix);
        assert!(memory.paths().iter().any(there), "{name}");
    }
    for lost in 0..1_usize << names.len() {
        let image = memory.snapshot();
        let is_lost = |at: usize| lost & (1 << at) != 0;
        for path in image
            .paths()
            .into_iter()
            .filter(|path| !path.ends_with('/'))
        {
            if (0..names.len()).any(|at| is_lost(at) && path.starts_with(&prefixes[at])) {
                image.remove(Path::new(&path)).unwrap();
            }
        }
        let left: Vec<_> = (0..names.len()).filter(|at| !is_lost(*at)).collect();
        match open_on(&FaultVfs::new(Arc::new(image)), 2) {
            // Nothing tells that there was anything.
            Ok((store, _)) if left == [0] => assert_eq!(store.next_llsn(stream).ok(), None),
            Ok((store, _)) => {
                let found = contents(store.view(), stream).unwrap();
                assert_eq!(found.len(), 2, "{left:?}");
            }
            Err(Error::Missing { .. } | Error::Foreign { .. }) => assert!(lost != 0),
            Err(error) => panic!("{left:?}: {error:?}"),
        }
    }
}

/// A free slot holds nothing: whatever became of it, the log goes on.
#[test]
fn a_free_slot_of_another_length_is_made_anew() {
    let (memory, vfs) = faulty();
    let (store, _) = open_on(&vfs, 1).unwrap();
    let stream = create(&store, "a");
    store.provision(3 * (64 << 10)).unwrap();
    store.close().unwrap();
    drop(store);
    let used = |path: &String| memory.read(Path::new(path), 1 << 20).unwrap()[0] != 0;
    for path in memory.paths().iter().filter(|path| path.contains("slot-")) {
        if !used(path) {
            if path.contains("2.wal") {
                memory.remove(Path::new(path)).unwrap();
            } else {
                memory.truncate_file(Path::new(path), 5000).unwrap();
            }
        }
    }
    let (store, _) = open_on(&vfs, 2).unwrap();
    for tag in 1..=30 {
        append(&store, stream, &kept(tag, 9000).value).unwrap();
    }
    drop(store);
    let (store, _) = open_on(&vfs, 3).unwrap();
    assert_eq!(contents(store.view(), stream).unwrap().len(), 30);
}
