//! Each rule does what it says, to the operations it names and to no others.

use std::io::ErrorKind;

use super::super::{AlignedBuf, MemoryVfs};
use super::*;

fn path(name: &str) -> &Path {
    Path::new(name)
}

fn faulty() -> FaultVfs {
    FaultVfs::new(Arc::new(MemoryVfs::untraced()))
}

fn create(vfs: &FaultVfs, name: &str) -> Arc<dyn VfsFile> {
    vfs.open(path(name), Access::CreateNew).unwrap()
}

#[track_caller]
fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Err(Error::Io { source, .. }) => source.kind(),
        _ => panic!("should have failed with an operating-system error"),
    }
}

#[test]
fn the_nth_operation_fails_once() {
    let vfs = faulty();
    let file = create(&vfs, "/f");
    vfs.add(Rule::fail(OpKind::Sync, Fault::Io).after(2).once());
    let results: Vec<bool> = (0..5).map(|_| file.sync().is_ok()).collect();
    assert_eq!(results, [true, true, false, true, true]);
    assert_eq!(vfs.count(OpKind::Sync), 5);
    vfs.reset_counts();
    assert_eq!(vfs.count(OpKind::Sync), 0);
}

#[test]
fn a_lasting_fault_ends_when_its_rule_is_removed() {
    let vfs = faulty();
    let file = create(&vfs, "/f");
    vfs.add(Rule::fail(OpKind::Write, Fault::ReadOnly).after(1));
    file.write_all_at(b"a", 0).unwrap();
    for _ in 0..3 {
        assert_eq!(
            kind(file.write_all_at(b"b", 0)),
            ErrorKind::ReadOnlyFilesystem
        );
    }
    assert_eq!(vfs.read(path("/f"), 9).unwrap(), b"a");
    vfs.clear();
    file.write_all_at(b"c", 0).unwrap();
}

#[test]
fn a_rule_keeps_to_its_kind_and_path() {
    let vfs = faulty();
    let (hit, spared) = (create(&vfs, "/a.wal"), create(&vfs, "/b"));
    vfs.add(Rule::fail(OpKind::Write, Fault::Denied).on(".wal"));
    spared.write_all_at(b"x", 0).unwrap();
    hit.sync().unwrap();
    assert_eq!(kind(hit.write_all_at(b"x", 0)), ErrorKind::PermissionDenied);
    let message = hit.write_all_at(b"x", 0).unwrap_err().to_string();
    assert!(message.starts_with("cannot write /a.wal: "), "{message}");
}

#[test]
fn every_kind_can_fail() {
    let check = |rule_kind: OpKind, act: &dyn Fn(&FaultVfs) -> Result<()>| {
        let vfs = faulty();
        create(&vfs, "/f").write_all_at(&[1; 8192], 0).unwrap();
        vfs.reset_counts();
        act(&vfs).unwrap_or_else(|error| panic!("{rule_kind:?} without rule: {error}"));
        assert_eq!(vfs.count(rule_kind), 1, "{rule_kind:?}");
        let vfs = faulty();
        create(&vfs, "/f").write_all_at(&[1; 8192], 0).unwrap();
        vfs.add(Rule::fail(rule_kind, Fault::NoSpace));
        assert_eq!(kind(act(&vfs)), ErrorKind::StorageFull, "{rule_kind:?}");
    };
    let open = |vfs: &FaultVfs| vfs.open(path("/f"), Access::Write);
    let block = AlignedBuf::zeroed(4096);
    check(OpKind::Open, &|vfs| open(vfs).map(drop));
    check(OpKind::Open, &|vfs| {
        vfs.open_durable(path("/f"), SyncMethod::Dsync).map(drop)
    });
    check(OpKind::Create, &|vfs| {
        vfs.open(path("/g"), Access::CreateNew).map(drop)
    });
    check(OpKind::Create, &|vfs| vfs.create_zeroed(path("/g"), 9));
    check(OpKind::CreateDir, &|vfs| vfs.create_dir_all(path("/d")));
    check(OpKind::Read, &|vfs| vfs.read(path("/f"), 9000).map(drop));
    check(OpKind::Read, &|vfs| open(vfs)?.read_exact_at(&mut [0], 0));
    check(OpKind::Write, &|vfs| open(vfs)?.write_all_at(b"x", 0));
    check(OpKind::WriteDurable, &|vfs| {
        open(vfs)?.write_durable_at(&block, 0)
    });
    check(OpKind::Sync, &|vfs| open(vfs)?.sync());
    check(OpKind::Rename, &|vfs| vfs.rename(path("/f"), path("/g")));
    check(OpKind::Remove, &|vfs| vfs.remove(path("/f")));
    check(OpKind::SyncDir, &|vfs| vfs.sync_dir(path("/")));
    check(OpKind::List, &|vfs| vfs.list(path("/")).map(drop));
    check(OpKind::Lock, &|vfs| vfs.lock(path("/LOCK"), "").map(drop));
}

