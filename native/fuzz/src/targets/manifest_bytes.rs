//! The bytes of a manifest file as the fuzzer sees them.

use std::ops::Range;

use braidlog_core::manifest::codec::{FIELD_HEADER_BYTES, FRAME_HEADER_BYTES, HEADER_BYTES};

use crate::mutate::{Field, damage, put_u32, u32_at};
use crate::rng::Rng;

/// The edits of a file, as far as their lengths make sense.
pub fn edits(bytes: &[u8]) -> Vec<Range<usize>> {
    let (mut found, mut at) = (Vec::new(), HEADER_BYTES);
    while at + FRAME_HEADER_BYTES <= bytes.len() {
        let length = u32_at(bytes, at) as usize;
        if length < FRAME_HEADER_BYTES || length > bytes.len() - at {
            break;
        }
        found.push(at..at + length);
        at += length;
    }
    found
}

/// The contents of an edit's fields with their tags, as far as their lengths make sense.
pub fn contents(bytes: &[u8], edit: &Range<usize>) -> Vec<(u16, Range<usize>)> {
    let (mut found, mut at) = (Vec::new(), edit.start + FRAME_HEADER_BYTES);
    while at + FIELD_HEADER_BYTES <= edit.end {
        let begin = at + FIELD_HEADER_BYTES;
        let length = u32_at(bytes, at + 2) as usize;
        if length > edit.end - begin {
            break;
        }
        let tag = u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        found.push((tag, begin..begin + length));
        at = begin + length;
    }
    found
}

/// Damage a manifest file.
pub fn mutate(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let edits = edits(bytes);
    if edits.is_empty() {
        return damage(bytes, &[], other, rng);
    }
    let edit = rng.pick(&edits).clone();
    match rng.below(8) {
        0 => {
            let header: [Field; 6] = [(4, 4), (8, 8), (24, 8), (40, 8), (48, 8), (56, 4)];
            damage(bytes, &header, other, rng);
        }
        1 => {
            bytes.drain(edit);
        }
        2 => {
            let copy = bytes[edit].to_vec();
            let at = rng.pick(&edits).start;
            bytes.splice(at..at, copy);
        }
        3 => insert_field(bytes, &edit, rng),
        4 => {
            // An edit of another file, where its operations may or may not apply.
            let foreign = self::edits(other);
            if !foreign.is_empty() {
                let copy = other[rng.pick(&foreign).clone()].to_vec();
                bytes.splice(edit.start..edit.start, copy);
            }
        }
        _ => {
            let mut fields: Vec<Field> = vec![(edit.start, 4), (edit.start + 8, 8)];
            for (_, content) in contents(bytes, &edit) {
                let begin = content.start - FIELD_HEADER_BYTES;
                fields.extend([(begin, 2), (begin + 2, 4)]);
                fields.extend(content.clone().step_by(4).map(|at| (at, 4)));
                fields.extend(content.clone().step_by(4).map(|at| (at, 8)));
            }
            fields.retain(|(at, width)| at + width <= edit.end);
            damage(bytes, &fields, other, rng);
        }
    }
}

/// A field of a newer build, or of none.
fn insert_field(bytes: &mut Vec<u8>, edit: &Range<usize>, rng: &mut Rng) {
    let tag = rng.below(32) as u16 | if rng.one_in(3) { 0 } else { 0x8000 };
    let len = rng.below(40);
    let mut field = tag.to_le_bytes().to_vec();
    field.extend_from_slice(&(len as u32).to_le_bytes());
    field.extend(rng.bytes(len));
    let length = edit.len() + field.len();
    bytes.splice(edit.end..edit.end, field);
    put_u32(bytes, edit.start, length as u32);
}

/// Make edit numbers consecutive, sometimes, and the checksums right, always.
pub fn reseal(bytes: &mut [u8], rng: &mut Rng) {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    let crc = crc32c::crc32c(&bytes[..60]);
    put_u32(bytes, 60, crc);
    let number = !rng.one_in(4);
    let mut next = [0; 8];
    next.copy_from_slice(&bytes[48..56]);
    let mut next = u64::from_le_bytes(next);
    for edit in edits(bytes) {
        if number {
            bytes[edit.start + 8..edit.start + 16].copy_from_slice(&next.to_le_bytes());
            next = next.wrapping_add(1);
        }
        seal_edit(bytes, &edit);
    }
}

/// Make the checksum of one edit right.
pub fn seal_edit(bytes: &mut [u8], edit: &Range<usize>) {
    let seed = crc32c::crc32c_append(crc32c::crc32c(&bytes[8..24]), &bytes[40..48]);
    let crc = crc32c::crc32c_append(seed, &bytes[edit.start..edit.start + 4]);
    let crc = crc32c::crc32c_append(crc, &bytes[edit.start + 8..edit.end]);
    put_u32(bytes, edit.start + 4, crc);
}
