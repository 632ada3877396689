//! One flipped bit anywhere: the right content, or an error that names the file. Never other content,
//! never a panic, never less than was acknowledged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::driver::{Driver, open_with};
use super::oracle::History;
use super::{DIR, options, seeds};
use crate::batch::Compression;
use crate::error::Error;
use crate::index::StreamIndex;
use crate::vfs::{Access, MemoryVfs, Vfs};
use crate::wal::tools::inspect::lost_side;
use crate::wal::{CHECKPOINT, Follower, Options, Seed, View, parse_frame};

/// A log with sealed segments, copies, cuts and compressed batches, small enough to read often.
fn log(closed: bool) -> (MemoryVfs, History) {
    let mut driver = Driver::new(options());
    let (plain, slow) = (driver.create("plain", false), driver.create("slow", false));
    let ordered = driver.create("ordered", true);
    for round in 0..9 {
        driver.push(slow, 60).unwrap();
        driver.produce(plain, 3, 500).unwrap();
        driver.push(ordered, 900).unwrap();
        driver.push(ordered, 900).unwrap();
        driver.commit(ordered, 1);
        driver.sync();
        driver.columns(plain, &[5000; 5], 9000).unwrap();
        driver.set_cursor(slow, "c", round + 1);
        driver.sync();
        if round == 4 {
            let next = driver.history.get(plain).next();
            driver.trim(plain, next - 3);
            driver.clean(1);
            driver.compress(plain, Compression::Zstd);
            driver.roll_back(ordered, driver.history.get(ordered).committed + 1);
            driver.raise_epoch(ordered, 1);
        }
    }
    let low = driver.history.get(plain).next() - 12;
    driver.trim(plain, low);
    for i in 0..12 {
        driver
            .push(if i % 3 == 0 { slow } else { plain }, 70 * (i + 1))
            .unwrap();
        driver.commit(ordered, u64::from(i == 5));
        driver.sync();
    }
    if closed {
        driver.reopen();
        driver.store.close().unwrap();
    }
    (driver.vfs.snapshot(), driver.history)
}

/// Everything read in every way: exactly right, or the error.
fn read_all(view: &View, history: &History, context: &str) -> Result<(), Error> {
    for number in history.live() {
        let expected = history.get(number);
        let stream = view.stream(number)?;
        let range = stream.range();
        let promised = (expected.low, expected.committed, expected.next());
        assert_eq!(
            (range.first, range.end, range.durable),
            promised,
            "{context}"
        );
        let found = super::values_of(view, &stream, range.first, 1 << 20)?;
        super::oracle::assert_same(&found, &expected.readable(), context);
        for (llsn, value) in expected.readable().into_iter().step_by(5) {
            assert!(
                view.get(&stream, llsn)?.value.as_deref() == Some(value),
                "{context}: {llsn}"
            );
        }
        assert_eq!(view.find(&stream, 990)?, expected.find(990), "{context}");
    }
    Ok(())
}

/// Whether everything was served. An error must be typed and name a file of the directory.
fn survives(image: &MemoryVfs, options: &Options, history: &History, context: &str) -> bool {
    let served = Follower::open(std::sync::Arc::new(image.clone()), Path::new(DIR), options)
        .and_then(|follower| read_all(follower.view(), history, &format!("{context}, follower")));
    let opened = open_with(image, options, 99)
        .and_then(|(store, _)| read_all(store.view(), history, context));
    for result in [&served, &opened] {
        match result {
            Ok(())
            | Err(
                Error::Corruption { path: _, .. }
                | Error::Foreign { path: _, .. }
                | Error::Newer { path: _, .. }
                | Error::WrongIdentity { path: _, .. }
                | Error::Missing { path: _, .. },
            ) => {}
            Err(error) => panic!("{context}: {error:?}"),
        }
        if let Err(error) = result {
            assert!(error.to_string().contains(DIR), "{context}: {error}");
        }
    }
    opened.is_ok()
}

