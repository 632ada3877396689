//! Encoding of single values.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "the nearest float is meant, and how far it is off is stored beside it"
)]

use std::fmt;

use crate::error::{Error, Result};

const WHAT: &str = "index key";

const TAG_BOOL: u8 = 0x10;
const TAG_NUMBER: u8 = 0x20;
const TAG_TEXT: u8 = 0x30;
const TAG_BYTES: u8 = 0x40;

const INT_ZERO: u8 = 0x80;
const ESCAPED: u8 = 0xff;
const TERMINATOR: u8 = 0x01;
const RESIDUAL_ZERO: i32 = 0x8000;

/// Above every integer of an index, and below its negative.
const INT_END: i128 = 1 << 64;

/// The type of a field of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bool, number, text or bytes, as the record has it.
    Scalar,
    /// True or false.
    Bool,
    /// An integer.
    Int,
    /// A number, to the precision of a double.
    Float,
    /// Text.
    Text,
    /// Bytes.
    Bytes,
}

impl Kind {
    /// All types, as they are written.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("scalar", Self::Scalar),
        ("bool", Self::Bool),
        ("int", Self::Int),
        ("float", Self::Float),
        ("text", Self::Text),
        ("bytes", Self::Bytes),
    ];

    /// The type of that name.
    pub fn named(name: &str) -> Option<Self> {
        let found = Self::NAMES.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, kind)| kind)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        let found = Self::NAMES.into_iter().find(|(_, kind)| *kind == self);
        found.map_or("", |(name, _)| name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// A number.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl Value {
    /// What it is, for messages.
    pub fn kind_name(&self) -> &'static str {
        self.borrow().name()
    }

    pub(super) fn borrow(&self) -> Plain<'_> {
        match self {
            Self::Bool(value) => Plain::Bool(*value),
            Self::Int(value) => Plain::Int(*value),
            Self::Float(value) => Plain::Float(*value),
            Self::Text(value) => Plain::Text(value),
            Self::Bytes(value) => Plain::Bytes(value),
        }
    }
}

/// A value that borrows its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Plain<'a> {
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl Plain<'_> {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "text",
            Self::Bytes(_) => "bytes",
        }
    }

    /// Append the encoding as `kind`; false if it is no value of that type, and nothing is appended.
    pub(super) fn put(self, kind: Kind, out: &mut Vec<u8>) -> bool {
        match (kind, self) {
            (Kind::Scalar, _) => self.put_tagged(out),
            (Kind::Bool, Self::Bool(value)) => out.push(value.into()),
            (Kind::Int, Self::Int(value)) if -INT_END < value && value < INT_END => {
                put_int(value, out);
            }
            (Kind::Int, Self::Float(value)) if is_exact_int(value) => put_int(value as i128, out),
            (Kind::Float, Self::Int(value)) => put_float(value as f64, out),
            (Kind::Float, Self::Float(value)) => put_float(value, out),
            (Kind::Text, Self::Text(value)) => put_escaped(value.as_bytes(), out),
            (Kind::Bytes, Self::Bytes(value)) => put_escaped(value, out),
            _ => return false,
        }
        true
    }

    fn put_tagged(self, out: &mut Vec<u8>) {
        match self {
            Self::Bool(value) => out.extend([TAG_BOOL, value.into()]),
            Self::Int(value) if -INT_END < value && value < INT_END => {
                let nearest = value as f64;
                out.push(TAG_NUMBER);
                put_float(nearest, out);
                // At most half of the distance between two doubles below 2^64, which is 2048.
                put_residual((value - nearest as i128) as i32, out);
            }
            Self::Int(value) => Self::Float(value as f64).put_tagged(out),
            Self::Float(value) => {
                out.push(TAG_NUMBER);
                put_float(value, out);
                put_residual(0, out);
            }
            Self::Text(value) => {
                out.push(TAG_TEXT);
                put_escaped(value.as_bytes(), out);
            }
            Self::Bytes(value) => {
                out.push(TAG_BYTES);
                put_escaped(value, out);
            }
        }
    }
}

