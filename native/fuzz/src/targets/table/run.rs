//! Runs: opening, reading and verifying a whole file, the page inside it, and what the manifest says of it.
//!
//! Accepted means that verifying found nothing wrong. Then lookups agree with a scan, a scan with its reverse, and all
//! that the writer would refuse is absent: writing the entries again gives a run with the same counts.

use std::path::Path;
use std::sync::Arc;

use braidlog_core::codec::Take;
use braidlog_core::error::Error;
use braidlog_core::table::entry::{Direction, Entries, Entry};
use braidlog_core::table::run::{
    Page, Run, RunCache, RunIdentity, RunInfo, RunOptions, RunWriter, file_name,
};
use braidlog_core::vfs::{MemoryVfs, Vfs};

use super::run_make;
use crate::input::Input;
use crate::mutate::{Field, damage, put_u32, u32_at};
use crate::rng::Rng;
use crate::target::{Broken, Target, Verdict, general_bound, hold};

const DIR: &str = "/run";
const INFO: &str = "info";
const RUN: &str = "run";

/// Bytes of the footer.
const FOOTER: usize = 128;

/// The numbers of the footer.
const FIELDS: [Field; 16] = [
    (0, 4),
    (4, 4),
    (40, 8),
    (48, 8),
    (56, 8),
    (64, 8),
    (72, 8),
    (80, 8),
    (88, 8),
    (96, 4),
    (100, 4),
    (104, 4),
    (108, 4),
    (112, 4),
    (116, 4),
    (120, 4),
];

/// The identity that all of them have.
pub const IDENTITY: RunIdentity = RunIdentity {
    node: 1,
    tree: 2,
    number: 3,
};

/// The target.
pub struct Runs;

impl Target for Runs {
    fn name(&self) -> &'static str {
        "run"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        let (info, bytes) = run_make::run(rng);
        Input {
            files: vec![(INFO.into(), info), (RUN.into(), bytes)],
        }
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        let (at, name) = if rng.one_in(8) { (0, INFO) } else { (1, RUN) };
        let Some((_, bytes)) = input.files.get_mut(at) else {
            return;
        };
        let mut fields = Vec::new();
        if at == 1 && bytes.len() >= FOOTER {
            let footer = bytes.len() - FOOTER;
            fields.extend(FIELDS.map(|(at, width)| (footer + at, width)));
            let index = read_u64(bytes, footer + 88).min(bytes.len());
            let columns = [0, 4, 8, 16, 24, 28].map(|column| (8 + index + column, 4));
            fields.extend([(index, 4), (index + 4, 4)]);
            fields.extend(columns);
            fields.extend(columns.map(|(at, width)| (at + 32, width)));
            fields.extend((0..24).map(|column| (8 * column, 4)));
        }
        damage(bytes, &fields, other.file(name).unwrap_or(&[]), rng);
    }

    /// Checksums of pages, index, filter and footer, and what the info says of them; the lengths often too.
    fn reseal(&self, input: &mut Input, rng: &mut Rng) {
        let [(_, info), (_, bytes)] = input.files.as_mut_slice() else {
            return;
        };
        let Some(footer) = bytes.len().checked_sub(FOOTER) else {
            return;
        };
        let index = read_u64(bytes, footer + 88).min(footer);
        let filter = index.saturating_add(u32_at(bytes, footer + 100) as usize);
        let filter = filter.min(footer);
        seal_pages(bytes, index, filter);
        for (at, range) in [(112, index..filter), (116, filter..footer)] {
            let crc = crc32c::crc32c(&bytes[range]);
            put_u32(bytes, footer + at, crc);
        }
        let crc = crc32c::crc32c(&bytes[footer..footer + 124]);
        put_u32(bytes, footer + 124, crc);
        put_u32(info, 16, crc);
        if !rng.one_in(4) {
            let len = bytes.len() as u64;
            if info.len() >= 44 {
                info[8..16].copy_from_slice(&len.to_le_bytes());
                info[20..44].copy_from_slice(&bytes[footer + 48..footer + 72]);
            }
        }
    }

    fn bound(&self, input: &Input) -> usize {
        // Decompressed, and written again.
        general_bound(input) + (64 << 20)
    }

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let (Some(info), Some(bytes)) = (input.file(INFO), input.file(RUN)) else {
            return Ok(Verdict::Refused);
        };
        page(bytes)?;
        let mut take = Take::new(INFO, info);
        let info = match RunInfo::decode(&mut take) {
            Ok(info) => info,
            Err(Error::Malformed { .. }) => return Ok(Verdict::Refused),
            Err(error) => return Err(format!("info refused with {error:?}")),
        };
        let vfs = MemoryVfs::untraced();
        let dir = Path::new(DIR);
        let path = dir.join(file_name(info.number));
        let placed = vfs
            .create_dir_all(dir)
            .and_then(|()| vfs.replace(&path, bytes));
        placed.map_err(|error| format!("cannot place it: {error}"))?;
        let cache = Arc::new(RunCache::new(1 << 16, 8));
        let read = Run::open(Arc::new(vfs), dir, IDENTITY, &info, &cache)
            .and_then(|run| run.verify(&mut |_| {}).map(|_| run));
        match read {
            Ok(run) => agree(&run).map(|()| Verdict::Accepted),
            Err(
                Error::Corruption { .. }
                | Error::Missing { .. }
                | Error::WrongIdentity { .. }
                | Error::Newer { .. }
                | Error::Foreign { .. },
            ) => Ok(Verdict::Refused),
            Err(error) => Err(format!("refused with {error:?}")),
        }
    }
}

