//! Null values: stored, read, moved and saved, and never in a directory that does not say that there may be some.

use super::super::replica::batches::Verified;
use super::driver::with_columns;
use super::salvage::{open_copy, rescue};
use super::verify::disk;
use super::*;
use crate::batch::{BatchBuilder, Bitmap, Compression, OwnedRecord};
use crate::manifest::{Identity, Manifest, WalFiles};
use crate::vfs::CrashPolicy;
use crate::wal::NodeIdentity;
use crate::wal::tools::salvage::Keep;

/// Whether the manifest of a directory says that there may be null values.
fn declared(vfs: &MemoryVfs, dir: &str) -> bool {
    let dir = Path::new(dir);
    let Ok(Some(identity)) = NodeIdentity::read(vfs, dir) else {
        return false;
    };
    let who = Identity {
        object: identity.wal,
        node: identity.node,
    };
    let found = Manifest::<WalFiles>::open_read_only(disk(vfs), dir, who);
    found.is_ok_and(|follower| follower.version().nulls())
}

fn null<'a>(headers: &'a [(&'a str, Option<&'a [u8]>)]) -> NewRecord<'a> {
    NewRecord {
        value: None,
        key: Some(b"k"),
        timestamp: 7,
        headers,
    }
}

fn nulls_of(store: &Store, stream: u32) -> Vec<bool> {
    let stream = store.view().stream(stream).unwrap();
    let range = stream.range();
    let read = |llsn| store.view().get(&stream, llsn).unwrap();
    (range.first..range.end)
        .map(|llsn| read(llsn).value.is_none())
        .collect()
}

/// Name, append, and whether it appends a null.
type Way<'a> = (&'a str, &'a dyn Fn(&Store, u32), bool);

#[test]
fn each_way_to_append_declares_nulls_and_nothing_else_does() {
    let encoded = |value: Option<&[u8]>| {
        let mut builder = BatchBuilder::new();
        builder.push(value, None, 7, &[]).unwrap();
        let mut out = Vec::new();
        builder.encode_into(Compression::None, &mut out).unwrap();
        out
    };
    let one_null = |bits: &'static [u8], store: &Store, stream| {
        with_columns(&[super::driver::kept(1, 10)], |columns| {
            let mut columns = *columns;
            columns.values.validity = Some(Bitmap {
                bytes: bits,
                offset: 0,
            });
            store.append_columns(stream, &columns, 0..1, 1000, None)
        })
    };
    let ways: [Way<'_>; 8] = [
        ("value", &|s, n| _ = append(s, n, b"").unwrap(), false),
        (
            "null",
            &|s, n| _ = s.append(n, null(&[]), None).unwrap(),
            true,
        ),
        (
            "header",
            &|s, n| {
                let headers = [("h", None)];
                let record = NewRecord {
                    headers: &headers,
                    ..record(b"v")
                };
                _ = s.append(n, record, None).unwrap();
            },
            true,
        ),
        ("column", &|s, n| _ = one_null(&[0], s, n).unwrap(), true),
        (
            "whole column",
            &|s, n| _ = one_null(&[1], s, n).unwrap(),
            false,
        ),
        (
            "encoded",
            &|s, n| _ = s.append_encoded(n, 0, 1, &encoded(None)).unwrap(),
            true,
        ),
        (
            "replica",
            &|s, n| {
                let batch = encoded(None);
                let batch = [Verified::check(&batch).unwrap()];
                _ = s.append_batches(n, 0, &batch).unwrap();
            },
            true,
        ),
        (
            "reserve",
            &|s, n| {
                let batch = encoded(Some(b"v"));
                let batch = [Verified::check(&batch).unwrap()];
                s.place_reserved(n, 0, 1, &batch).unwrap();
            },
            false,
        ),
    ];
    for (name, way, nulls) in ways {
        let vfs = MemoryVfs::new();
        let (store, _) = open_at(&vfs).unwrap();
        let stream = create(&store, "a");
        way(&store, stream);
        assert_eq!(declared(&vfs, DIR), nulls, "{name}");
        store.sync().unwrap();
        assert_eq!(
            nulls_of(&store, stream),
            [nulls && name != "header"],
            "{name}"
        );
        store.close().unwrap();
        let (store, _) = open_at(&vfs).unwrap();
        assert_eq!(declared(&vfs, DIR), nulls, "{name}, opened again");
        assert_eq!(nulls_of(&store, stream).len(), 1);
    }
}