#[test]
fn a_failed_write_may_have_landed() {
    let vfs = faulty();
    let mut data = AlignedBuf::new(0);
    data.extend_from_slice(&[7; 8192]);
    for (landed, bytes) in [
        (Landed::Nothing, 0),
        (Landed::Prefix(700), 700),
        (Landed::All, 8192),
    ] {
        for kind in [OpKind::Write, OpKind::WriteDurable] {
            vfs.clear();
            vfs.add(Rule::fail(kind, Fault::Io).landing(landed));
            let name = format!("/{landed:?}-{kind:?}");
            let file = create(&vfs, &name);
            let result = match kind {
                OpKind::Write => file.write_all_at(&data, 0),
                _ => file.write_durable_at(&data, 0),
            };
            assert!(result.is_err());
            assert_eq!(
                vfs.read(path(&name), 1 << 20).unwrap(),
                vec![7; bytes],
                "{name}"
            );
        }
    }
}

#[test]
fn a_failed_rename_may_have_happened() {
    let vfs = faulty();
    create(&vfs, "/a");
    vfs.add(
        Rule::fail(OpKind::Rename, Fault::Io)
            .landing(Landed::All)
            .once(),
    );
    assert!(vfs.rename(path("/a"), path("/b")).is_err());
    assert_eq!(vfs.list(path("/")).unwrap(), ["b"]);
}

#[test]
fn replacing_a_file_meets_the_rules_of_its_steps() {
    for kind in [OpKind::Create, OpKind::Write, OpKind::Sync, OpKind::Rename] {
        let vfs = faulty();
        vfs.replace(path("/f"), b"old").unwrap();
        vfs.add(Rule::fail(kind, Fault::Io).once());
        assert!(vfs.replace(path("/f"), b"new").is_err(), "{kind:?}");
        assert_eq!(vfs.read(path("/f"), 9).unwrap(), b"old", "{kind:?}");
        vfs.replace(path("/f"), b"new").unwrap();
    }
}

#[test]
fn space_runs_out_and_comes_back() {
    let vfs = faulty();
    vfs.set_free_bytes(Some(10_000));
    vfs.create_zeroed(path("/a"), 6000).unwrap();
    assert_eq!(
        kind(vfs.create_zeroed(path("/b"), 4001)),
        ErrorKind::StorageFull
    );
    assert!(!vfs.exists(path("/b")).unwrap());
    let file = vfs.open(path("/a"), Access::Write).unwrap();
    file.write_all_at(&[1; 6000], 0).unwrap();
    file.write_all_at(&[1; 1000], 5500).unwrap();
    assert_eq!(vfs.free_bytes(), Some(3500));
    assert_eq!(
        kind(file.write_all_at(&[1; 1000], 9001)),
        ErrorKind::StorageFull
    );
    assert_eq!(file.len().unwrap(), 6500);
    create(&vfs, "/c").write_all_at(&[1; 500], 0).unwrap();
    vfs.rename(path("/c"), path("/a")).unwrap();
    assert_eq!(vfs.free_bytes(), Some(9500));
    vfs.remove(path("/a")).unwrap();
    assert_eq!(vfs.free_bytes(), Some(10_000));
    vfs.set_free_bytes(None);
    vfs.create_zeroed(path("/b"), 1 << 20).unwrap();
}

#[test]
fn a_hanging_operation_waits_for_its_gate_and_blocks_no_other() {
    let vfs = faulty();
    let (slow, quick) = (create(&vfs, "/slow"), create(&vfs, "/quick"));
    let gate = Gate::new();
    vfs.add(Rule::hang(OpKind::Write, &gate).on("slow"));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| slow.write_all_at(b"late", 0));
        gate.wait_for(1);
        assert_eq!(gate.waiting(), 1);
        quick.write_all_at(b"now", 0).unwrap();
        assert!(slow.is_empty().unwrap() && !writer.is_finished());
        gate.open();
        writer.join().unwrap().unwrap();
    });
    assert_eq!((gate.waiting(), slow.len().unwrap()), (0, 4));
    slow.write_all_at(b"open gates stop nobody", 0).unwrap();
}

#[test]
fn an_operation_may_hang_and_then_fail() {
    let vfs = faulty();
    let file = create(&vfs, "/f");
    let gate = Gate::new();
    vfs.add(Rule::hang(OpKind::Sync, &gate));
    vfs.add(Rule::fail(OpKind::Sync, Fault::Io));
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| file.sync());
        gate.wait_for(1);
        gate.open();
        assert!(sync.join().unwrap().is_err());
    });
}

#[test]
fn the_first_failing_rule_decides() {
    let vfs = faulty();
    let file = create(&vfs, "/f");
    vfs.add(Rule::fail(OpKind::Sync, Fault::Denied).after(1));
    vfs.add(Rule::fail(OpKind::Sync, Fault::NoSpace));
    assert_eq!(kind(file.sync()), ErrorKind::StorageFull);
    assert_eq!(kind(file.sync()), ErrorKind::PermissionDenied);
}
