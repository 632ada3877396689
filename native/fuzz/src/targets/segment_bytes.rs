//! The files of a node directory as the fuzzer sees them, and how they vouch for each other.

use braidlog_core::wal::{FIRST_FRAME, Seed};

use super::frame_bytes::{self, Run};
use super::small::Checkpoints;
use super::{manifest_bytes, side};
use crate::input::Input;
use crate::mutate::{Field, damage, damage_in_place, put_u32, u64_at};
use crate::rng::Rng;

/// Tag of the manifest's operation that seals a segment.
const SEAL: u16 = 19;

/// What a file is, by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Slot,
    Side,
    Manifest,
    Identity,
    Watermark,
    Checkpoint,
    Other,
}

fn kind(name: &str) -> Kind {
    match name {
        "IDENTITY" => Kind::Identity,
        "WATERMARK" => Kind::Watermark,
        "CHECKPOINT" => Kind::Checkpoint,
        _ if name.starts_with("wal/slot-") => Kind::Slot,
        _ if name.starts_with("wal/") => Kind::Side,
        _ if name.starts_with("MANIFEST-") => Kind::Manifest,
        _ => Kind::Other,
    }
}

/// The frames of a slot: its header block says with which seed.
pub fn run_of(slot: &[u8]) -> Run {
    Run {
        seed: Seed {
            salt: u64_at(slot, 32),
            segment: u64_at(slot, 24),
        },
        at: FIRST_FRAME as usize,
        offset: FIRST_FRAME,
        gaps: true,
    }
}

/// Damage one file of a directory.
pub fn mutate(input: &mut Input, other: &Input, rng: &mut Rng) {
    let wanted = *rng.pick(&[
        Kind::Slot,
        Kind::Slot,
        Kind::Slot,
        Kind::Slot,
        Kind::Slot,
        Kind::Slot,
        Kind::Side,
        Kind::Side,
        Kind::Manifest,
        Kind::Identity,
        Kind::Watermark,
        Kind::Checkpoint,
        Kind::Other,
    ]);
    let is_wanted = |name: &str| kind(name) == wanted;
    let files: Vec<usize> = (0..input.files.len())
        .filter(|at| is_wanted(&input.files[*at].0))
        .collect();
    if files.is_empty() {
        return;
    }
    let at = *rng.pick(&files);
    if rng.one_in(64) {
        input.files.remove(at);
        return;
    }
    let foreign = other.files.iter().find(|(name, _)| is_wanted(name));
    let foreign = foreign.map_or(&[][..], |(_, bytes)| bytes);
    let bytes = &mut input.files[at].1;
    match wanted {
        Kind::Slot => mutate_slot(bytes, foreign, rng),
        Kind::Side => side::mutate(bytes, foreign, rng),
        Kind::Manifest => manifest_bytes::mutate(bytes, foreign, rng),
        Kind::Identity => damage(bytes, &[(4, 4), (8, 8), (24, 8), (40, 4)], foreign, rng),
        Kind::Watermark => damage(bytes, &[(8, 8), (16, 8), (24, 4), (28, 4)], foreign, rng),
        Kind::Checkpoint => Checkpoints::damage(bytes, foreign, rng),
        Kind::Other => damage(bytes, &[], foreign, rng),
    }
}

fn mutate_slot(bytes: &mut Vec<u8>, foreign: &[u8], rng: &mut Rng) {
    let run = run_of(bytes);
    let len = bytes.len();
    let last = frame_bytes::frames(bytes, &run).last().map(|last| last.end);
    match rng.below(12) {
        0 => {
            let header: [Field; 6] = [(4, 4), (8, 8), (24, 8), (32, 8), (40, 8), (48, 4)];
            damage_in_place(&mut bytes[..len.min(64)], &header, foreign, rng);
        }
        // A torn tail: what stands behind some place near the end is lost.
        1 | 2 => {
            let end = last.unwrap_or(0);
            let keep = end.saturating_sub(rng.below(400));
            let to = (keep + rng.below(600)).min(len);
            bytes[keep.min(to)..to].fill(0);
        }
        3 if rng.one_in(4) => damage(bytes, &[], foreign, rng),
        _ => frame_bytes::mutate(bytes, &run, foreign, rng),
    }
    if !rng.one_in(20) {
        // A file of another length is refused before anything is decoded.
        bytes.resize(len, 0);
    }
}

/// Make the checksums of all files right, and those that files keep of each other.
pub fn reseal(input: &mut Input, rng: &mut Rng) {
    let mut sides = Vec::new();
    for (name, bytes) in &mut input.files {
        match kind(name) {
            // A free one may never have been written.
            Kind::Slot if bytes.iter().take(64).all(|byte| *byte == 0) => {}
            Kind::Slot => {
                let run = run_of(bytes);
                frame_bytes::reseal(bytes, &run, rng);
                seal(bytes, 48);
            }
            Kind::Side => {
                side::reseal(bytes, rng);
                let crc = crc32c::crc32c(bytes);
                sides.push((u64_at(bytes, 8), bytes.len() as u32, crc));
            }
            Kind::Identity => seal(bytes, 44),
            Kind::Watermark => seal(bytes, 32),
            // A checkpoint that lies with a right checksum is for verification to find; decoding it has a target
            // of its own.
            Kind::Checkpoint | Kind::Manifest | Kind::Other => {}
        }
    }
    for (_, bytes) in input
        .files
        .iter_mut()
        .filter(|(name, _)| kind(name) == Kind::Manifest)
    {
        for edit in manifest_bytes::edits(bytes) {
            for (tag, content) in manifest_bytes::contents(bytes, &edit) {
                let number = u64_at(bytes, content.start);
                let side = sides.iter().find(|(segment, ..)| *segment == number);
                if let Some((_, len, crc)) = side
                    && tag == SEAL
                    && content.len() == 24
                {
                    put_u32(bytes, content.start + 16, *len);
                    put_u32(bytes, content.start + 20, *crc);
                }
            }
        }
        manifest_bytes::reseal(bytes, rng);
    }
}

fn seal(bytes: &mut [u8], at: usize) {
    if bytes.len() >= at + 4 {
        let crc = crc32c::crc32c(&bytes[..at]);
        put_u32(bytes, at, crc);
    }
}