fn read_u64(bytes: &[u8], at: usize) -> usize {
    crate::mutate::u64_at(bytes, at) as usize
}

fn seal_pages(bytes: &mut [u8], index: usize, end: usize) {
    let mut page = 0usize;
    let mut entry = index + 8;
    while entry + 32 <= end && page < index {
        let next = page
            .saturating_add(u32_at(bytes, entry) as usize)
            .min(index);
        let crc = crc32c::crc32c(&bytes[page..next]);
        put_u32(bytes, entry + 12, crc);
        (page, entry) = (next, entry + 32);
    }
}

/// Bytes as one page of as many entries as they might have.
fn page(bytes: &[u8]) -> Result<(), Broken> {
    for entries in [0, 1, 2, bytes.len() / 30, usize::MAX] {
        let Ok(page) = Page::decode(bytes.to_vec(), entries) else {
            continue;
        };
        hold(page.len() == entries, || "another number of entries".into())?;
        for at in 0..page.len() {
            let entry = page.entry(at);
            hold(page.seek(entry.key, entry.position) == at, || {
                format!("entry {at} of {entries} is not found")
            })?;
        }
    }
    Ok(())
}

fn agree(run: &Arc<Run>) -> Result<(), Broken> {
    let broken = |error: Error| format!("verified, and yet: {error}");
    let vfs = MemoryVfs::untraced();
    let begun = vfs.create_dir_all(Path::new(DIR)).and_then(|()| {
        RunWriter::create(
            Arc::new(vfs),
            Path::new(DIR),
            IDENTITY,
            RunOptions::default(),
        )
    });
    let mut writer = begun.map_err(broken)?;
    let mut entries = run.entries(None, None, Direction::Forward);
    let mut order = Vec::new();
    while entries.advance().map_err(broken)? {
        let Entry {
            key,
            position,
            payload,
        } = entries.entry();
        writer.push(entries.entry()).map_err(broken)?;
        let found = run.get(key, position).map_err(broken)?;
        let same = found.is_some_and(|found| found.entry() == entries.entry());
        hold(same, || format!("{key:?} at {position} is not found"))?;
        order.push((position, payload.map(<[u8]>::len)));
    }
    let mut reverse = run.entries(None, None, Direction::Reverse);
    while reverse.advance().map_err(broken)? {
        let entry = reverse.entry();
        let expected = order.pop();
        hold(
            expected == Some((entry.position, entry.payload.map(<[u8]>::len))),
            || "the reverse differs".into(),
        )?;
    }
    hold(order.is_empty(), || "the reverse ends too early".into())?;
    let again = writer.finish().map_err(broken)?;
    let info = run.info();
    let again = again.map(|again| RunInfo {
        bytes: info.bytes,
        checksum: info.checksum,
        ..again
    });
    hold(again.as_ref() == Some(info), || {
        format!("{info:?} is written as {again:?}")
    })
}