/// Append the encoding of a value as a field of type `kind`.
///
/// # Errors
/// [`Error::InvalidArgument`] if it is not of that type; nothing is appended.
pub fn encode(value: &Value, kind: Kind, out: &mut Vec<u8>) -> Result<()> {
    if value.borrow().put(kind, out) {
        return Ok(());
    }
    let reason = match value {
        Value::Int(value) if kind == Kind::Int => {
            format!(
                "{value} is outside of what an index of type int holds, -(2^64 - 1) to 2^64 - 1"
            )
        }
        Value::Float(value) if kind == Kind::Int => {
            format!("{value} is no integer, and the field of the index is of type int")
        }
        _ => format!(
            "the value is {}, and the field of the index is of type {kind}",
            value.kind_name()
        ),
    };
    Err(Error::InvalidArgument(reason))
}

/// Append the encoding of text or bytes without its end: the beginning of the encodings of all that begin
/// with it. False for values that have no beginnings, or of another type.
pub(super) fn put_beginning(value: &Value, kind: Kind, out: &mut Vec<u8>) -> bool {
    let text = matches!(value, Value::Text(_) | Value::Bytes(_));
    let done = text && value.borrow().put(kind, out);
    if done {
        out.truncate(out.len() - 2);
    }
    done
}

/// Decode the value at the front of `bytes`; returns it and what is behind it.
///
/// # Errors
/// [`Error::Malformed`] for what [`encode`] cannot have written.
pub fn decode(kind: Kind, bytes: &[u8]) -> Result<(Value, &[u8])> {
    match kind {
        Kind::Scalar => {
            let (tag, rest) = take::<1>(bytes)?;
            match tag[0] {
                TAG_BOOL => decode(Kind::Bool, rest),
                TAG_NUMBER => take_number(rest),
                TAG_TEXT => decode(Kind::Text, rest),
                TAG_BYTES => decode(Kind::Bytes, rest),
                tag => Err(malformed(bytes, format!("unknown type {tag:#04x}"))),
            }
        }
        Kind::Bool => match take::<1>(bytes)? {
            ([0], rest) => Ok((Value::Bool(false), rest)),
            ([1], rest) => Ok((Value::Bool(true), rest)),
            _ => Err(malformed(bytes, "neither true nor false")),
        },
        Kind::Int => take_int(bytes),
        Kind::Float => {
            let (value, rest) = take_float(bytes)?;
            Ok((Value::Float(value), rest))
        }
        Kind::Text => {
            let (raw, rest) = take_escaped(bytes)?;
            let text = String::from_utf8(raw).map_err(|_| malformed(bytes, "not UTF-8"))?;
            Ok((Value::Text(text), rest))
        }
        Kind::Bytes => {
            let (raw, rest) = take_escaped(bytes)?;
            Ok((Value::Bytes(raw), rest))
        }
    }
}

fn malformed(bytes: &[u8], reason: impl Into<String>) -> Error {
    // Offsets within a key say little; how much of it was left does.
    Error::malformed(WHAT, bytes.len() as u64, reason)
}

fn take<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8])> {
    match bytes.split_first_chunk::<N>() {
        Some((first, rest)) => Ok((*first, rest)),
        None => Err(malformed(bytes, "ends within a field")),
    }
}

/// Whether a float is an integer that an index holds.
fn is_exact_int(value: f64) -> bool {
    value.fract() == 0.0 && value.abs() < INT_END as f64
}

fn put_int(value: i128, out: &mut Vec<u8>) {
    let magnitude = (value.unsigned_abs() as u64).to_be_bytes();
    let skipped = magnitude.iter().take_while(|byte| **byte == 0).count();
    let digits = &magnitude[skipped..];
    let len = digits.len() as u8;
    if value < 0 {
        out.push(INT_ZERO - len);
        out.extend(digits.iter().map(|byte| !byte));
    } else {
        out.push(INT_ZERO + len);
        out.extend_from_slice(digits);
    }
}

fn take_int(bytes: &[u8]) -> Result<(Value, &[u8])> {
    let ([length], rest) = take::<1>(bytes)?;
    let len = usize::from(length.abs_diff(INT_ZERO));
    if len > 8 || len > rest.len() {
        return Err(malformed(bytes, "an integer of impossible length"));
    }
    let (digits, rest) = rest.split_at(len);
    let mask = if length < INT_ZERO { 0xff } else { 0 };
    if digits.first().is_some_and(|first| first ^ mask == 0) {
        return Err(malformed(bytes, "an integer with leading zeros"));
    }
    let magnitude = digits
        .iter()
        .fold(0i128, |value, digit| value << 8 | i128::from(digit ^ mask));
    let value = if length < INT_ZERO {
        -magnitude
    } else {
        magnitude
    };
    Ok((Value::Int(value), rest))
}

