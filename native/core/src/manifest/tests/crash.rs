//! Crashes at every operation, under every policy of what an unsynced write may leave behind.
//!
//! Scenarios 34 (loss of the unsynced tail), 23 (between a durable edit and the removals behind
//! it) and 41 (every sync boundary), as far as the manifest itself is concerned.

use super::*;
use crate::vfs::CrashPolicy;

const TINY: Options = Options {
    rotate_bytes: 1 << 20,
    rotate_edits: 7,
    snapshot_edit_bytes: 60,
};

fn open_tiny(vfs: &MemoryVfs) -> Result<(Manifest<WalFiles>, OpenReport)> {
    Manifest::open(Arc::new(vfs.clone()), Path::new(DIR), ID, TINY)
}

/// The version and the last edit number after each commit; entry 0 is the creation.
type History = Vec<(WalFiles, u64)>;

/// Run the workload with a reopening in the middle. Mark `k` says that `k` commits were
/// acknowledged.
fn record(vfs: &MemoryVfs) -> History {
    let mut manifest =
        Manifest::<WalFiles>::create(Arc::new(vfs.clone()), Path::new(DIR), ID, TINY).unwrap();
    let mut history = vec![(WalFiles::default(), manifest.next_edit() - 1)];
    vfs.mark(0);
    for (done, edit) in workload().iter().enumerate() {
        if done == 33 {
            manifest = open_tiny(vfs).unwrap().0;
        }
        if done == 50 {
            manifest.close().unwrap();
            manifest = open_tiny(vfs).unwrap().0;
        }
        let number = manifest.commit(edit).unwrap();
        vfs.mark(done as u64 + 1);
        history.push((WalFiles::clone(manifest.version()), number));
    }
    manifest.close().unwrap();
    history
}

/// Open what the crash left; the index in the history of what is found.
fn check(image: &MemoryVfs, history: &History, acknowledged: Option<usize>) -> Option<usize> {
    let opened = open_tiny(image);
    let (mut manifest, report) = match (opened, acknowledged) {
        (Ok(opened), _) => opened,
        // The creation did not finish, and can be repeated.
        (Err(Error::NotFound { .. } | Error::Missing { .. }), None) => {
            let vfs = Arc::new(image.clone());
            let created = Manifest::<WalFiles>::create(vfs, Path::new(DIR), ID, TINY);
            created.unwrap().commit(&[add(1)]).unwrap();
            assert_eq!(open_tiny(image).unwrap().0.version().slots().len(), 1);
            return None;
        }
        (Err(error), _) => panic!("{error}"),
    };
    let found = history
        .iter()
        .position(|(version, _)| version == manifest.version().as_ref());
    let found = found.expect("a version that never was");
    assert!(
        acknowledged.is_none_or(|least| found >= least),
        "an acknowledged edit is lost"
    );
    assert!(
        found <= acknowledged.map_or(0, |least| least + 1),
        "an edit from nowhere"
    );
    // Numbers are consecutive: only snapshots and closes lie between two commits.
    assert!(report.last_edit >= history[found].1);
    if let Some((_, next)) = history.get(found + 1) {
        assert!(report.last_edit < *next);
    }
    let slot = manifest.version().next_slot();
    let number = manifest.commit(&[add(slot)]).unwrap();
    assert!(number > report.last_edit + 1, "the snapshot took a number");
    let after = manifest.version().clone();
    let (manifest, report) = open_tiny(image).unwrap();
    assert_eq!((manifest.version(), report.last_edit), (&after, number));
    assert_eq!(report.dropped, None);
    let names = image.list(Path::new(DIR)).unwrap();
    assert_eq!(names.len(), 2, "{names:?}");
    Some(found)
}

#[test]
fn every_crash_leaves_a_prefix_with_all_acknowledged_edits() {
    let vfs = MemoryVfs::new();
    vfs.create_dir_all(Path::new(DIR)).unwrap();
    vfs.settle();
    let history = record(&vfs);
    assert!(history.len() >= 55);
    let trace = vfs.trace();
    let mut newer = 0;
    for (cut, policy, image) in trace.crashes(6) {
        let acknowledged = trace.marks_before(cut).last().map(|mark| mark as usize);
        let follower =
            Manifest::<WalFiles>::open_read_only(Arc::new(image.clone()), Path::new(DIR), ID);
        let seen = follower.ok().map(|follower| follower.version().clone());
        let found = check(&image, &history, acknowledged);
        newer += usize::from(found > acknowledged);
        if let (Some(seen), Some(found)) = (seen, found) {
            assert_eq!(
                *seen, history[found].0,
                "cut {cut}, {policy:?}: the follower differs"
            );
        }
    }
    assert!(newer > 0, "no crash kept an edit that was not acknowledged");
}

/// Clean-up and recovery are repeatable: a crash during the open after a crash changes nothing.
#[test]
fn crashes_during_recovery() {
    let vfs = MemoryVfs::new();
    vfs.create_dir_all(Path::new(DIR)).unwrap();
    vfs.settle();
    let history = record(&vfs);
    let trace = vfs.trace();
    for cut in (0..=trace.len()).step_by(5) {
        let Some(acknowledged) = trace.marks_before(cut).last() else {
            continue;
        };
        let image = trace.crash(cut, CrashPolicy::Torn { seed: cut as u64 });
        let Ok((manifest, _)) = open_tiny(&image) else {
            panic!("cut {cut}")
        };
        let found = manifest.version().clone();
        assert!(
            history[acknowledged as usize..]
                .iter()
                .any(|(version, _)| *version == *found)
        );
        let recovery = image.trace();
        for (_, policy, again) in recovery.crashes(2) {
            let (manifest, _) = open_tiny(&again).unwrap();
            assert_eq!(manifest.version(), &found, "cut {cut}, {policy:?}");
        }
    }
}
