//! Order: values of fields as bytes that sort as the values do, and taking the fields out of records.
//!
//! # Theory of operation
//!
//! A [`IndexSpec`] says what an index is over, as text: `json:/city`, `json:/price:float`, `header:region`,
//! `value`, or several of these with `+` between. The key of an index entry is the encoding of each field, one behind the
//! other, and then the record's key as it is. An [`Extractor`] makes these keys for all indexes of a table and reads a
//! record's JSON once.
//!
//! ```text
//! scalar    one byte for the type, then as the type:  0x10 bool  0x20 number  0x30 text  0x40 bytes
//! bool      0x00 false, 0x01 true
//! int       0x80 + n and n bytes of the number, most significant first; below zero 0x80 - n and
//!           the complement of the number's absolute value. n is the least that will do, 0 for zero
//! float     8 bytes of IEEE 754, most significant first: all bits inverted below zero, else only the sign
//! number    as float, the nearest one; then 2 bytes with how far above it the number is, plus 0x8000
//! text      UTF-8, 0x00 written as 0x00 0xff; then 0x00 0x01
//! bytes     as text
//! ```
//!
//! # Invariants
//!
//! 1. Encodings of one type sort as the values: numbers by value whatever they were written as, text by code
//!    points, bytes by bytes. Of scalars, bools come before numbers, numbers before text, text before bytes.
//! 2. No encoding is the beginning of another of the same type. So fields behind one another need nothing between
//!    them, and a key is taken apart in one way only.
//! 3. Equal values have one encoding: -0 is 0, all NaN are one, above every other number; 1 is 1.0.
//! 4. Null is not a value: a record with null in a field is as one that lacks it.
//! 5. What a field of a record is does not depend on what else is looked for in it.
//! 6. Integers are exact from -(2^64 - 1) to 2^64 - 1. Larger ones count as the nearest float.

mod extract;
mod pointer;
mod scalar;
mod spec;
#[cfg(test)]
mod tests;

pub use extract::{Extractor, Outcome};
pub use pointer::Pointer;
pub use scalar::{Kind, Value, decode, encode};
pub use spec::{Field, IndexSpec, Source};

/// The least key above all that begin with `prefix`; none if there is no such key.
pub fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut above = prefix[..=last].to_vec();
    above[last] += 1;
    Some(above)
}
