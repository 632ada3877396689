//! Valid manifest directories with random parameters, and directories in memory in general.

use std::path::Path;
use std::sync::Arc;

use braidlog_core::error::Result;
use braidlog_core::limits::MANIFEST_ROTATE_BYTES;
use braidlog_core::manifest::{Identity, Manifest, Options, Version, WalFiles, WalOperation};
use braidlog_core::vfs::{Access, MemoryVfs, Vfs};

use crate::input::Input;
use crate::rng::Rng;

/// Where a directory under test lives.
pub const DIR: &str = "/data";

/// A file system with the files of an input under [`DIR`].
pub fn mount(input: &Input) -> Result<MemoryVfs> {
    let vfs = MemoryVfs::untraced();
    vfs.create_dir_all(Path::new(DIR))?;
    for (name, bytes) in &input.files {
        let path = Path::new(DIR).join(name);
        if let Some(parent) = path.parent() {
            vfs.create_dir_all(parent)?;
        }
        // A name given twice keeps its last content.
        let _ = vfs.remove(&path);
        vfs.open(&path, Access::CreateNew)?.write_all_at(bytes, 0)?;
    }
    Ok(vfs)
}

/// The files under [`DIR`] as an input, but for those that only a running process needs.
pub fn unmount(vfs: &MemoryVfs) -> Result<Input> {
    let prefix = format!("{DIR}/");
    let mut input = Input::default();
    for path in vfs.paths() {
        let Some(name) = path.strip_prefix(&prefix) else {
            continue;
        };
        if name.is_empty() || name.ends_with('/') || name == "LOCK" {
            continue;
        }
        let bytes = vfs.read(Path::new(&path), u64::from(u32::MAX))?;
        input.files.push((name.to_owned(), bytes));
    }
    Ok(input)
}

/// A manifest after random commits.
pub fn manifest(rng: &mut Rng) -> Result<Input> {
    let vfs = mount(&Input::default())?;
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let options = Options {
        rotate_bytes: MANIFEST_ROTATE_BYTES,
        rotate_edits: rng.within(4..=40) as u64,
        snapshot_edit_bytes: rng.within(30..=600),
    };
    let mut open = Manifest::create(shared, Path::new(DIR), identity(), options)?;
    for _ in 0..rng.below(40) {
        let operations = operations(open.version(), rng);
        if !operations.is_empty() {
            open.commit(&operations)?;
        }
    }
    if rng.one_in(3) {
        open.close()?;
    }
    unmount(&vfs)
}

/// Whose manifest it is.
pub fn identity() -> Identity {
    Identity {
        object: 0x1234_5678_9abc_def0,
        node: 0xfeed_beef,
    }
}

/// An edit that applies.
fn operations(version: &WalFiles, rng: &mut Rng) -> Vec<WalOperation> {
    let mut edit = Vec::new();
    for _ in 0..rng.within(1..=3) {
        let operation = operation(version, rng);
        let mut with = edit.clone();
        with.extend(operation);
        let context = braidlog_core::manifest::Context {
            edit: 1,
            snapshot: false,
        };
        if WalFiles::clone(version).apply(context, &with).is_ok() {
            edit = with;
        }
    }
    edit
}

fn operation(version: &WalFiles, rng: &mut Rng) -> Option<WalOperation> {
    let free: Vec<u32> = version.free_slots().collect();
    Some(match rng.below(9) {
        0 => WalOperation::AddSlot {
            slot: version.next_slot() + rng.below(2) as u32,
            bytes: 1 << 16,
        },
        1 if rng.one_in(3) => WalOperation::RemoveSlot {
            slot: *free.first()?,
        },
        2 | 3 => WalOperation::OpenSegment {
            number: version.next_segment(),
            slot: *free.last()?,
            salt: rng.u64(),
        },
        4 => WalOperation::SealSegment {
            number: version.active()?.number,
            sealed_bytes: rng.below(1 << 16) as u64,
            side_bytes: rng.u32(),
            side_crc: rng.u32(),
        },
        5 => WalOperation::SetBound {
            bytes: rng.u64() >> rng.below(64),
        },
        6 => WalOperation::FillSlot {
            slot: *free.first()?,
            bytes: rng.below(1 << 16) as u64 + 1,
        },
        7 => WalOperation::AllowNulls,
        _ => {
            let numbers: Vec<u64> = version.segments().map(|segment| segment.number).collect();
            let number = *numbers.get(rng.below(numbers.len()))?;
            WalOperation::DropSegment { number }
        }
    })
}