/// Flip bits of a file, and count after how many everything was served all the same.
fn flip(
    (image, history): &(MemoryVfs, History),
    path: &str,
    bits: impl Iterator<Item = u64>,
) -> (usize, usize) {
    let (mut served, mut all) = (0, 0);
    for bit in bits {
        let damaged = image.snapshot();
        damaged
            .flip_bit(Path::new(path), bit / 8, (bit % 8) as u8)
            .unwrap();
        let context = format!("{path} bit {bit}");
        served += usize::from(survives(&damaged, &options(), history, &context));
        all += 1;
    }
    (served, all)
}

fn slots(image: &MemoryVfs) -> Vec<String> {
    let paths = image.paths().into_iter();
    paths.filter(|path| path.contains("slot-")).collect()
}

fn bytes(image: &MemoryVfs, path: &str) -> Vec<u8> {
    image.read(Path::new(path), 1 << 20).unwrap()
}

fn field(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// Bits of the frame headers and heads of this lap of a slot.
fn head_bits(bytes: &[u8]) -> Vec<u64> {
    let (segment, salt) = (field(bytes, 24), field(bytes, 32));
    let mut bits = Vec::new();
    for at in (4096..bytes.len()).step_by(8) {
        if let Ok(frame) = parse_frame(&bytes[at..], Seed { salt, segment }, at as u32) {
            let end = at as u64 + 48 + u64::from(frame.head);
            bits.extend(at as u64 * 8..end * 8);
        }
    }
    bits
}

fn newest_slot(image: &MemoryVfs) -> String {
    let newest = |path: &String| field(&bytes(image, path), 24);
    slots(image).into_iter().max_by_key(newest).unwrap()
}

#[test]
fn the_newest_segment_detects_every_flip_of_a_head() {
    // A prime, so that every bit of a byte and every field is met; all of them with enough seeds.
    for (closed, step) in [(true, 211), (false, 83)] {
        let step = (step / seeds() as usize).max(1);
        let log = log(closed);
        // Which saves the open from meeting most of them.
        log.0.remove(&Path::new(DIR).join(CHECKPOINT)).unwrap();
        let path = newest_slot(&log.0);
        let bits = head_bits(&bytes(&log.0, &path));
        let (served, all) = flip(&log, &path, bits.into_iter().step_by(step));
        assert!(
            all > 50 && served == 0,
            "closed {closed}: {served} of {all}"
        );
    }
}

#[test]
fn segments_never_serve_a_flipped_bit() {
    let log = log(false);
    for path in slots(&log.0) {
        // A spare slot holds nothing.
        if field(&bytes(&log.0, &path), 24) == 0 {
            continue;
        }
        let (served, all) = flip(&log, &path, (5..(64 << 10) * 8).step_by(8009));
        assert!(served < all, "{path}: {served} of {all}");
        flip(&log, &path, (0..52 * 8).step_by(9));
    }
}

#[test]
fn a_side_file_is_rebuilt() {
    for closed in [true, false] {
        let log = log(closed);
        let paths = log.0.paths();
        let sides: Vec<&String> = paths.iter().filter(|path| path.contains(".idx")).collect();
        assert!(sides.len() >= 2);
        for path in sides {
            let len = bytes(&log.0, path).len() as u64;
            let (served, all) = flip(&log, path, (0..len * 8).step_by(197));
            assert_eq!(served, all, "{path}");
            for len in [0, len - 1, len + 1] {
                let damaged = log.0.snapshot();
                damaged.truncate_file(Path::new(path), len).unwrap();
                assert!(survives(&damaged, &options(), &log.1, path), "{len}");
            }
            let damaged = log.0.snapshot();
            damaged.remove(Path::new(path)).unwrap();
            assert!(survives(&damaged, &options(), &log.1, path), "removed");
        }
    }
}

#[test]
fn a_lost_side_file_is_made_again_to_the_byte() {
    let log = log(true);
    let paths = log.0.paths();
    for path in paths.iter().filter(|path| path.contains(".idx")) {
        let whole = bytes(&log.0, path);
        let stem = path.rsplit('/').next().unwrap().trim_end_matches(".idx");
        let number = stem.parse().unwrap();
        let made = |vfs: MemoryVfs| {
            let vfs: Arc<dyn Vfs> = Arc::new(vfs);
            lost_side(&vfs, Path::new(DIR), number).unwrap()
        };
        assert_eq!(made(log.0.snapshot()), None, "{path} is whole");
        let damaged = log.0.snapshot();
        damaged.remove(Path::new(path)).unwrap();
        let expected = Some((PathBuf::from(path), whole.clone()));
        assert_eq!(made(damaged), expected, "{path} is missing");
        let damaged = log.0.snapshot();
        damaged.flip_bit(Path::new(path), 7, 3).unwrap();
        assert_eq!(made(damaged), expected, "{path} is damaged");
    }
}

#[test]
fn every_flip_of_the_identity_and_of_current_is_noticed() {
    for closed in [true, false] {
        let log = log(closed);
        for name in ["IDENTITY", "CURRENT"] {
            let path = format!("{DIR}/{name}");
            let len = bytes(&log.0, &path).len() as u64;
            let (served, all) = flip(&log, &path, (0..len * 8).step_by(3));
            assert_eq!(served, 0, "{path}: of {all}");
        }
    }
}

#[test]
fn the_manifest_never_leads_to_other_content() {
    for closed in [true, false] {
        let log = log(closed);
        let paths = log.0.paths();
        let path = paths
            .iter()
            .find(|path| path.contains("MANIFEST-"))
            .unwrap();
        let len = bytes(&log.0, path).len() as u64;
        let (served, all) = flip(&log, path, (0..len * 8).step_by(53));
        assert!(served * 10 < all, "{served} of {all}");
    }
}

/// Damage to the watermark file takes evidence away, no records.
#[test]
fn the_watermark_is_evidence_and_nothing_more() {
    let log = log(false);
    let (served, all) = flip(&log, &format!("{DIR}/WATERMARK"), 0..36 * 8);
    assert_eq!(served, all);
    // The last group of a killed writer has no frame behind it: only the watermark vouches for it.
    let path = newest_slot(&log.0);
    let last = *head_bits(&bytes(&log.0, &path)).last().unwrap();
    let (served, _) = flip(&log, &path, std::iter::once(last));
    assert_eq!(served, 0, "damage to the last frame passed for a torn tail");
}

/// Not one bit but a header that passes for one until its checksum is looked at, which is never read whole.
#[test]
fn a_frame_longer_than_its_segment_is_refused() {
    let mut driver = Driver::new(Options {
        recent_bytes_max: 0,
        ..options()
    });
    let stream = driver.create("a", false);
    for _ in 0..10 {
        driver.push(stream, 9000).unwrap();
        driver.sync();
    }
    let (view, path) = (driver.store.view(), format!("{DIR}/wal/slot-000001.wal"));
    let first = view.segments()[0]
        .with_index(&*view.vfs, Path::new(DIR), |index| {
            index
                .stream(stream, 0)
                .and_then(StreamIndex::first)
                .unwrap()
        })
        .unwrap();
    let file = driver.vfs.open(Path::new(&path), Access::Write).unwrap();
    let (length, head) = (1u32 << 20, (1u32 << 20) - 100);
    file.write_all_at(&length.to_le_bytes(), first.offset.into())
        .unwrap();
    file.write_all_at(&head.to_le_bytes(), u64::from(first.offset) + 12)
        .unwrap();
    let stream = view.stream(stream).unwrap();
    let error = super::values_of(view, &stream, first.llsn, 100).unwrap_err();
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
    assert!(view.get(&stream, first.llsn).is_err());
}
