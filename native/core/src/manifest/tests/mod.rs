//! Tests of the manifest.

#![allow(clippy::unwrap_used)]

mod crash;
mod damage;
mod faults;
mod listing;
mod model;
mod orphans;
mod plain;
mod refusals;

use std::path::Path;
use std::sync::Arc;

use super::{
    Identity, Manifest, OpenReport, Options, Orphans, WalFiles, WalOperation, collect, wal_orphans,
};
use crate::error::{Error, Result};
use crate::vfs::{Access, MemoryVfs, Vfs};

const ID: Identity = Identity {
    object: 7 << 100,
    node: 9 << 64,
};
const DIR: &str = "/node";

/// An empty directory.
fn memory() -> Arc<dyn Vfs> {
    let vfs = MemoryVfs::untraced();
    vfs.create_dir_all(Path::new(DIR)).unwrap();
    Arc::new(vfs)
}

fn create(vfs: &Arc<dyn Vfs>) -> Manifest<WalFiles> {
    Manifest::create(vfs.clone(), Path::new(DIR), ID, Options::default()).unwrap()
}

fn open(vfs: &Arc<dyn Vfs>) -> Result<(Manifest<WalFiles>, OpenReport)> {
    Manifest::open(vfs.clone(), Path::new(DIR), ID, Options::default())
}

fn read(vfs: &Arc<dyn Vfs>, name: &str) -> Vec<u8> {
    vfs.read(&Path::new(DIR).join(name), 1 << 30).unwrap()
}

/// Find and collect the orphans.
fn collect_wal_orphans(manifest: &Manifest<WalFiles>) -> Result<Orphans> {
    let orphans = wal_orphans(manifest, &[].into())?;
    collect(manifest.vfs(), manifest.dir(), &orphans.files)?;
    Ok(orphans)
}

/// Replace a file's bytes behind the manifest's back.
fn overwrite(vfs: &Arc<dyn Vfs>, name: &str, bytes: &[u8]) {
    let path = Path::new(DIR).join(name);
    vfs.create_dir_all(path.parent().unwrap()).unwrap();
    if vfs.exists(&path).unwrap() {
        vfs.remove(&path).unwrap();
    }
    vfs.open(&path, Access::CreateNew)
        .unwrap()
        .write_all_at(bytes, 0)
        .unwrap();
}

fn add(slot: u32) -> WalOperation {
    WalOperation::AddSlot {
        slot,
        bytes: 1 << 20,
    }
}

fn segment(number: u64, slot: u32) -> WalOperation {
    WalOperation::OpenSegment {
        number,
        slot,
        salt: number ^ 0xdead,
    }
}

fn seal(number: u64) -> WalOperation {
    WalOperation::SealSegment {
        number,
        sealed_bytes: number,
        side_bytes: 0,
        side_crc: 0,
    }
}

/// Edits that add, open, seal, drop and remove, as a log does that goes around in a few slots.
fn workload() -> Vec<Vec<WalOperation>> {
    let mut edits = vec![vec![add(1), add(2)], vec![segment(1, 1)]];
    for number in 2..=30 {
        let slot = |number: u64| (number - 1) as u32 % 4 + 1;
        edits.push(match number {
            2 => vec![add(3), add(4), seal(1), segment(2, 2)],
            5.. => vec![WalOperation::DropSegment { number: number - 4 }],
            _ => vec![
                add(number as u32 + 2),
                WalOperation::RemoveSlot {
                    slot: number as u32 + 2,
                },
            ],
        });
        if number > 2 {
            edits.push(vec![seal(number - 1), segment(number, slot(number))]);
        }
    }
    edits
}
