//! Full disks and failing devices: the error is told, nothing is left behind, and what may be there is not removed.

use super::*;
use crate::vfs::{Access, Fault, FaultVfs, OpKind, Rule};

fn faulty() -> (MemoryVfs, FaultVfs) {
    let vfs = memory();
    (vfs.clone(), FaultVfs::new(Arc::new(vfs)))
}

#[test]
fn a_full_disk_leaves_nothing_and_the_next_attempt_succeeds() {
    let model = some_entries(3000);
    let (vfs, faults) = faulty();
    let info = write(&vfs, &model, RunOptions::default()).unwrap().unwrap();
    vfs.remove(&Path::new(DIR).join(file_name(7))).unwrap();
    for free in [0, 100, info.bytes / 2, info.bytes - 1] {
        faults.set_free_bytes(Some(free));
        let error = write(&faults, &model, RunOptions::default()).unwrap_err();
        assert!(error.is_disk_full(), "{error}");
        assert_eq!(vfs.list(Path::new(DIR)).unwrap(), Vec::<String>::new());
    }
    faults.set_free_bytes(None);
    let again = write(&faults, &model, RunOptions::default()).unwrap();
    assert_eq!(again, Some(info));
}

#[test]
fn each_failing_operation_is_told() {
    let model = some_entries(300);
    for (kind, left) in [
        (OpKind::Create, vec![]),
        (OpKind::Write, vec![]),
        (OpKind::Sync, vec![]),
        // The rename may have reached the device, so its outcome is for recovery to find out.
        (OpKind::Rename, vec!["000007.run.tmp"]),
        (OpKind::SyncDir, vec!["000007.run"]),
    ] {
        let (vfs, faults) = faulty();
        faults.add(Rule::fail(kind, Fault::Io));
        let error = write(&faults, &model, RunOptions::default()).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{kind:?}: {error}");
        assert_eq!(vfs.list(Path::new(DIR)).unwrap(), left, "{kind:?}");
    }
}

/// A scan that could not read goes on where it was, and leaves nothing out.
#[test]
fn a_scan_can_be_repeated_after_an_error() {
    let model = some_entries(500);
    let (_, faults) = faulty();
    let info = write(&faults, &model, options(Compression::None, 512))
        .unwrap()
        .unwrap();
    let cache = Arc::new(RunCache::default());
    let run = Run::open(faults.arc(), Path::new(DIR), ID, &info, &cache).unwrap();
    let mut found = Vec::new();
    let mut entries = run.entries(None, None, Direction::Forward);
    let mut errors = 0;
    loop {
        if found.len() % 50 == 49 {
            faults.add(Rule::fail(OpKind::Read, Fault::Denied).once());
        }
        match entries.advance() {
            Ok(true) => found.push(owned(entries.entry())),
            Ok(false) => break,
            Err(_) => errors += 1,
        }
    }
    assert!(errors > 2);
    assert_eq!(found, model);
}

/// A device that cannot read the bytes back has lost them.
#[test]
fn bytes_that_cannot_be_read_are_damage() {
    let model = some_entries(500);
    let (_, faults) = faulty();
    let info = write(&faults, &model, options(Compression::None, 512))
        .unwrap()
        .unwrap();
    let run = open(&faults, &info).unwrap();
    faults.add(Rule::fail(OpKind::Read, Fault::Io));
    let error = run.get(&model[400].0, u64::MAX).err().unwrap();
    let place = run.info().bytes;
    assert!(
        matches!(&error, Error::Corruption { offset, .. } if *offset > 0 && *offset < place),
        "{error}"
    );
    assert!(matches!(
        open(&faults, &info),
        Err(Error::Corruption { .. })
    ));
}

#[test]
fn files_are_closed_and_opened_again_as_descriptors_are_needed() {
    let vfs = memory();
    let model = some_entries(200);
    let cache = Arc::new(RunCache::new(0, 8));
    let runs: Vec<Arc<Run>> = (1..=60)
        .map(|number| {
            let identity = RunIdentity { number, ..ID };
            let mut writer = RunWriter::create(
                Arc::new(vfs.clone()),
                Path::new(DIR),
                identity,
                RunOptions::default(),
            )
            .unwrap();
            for entry in &model {
                writer.push(borrowed(entry)).unwrap();
            }
            let info = writer.finish().unwrap().unwrap();
            Run::open(
                Arc::new(vfs.clone()),
                Path::new(DIR),
                identity,
                &info,
                &cache,
            )
            .unwrap()
        })
        .collect();
    for run in runs.iter().chain(&runs) {
        assert_eq!(all(run).unwrap(), model);
    }
    assert!(
        vfs.open(&Path::new(DIR).join(file_name(1)), Access::Read)
            .is_ok()
    );
}