fn put_float(value: f64, out: &mut Vec<u8>) {
    let value = if value.is_nan() {
        f64::NAN.abs()
    } else if value == 0.0 {
        0.0
    } else {
        value
    };
    let bits = value.to_bits();
    let sign = 1 << 63;
    let sortable = if bits & sign == 0 { bits | sign } else { !bits };
    out.extend_from_slice(&sortable.to_be_bytes());
}

fn take_float(bytes: &[u8]) -> Result<(f64, &[u8])> {
    let (raw, rest) = take::<8>(bytes)?;
    let sortable = u64::from_be_bytes(raw);
    let sign = 1 << 63;
    let bits = if sortable & sign == 0 {
        !sortable
    } else {
        sortable ^ sign
    };
    let value = f64::from_bits(bits);
    let mut again = Vec::with_capacity(8);
    put_float(value, &mut again);
    if again != raw {
        return Err(malformed(bytes, "a float that is written otherwise"));
    }
    Ok((value, rest))
}

fn put_residual(residual: i32, out: &mut Vec<u8>) {
    out.extend_from_slice(&((residual + RESIDUAL_ZERO) as u16).to_be_bytes());
}

/// A number that may have been written as an integer or as a float: as an integer if it is one.
fn take_number(bytes: &[u8]) -> Result<(Value, &[u8])> {
    let (nearest, rest) = take_float(bytes)?;
    let (raw, rest) = take::<2>(rest)?;
    let residual = i32::from(u16::from_be_bytes(raw)) - RESIDUAL_ZERO;
    // 2^64 itself counts: integers below it are nearest to it.
    let is_int = nearest.fract() == 0.0 && nearest.abs() <= INT_END as f64;
    let exact = if is_int {
        nearest as i128 + i128::from(residual)
    } else {
        0
    };
    if is_int && -INT_END < exact && exact < INT_END {
        if exact as f64 == nearest {
            return Ok((Value::Int(exact), rest));
        }
    } else if residual == 0 {
        return Ok((Value::Float(nearest), rest));
    }
    Err(malformed(bytes, "a number that is not the nearest float"))
}

fn put_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len() + 2);
    let mut rest = bytes;
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        out.extend_from_slice(&rest[..=zero]);
        out.push(ESCAPED);
        rest = &rest[zero + 1..];
    }
    out.extend_from_slice(rest);
    out.extend([0, TERMINATOR]);
}

fn take_escaped(bytes: &[u8]) -> Result<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    let mut rest = bytes;
    loop {
        let Some(zero) = rest.iter().position(|byte| *byte == 0) else {
            return Err(malformed(rest, "text without an end"));
        };
        value.extend_from_slice(&rest[..zero]);
        match rest.get(zero + 1) {
            Some(&TERMINATOR) => return Ok((value, &rest[zero + 2..])),
            Some(&ESCAPED) => value.push(0),
            _ => return Err(malformed(&rest[zero..], "a zero byte that is not escaped")),
        }
        rest = &rest[zero + 2..];
    }
}

/// What is behind the value at the front of `bytes`, without decoding it.
pub(super) fn skip(kind: Kind, bytes: &[u8]) -> Result<&[u8]> {
    let len = match kind {
        Kind::Scalar => {
            let (tag, rest) = take::<1>(bytes)?;
            return match tag[0] {
                TAG_BOOL => skip(Kind::Bool, rest),
                TAG_NUMBER => take::<10>(rest).map(|(_, rest)| rest),
                TAG_TEXT | TAG_BYTES => skip(Kind::Bytes, rest),
                tag => Err(malformed(bytes, format!("unknown type {tag:#04x}"))),
            };
        }
        Kind::Bool => 1,
        Kind::Int => 1 + usize::from(take::<1>(bytes)?.0[0].abs_diff(INT_ZERO)),
        Kind::Float => 8,
        Kind::Text | Kind::Bytes => {
            let mut at = 0;
            loop {
                let zero = bytes[at..].iter().position(|byte| *byte == 0);
                let Some(zero) = zero else {
                    return Err(malformed(bytes, "text without an end"));
                };
                at += zero + 2;
                match bytes.get(at - 1) {
                    Some(&TERMINATOR) => break at,
                    Some(&ESCAPED) => {}
                    _ => return Err(malformed(bytes, "a zero byte that is not escaped")),
                }
            }
        }
    };
    let behind = bytes.get(len..);
    behind.ok_or_else(|| malformed(bytes, "ends within a field"))
}
