//! Damage: what wires, disks, and enemies do to bytes.

use std::ops::Range;

use crate::rng::Rng;

/// A fixed-width number somewhere in an input: where, and how many bytes.
pub type Field = (usize, usize);

/// Overwrite a field with a value that may hurt.
pub fn tamper(bytes: &mut [u8], (at, width): Field, rng: &mut Rng) {
    let Some(old) = read(bytes, (at, width)) else {
        return;
    };
    let new = rng.hurtful(old, bytes.len());
    bytes[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
}

/// The value of a field of at most 8 bytes.
pub fn read(bytes: &[u8], (at, width): Field) -> Option<u64> {
    let mut value = [0; 8];
    value
        .get_mut(..width)?
        .copy_from_slice(bytes.get(at..at.checked_add(width)?)?);
    Some(u64::from_le_bytes(value))
}

/// Write a `u32` if there is room.
pub fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(field) = bytes.get_mut(at..at + 4) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

/// The `u32` at `at`, or 0.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    read(bytes, (at, 4)).unwrap_or(0) as u32
}

/// The `u64` at `at`, or 0.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    read(bytes, (at, 8)).unwrap_or(0)
}

/// One act of damage; `fields` are the numbers that matter, `other` another input.
pub fn damage(bytes: &mut Vec<u8>, fields: &[Field], other: &[u8], rng: &mut Rng) {
    if !fields.is_empty() && rng.one_in(2) {
        let field = *rng.pick(fields);
        return tamper(bytes, field, rng);
    }
    match rng.below(8) {
        0 | 1 => flip(bytes, rng),
        2 => {
            let width = *rng.pick(&[1, 2, 4, 8]);
            let at = rng.below(bytes.len()) / width * width;
            tamper(bytes, (at, width), rng);
        }
        3 => bytes.truncate(rng.below(bytes.len())),
        4 => splice(bytes, other, rng),
        5 => copy_within(bytes, rng),
        6 => {
            let range = some(bytes.len(), rng);
            bytes[range].fill(0);
        }
        _ => resize(bytes, rng),
    }
}

/// Damage that keeps the length, for files whose length is checked first.
pub fn damage_in_place(bytes: &mut [u8], fields: &[Field], other: &[u8], rng: &mut Rng) {
    let len = bytes.len();
    let mut changed = bytes.to_vec();
    damage(&mut changed, fields, other, rng);
    changed.resize(len, 0);
    bytes.copy_from_slice(&changed);
}

fn flip(bytes: &mut [u8], rng: &mut Rng) {
    if bytes.is_empty() {
        return;
    }
    for _ in 0..rng.within(1..=4) {
        let at = rng.below(bytes.len());
        if rng.one_in(3) {
            bytes[at] = rng.byte();
        } else {
            bytes[at] ^= 1 << rng.below(8);
        }
    }
}

/// Put a piece of another input over, or between, the bytes.
fn splice(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let piece = &other[some(other.len(), rng)];
    let at = rng.below(bytes.len() + 1);
    let replaced = match rng.below(3) {
        0 => at..at,
        1 => at..(at + piece.len()).min(bytes.len()),
        _ => at..bytes.len(),
    };
    bytes.splice(replaced, piece.iter().copied());
}

fn copy_within(bytes: &mut [u8], rng: &mut Rng) {
    let from = some(bytes.len(), rng);
    let to = rng.below(bytes.len() - from.len() + 1);
    bytes.copy_within(from, to);
}

/// Cut bytes out, or put zeros or noise in.
fn resize(bytes: &mut Vec<u8>, rng: &mut Rng) {
    if rng.one_in(2) {
        bytes.drain(some(bytes.len(), rng));
        return;
    }
    let at = rng.below(bytes.len() + 1);
    let len = rng.within(1..=64);
    let inserted = if rng.one_in(2) {
        vec![0; len]
    } else {
        rng.bytes(len)
    };
    bytes.splice(at..at, inserted);
}

/// A range, short more often than long; often aligned.
fn some(len: usize, rng: &mut Rng) -> Range<usize> {
    let align = *rng.pick(&[1, 4, 8]);
    let longest = if rng.one_in(4) { len } else { len.min(128) };
    let size = rng.within(0..=longest);
    let begin = rng.below(len - size + 1) / align * align;
    begin..begin + size
}
