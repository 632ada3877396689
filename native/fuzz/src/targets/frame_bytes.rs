//! The bytes of frames as the fuzzer sees them.

use std::ops::Range;

use braidlog_core::wal::{FRAME_HEADER, Seed};

use super::batch_bytes;
use crate::mutate::{Field, damage, put_u32, u32_at};
use crate::rng::Rng;

/// Where checksums are computed from: a run of frames in a segment.
#[derive(Clone, Copy)]
pub struct Run {
    /// Seed of the segment.
    pub seed: Seed,
    /// Where the run begins in the bytes at hand.
    pub at: usize,
    /// Where it begins in the segment.
    pub offset: u32,
    /// Whether a frame may follow on the next block after a gap.
    pub gaps: bool,
}

/// Offsets of header fields, and their widths.
const HEADER: [Field; 11] = [
    (0, 4),
    (4, 4),
    (8, 1),
    (9, 1),
    (10, 2),
    (12, 4),
    (16, 4),
    (20, 4),
    (24, 8),
    (32, 8),
    (40, 4),
];

/// The frames of a run, as far as their lengths make sense.
pub fn frames(bytes: &[u8], run: &Run) -> Vec<Range<usize>> {
    let (mut found, mut at) = (Vec::new(), run.at);
    while at + FRAME_HEADER <= bytes.len() {
        let length = u32_at(bytes, at) as usize;
        let plausible =
            length >= FRAME_HEADER && length.is_multiple_of(8) && length <= bytes.len() - at;
        if plausible {
            found.push(at..at + length);
            at += length;
            continue;
        }
        let offset = run.offset as usize + (at - run.at);
        let gap = offset.next_multiple_of(4096) - offset;
        if gap == 0 || !run.gaps {
            break;
        }
        at += gap;
    }
    found
}

/// The numbers of a frame: its header, and what its payload may consist of.
fn fields(bytes: &[u8], frame: &Range<usize>) -> Vec<Field> {
    let mut fields: Vec<Field> = HEADER
        .iter()
        .map(|(at, width)| (frame.start + at, *width))
        .collect();
    let payload = frame.start + FRAME_HEADER;
    if bytes.get(payload..payload + 4) == Some(b"BRB1") {
        let inside = batch_bytes::FIELDS.iter();
        fields.extend(inside.map(|(at, width)| (payload + at, *width)));
    } else {
        // Payloads of changes are packed, so a number may begin at any byte.
        fields.extend((payload..frame.end).take(512).map(|at| (at, 1)));
        fields.extend((payload..frame.end).step_by(4).take(128).map(|at| (at, 4)));
        fields.extend((payload..frame.end).take(256).map(|at| (at, 8)));
    }
    fields.retain(|(at, width)| at + width <= frame.end);
    fields
}

/// Damage a frame, or the order of frames.
pub fn mutate(bytes: &mut Vec<u8>, run: &Run, other: &[u8], rng: &mut Rng) {
    let frames = frames(bytes, run);
    if frames.is_empty() {
        return damage(bytes, &[], other, rng);
    }
    let frame = rng.pick(&frames).clone();
    match rng.below(10) {
        0 => damage(bytes, &[], other, rng),
        1 => {
            bytes.drain(frame);
        }
        2 => {
            let copy = bytes[frame].to_vec();
            let at = rng.pick(&frames).start;
            bytes.splice(at..at, copy);
        }
        3 => {
            // A frame of another input, which may fit where it did not belong.
            let foreign = self::frames(other, run);
            if !foreign.is_empty() {
                let copy = other[rng.pick(&foreign).clone()].to_vec();
                bytes.splice(frame.start..frame.start, copy);
            }
        }
        4 => resize(bytes, &frame, rng),
        _ => {
            let fields = fields(bytes, &frame);
            let mut piece = bytes[frame.clone()].to_vec();
            let inside: Vec<Field> = fields
                .iter()
                .map(|(at, width)| (at - frame.start, *width))
                .collect();
            damage(&mut piece, &inside, other, rng);
            piece.resize(frame.len(), 0);
            bytes[frame].copy_from_slice(&piece);
        }
    }
}

/// Make a payload longer or shorter, with the frame's own lengths along.
fn resize(bytes: &mut Vec<u8>, frame: &Range<usize>, rng: &mut Rng) {
    let step = 8 * rng.within(1..=4);
    let (length, head) = (frame.len(), u32_at(bytes, frame.start + 12) as usize);
    if rng.one_in(2) {
        let noise = rng.bytes(step);
        bytes.splice(frame.end..frame.end, noise);
        put_u32(bytes, frame.start, (length + step) as u32);
        put_u32(bytes, frame.start + 12, (head + step) as u32);
    } else if length >= FRAME_HEADER + step {
        bytes.drain(frame.end - step..frame.end);
        put_u32(bytes, frame.start, (length - step) as u32);
        put_u32(bytes, frame.start + 12, head.saturating_sub(step) as u32);
    }
}

/// Make ordinals dense, batches and heads fit, sometimes; and the checksums right, always.
pub fn reseal(bytes: &mut [u8], run: &Run, rng: &mut Rng) {
    let (dense, fit) = (!rng.one_in(4), !rng.one_in(4));
    for (ordinal, range) in frames(bytes, run).into_iter().enumerate() {
        let offset = run.offset + (range.start - run.at) as u32;
        let frame = &mut bytes[range];
        if dense {
            put_u32(frame, 44, ordinal as u32);
        }
        let padding = usize::from(u16::from_le_bytes([frame[10], frame[11]]));
        let payload = frame.len().saturating_sub(FRAME_HEADER + padding);
        if matches!(frame[8], 1 | 2) {
            let batch = &mut frame[FRAME_HEADER..FRAME_HEADER + payload];
            if fit {
                batch_bytes::seal(batch);
            }
        } else if fit && payload > 0 {
            put_u32(frame, 12, payload as u32);
        }
        seal(frame, run.seed, offset);
    }
}

/// Make the checksum of one frame right.
pub fn seal(frame: &mut [u8], seed: Seed, offset: u32) {
    let mut place = [0; 20];
    place[..8].copy_from_slice(&seed.salt.to_le_bytes());
    place[8..16].copy_from_slice(&seed.segment.to_le_bytes());
    place[16..].copy_from_slice(&offset.to_le_bytes());
    let head = FRAME_HEADER.saturating_add(u32_at(frame, 12) as usize);
    let covered = &frame[8..head.min(frame.len())];
    let crc = crc32c::crc32c_append(crc32c::crc32c(&place), &frame[..4]);
    let crc = crc32c::crc32c_append(crc, covered);
    put_u32(frame, 4, crc);
}
