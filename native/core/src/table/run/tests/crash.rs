//! Crashes at every operation: a run is there whole or not at all, and never in half under its name.

use super::*;
use crate::vfs::CrashPolicy;

#[test]
fn every_crash_leaves_no_run_or_a_whole_one() {
    let model = some_entries(300);
    let vfs = memory();
    let info = write(&vfs, &model, options(Compression::None, 512)).unwrap();
    let info = info.unwrap();
    vfs.mark(1);
    let trace = vfs.trace();
    let path = Path::new(DIR).join(file_name(ID.number));
    let (mut whole, mut absent, mut temporaries) = (0, 0, 0);
    for (cut, policy, image) in trace.crashes(6) {
        let acknowledged = trace.marks_before(cut).last().is_some();
        let there = image.exists(&path).unwrap();
        assert!(
            there || !acknowledged,
            "cut {cut}, {policy:?}: the run is lost"
        );
        if there {
            let run = open(&image, &info).unwrap();
            assert_eq!(all(&run).unwrap(), model, "cut {cut}, {policy:?}");
            whole += 1;
            continue;
        }
        absent += 1;
        temporaries += image.list(Path::new(DIR)).unwrap().len();
        // Whatever is left does not stand in the way of another attempt.
        let again = write(&image, &model, options(Compression::None, 512)).unwrap();
        assert_eq!(again.as_ref(), Some(&info));
        assert_eq!(all(&open(&image, &info).unwrap()).unwrap(), model);
    }
    assert!(whole > 0 && absent > 0 && temporaries > 0);
}

/// Without the sync of the file, the rename could become durable before the bytes: the trace shows the order.
#[test]
fn the_acknowledged_run_survives_the_loss_of_all_that_was_not_synced() {
    let model = some_entries(100);
    let vfs = memory();
    let info = write(&vfs, &model, RunOptions::default()).unwrap().unwrap();
    let trace = vfs.trace();
    let image = trace.crash(trace.len(), CrashPolicy::DropUnsynced);
    assert_eq!(all(&open(&image, &info).unwrap()).unwrap(), model);
}