/// Earlier builds take a batch that they do not know for a torn write and cut it. So the manifest must say first
/// that there may be some, whatever is left of the writes that were under way.
#[test]
fn no_crash_leaves_a_null_in_a_directory_that_does_not_declare_it() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_at(&vfs).unwrap();
    let stream = create(&store, "a");
    append(&store, stream, b"before").unwrap();
    store.close().unwrap();
    drop(store);
    // Opened after an orderly close: the manifest begins a new file with the first change.
    let (store, _) = open_at(&vfs).unwrap();
    append(&store, stream, b"still").unwrap();
    let ticket = store
        .append(stream, null(&[("h", None), ("i", Some(b""))]), None)
        .unwrap();
    store.wait(ticket.group).unwrap();
    vfs.mark(1);
    append(&store, stream, b"after").unwrap();
    let trace = vfs.trace();
    let (mut with, mut without) = (0, 0);
    for cut in 0..=trace.len() {
        for policy in CrashPolicy::all(seeds()) {
            let image = trace.crash(cut, policy);
            let said = declared(&image, DIR);
            let (store, _) = open_at(&image).unwrap();
            if store.with_state(|state| state.streams.is_empty()) {
                continue;
            }
            let found = nulls_of(&store, stream);
            let stored = found.get(2).copied().unwrap_or(false);
            assert!(said || !stored, "cut {cut} {policy:?}");
            assert!(
                stored || trace.marks_before(cut).last().is_none(),
                "cut {cut} {policy:?}: an acknowledged null is lost"
            );
            with += u32::from(stored);
            without += u32::from(!said);
        }
    }
    assert!(with > 0 && without > 0, "{with} {without}");
}

#[test]
fn nulls_survive_the_cleaner_a_repair_without_manifest_and_compression() {
    for compression in [Compression::None, Compression::Zstd] {
        let vfs = MemoryVfs::new();
        let (store, _) = open_at(&vfs).unwrap();
        let (rare, busy) = (create(&store, "a"), create(&store, "b"));
        store.set_compression(rare, compression);
        let headers = [("h", None), ("i", Some(&b"text"[..]))];
        for round in 0..40 {
            let ticket = match round % 3 {
                0 => store.append(rare, null(&headers), None),
                1 => store.append(rare, record(b""), None),
                _ => store.append(rare, record(b"value"), None),
            };
            store.wait(ticket.unwrap().group).unwrap();
            append(&store, busy, &[7; 9000]).unwrap();
        }
        let expected: Vec<bool> = (0..40).map(|round| round % 3 == 0).collect();
        assert_eq!(nulls_of(&store, rare), expected);
        let end = store.view().stream(busy).unwrap().range().end;
        store.trim(busy, end).unwrap();
        assert!(store.clean(64, 1.0).unwrap().moved_bytes > 0);
        assert_eq!(nulls_of(&store, rare), expected);
        let (log, stream) = (store.view(), store.view().stream(rare).unwrap());
        let OwnedRecord { headers, .. } = log.get(&stream, 1).unwrap();
        let kept = vec![("h".into(), None), ("i".into(), Some(b"text".to_vec()))];
        assert_eq!(headers, kept);
        store.close().unwrap();
        drop(store);
        vfs.remove(&Path::new(DIR).join("CURRENT")).unwrap();
        rescue(&vfs, Keep::Newest).unwrap();
        assert!(declared(&vfs, "/copy"));
        assert_eq!(nulls_of(&open_copy(&vfs), rare), expected);
    }
}
