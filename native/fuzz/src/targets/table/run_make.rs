//! Valid runs with random parameters.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use braidlog_core::batch::Compression;
use braidlog_core::error::Result;
use braidlog_core::table::entry::Entry;
use braidlog_core::table::run::{RunOptions, RunWriter, file_name};
use braidlog_core::vfs::{MemoryVfs, Vfs};

use super::run::IDENTITY;
use crate::rng::Rng;

/// What the manifest says of a run, and its file.
pub fn run(rng: &mut Rng) -> (Vec<u8>, Vec<u8>) {
    let options = RunOptions {
        compression: *rng.pick(&[Compression::None, Compression::Zstd, Compression::Lz4]),
        page_bytes: *rng.pick(&[1, 100, 1000, 8192]),
        filter_bits_per_key: *rng.pick(&[0, 1, 10, 40]),
    };
    let mut entries = BTreeMap::new();
    for _ in 0..rng.within(1..=60) {
        let len = rng.below(12);
        let key = rng.bytes(len);
        let len = if rng.one_in(10) {
            rng.below(3000)
        } else {
            rng.below(40)
        };
        let payload = (!rng.one_in(4)).then(|| rng.bytes(len));
        entries.insert((key, Reverse(rng.below(30) as u64)), payload);
    }
    // The disk is memory and the entries are in order, so nothing fails; what would is refused by every check.
    write(&entries, options).unwrap_or_default()
}

type Entries = BTreeMap<(Vec<u8>, Reverse<u64>), Option<Vec<u8>>>;

fn write(entries: &Entries, options: RunOptions) -> Result<(Vec<u8>, Vec<u8>)> {
    let (vfs, dir) = (MemoryVfs::untraced(), Path::new("/run"));
    vfs.create_dir_all(dir)?;
    let mut writer = RunWriter::create(Arc::new(vfs.clone()), dir, IDENTITY, options)?;
    for ((key, Reverse(position)), payload) in entries {
        writer.push(Entry {
            key,
            position: *position,
            payload: payload.as_deref(),
        })?;
    }
    let mut info = Vec::new();
    if let Some(written) = writer.finish()? {
        written.encode(&mut info);
    }
    let bytes = vfs.read(&dir.join(file_name(IDENTITY.number)), 1 << 30)?;
    Ok((info, bytes))
}
