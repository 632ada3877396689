//! The small files of a table: `COUNTERS` and `BASES`.
//!
//! Each format has one encoding, so accepted means that what was decoded is encoded to the same bytes; what is of an earlier
//! format is encoded as the newest one, which says the same.

use std::path::Path;

use braidlog_core::error::{Error, Result as Outcome};
use braidlog_core::table::table::{
    Bases, Counters, IndexCounters, decode_bases, decode_counters, encode_bases, encode_counters,
};

use super::payload::refusals;
use crate::input::Input;
use crate::mutate::{Field, damage, put_u32};
use crate::rng::Rng;
use crate::target::{Broken, Target, Verdict, hold};

/// The table that all of them are of.
const TABLE: u128 = 7 << 100 | 9;

/// `COUNTERS`.
pub struct CountersFiles;

/// `BASES`.
pub struct BasesFiles;

fn number(rng: &mut Rng) -> u64 {
    rng.u64() >> rng.below(64)
}

fn id(rng: &mut Rng) -> u128 {
    u128::from(number(rng)) << 64 | u128::from(number(rng))
}

/// Damage one; numbers stand anywhere, because texts do.
fn mutate(input: &mut Input, other: &Input, rng: &mut Rng) {
    let mut fields: Vec<Field> = vec![(0, 4), (4, 4), (8, 8), (16, 8), (24, 4), (24, 8), (32, 8)];
    fields.extend((24..input.len().min(160)).flat_map(|at| [(at, 4), (at, 8)]));
    damage(input.bytes_mut(), &fields, other.bytes(), rng);
}

/// Make the checksum at the end right.
fn reseal(input: &mut Input) {
    let bytes = input.bytes_mut();
    if let Some(at) = bytes.len().checked_sub(4) {
        let checksum = crc32c::crc32c(&bytes[..at]);
        put_u32(bytes, at, checksum);
    }
}

fn check<T: std::fmt::Debug>(
    bytes: &[u8],
    decoded: Outcome<T>,
    encode: impl Fn(&T) -> Vec<u8>,
) -> Result<Verdict, Broken> {
    match decoded {
        Ok(found) => {
            hold(encode(&found) == bytes, || {
                format!("{found:?} encodes to other bytes")
            })?;
            Ok(Verdict::Accepted)
        }
        Err(
            Error::Corruption { .. }
            | Error::Foreign { .. }
            | Error::Newer { .. }
            | Error::WrongIdentity { .. },
        ) => Ok(Verdict::Refused),
        Err(error) => Err(format!("refused with {error:?}")),
    }
}

impl Target for CountersFiles {
    fn name(&self) -> &'static str {
        "counters"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        let counters = Counters {
            position: number(rng),
            last: number(rng),
            records: number(rng),
            without_key: refusals(rng),
            long_keys: refusals(rng),
            lost: refusals(rng),
        };
        let indexes = (0..rng.below(4)).map(|_| {
            let (position, refused) = (number(rng), refusals(rng));
            (id(rng), IndexCounters { position, refused })
        });
        let indexes = indexes.collect();
        Input::single(encode_counters(TABLE, &(counters, indexes)))
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        mutate(input, other, rng);
    }

    fn reseal(&self, input: &mut Input, _: &mut Rng) {
        reseal(input);
    }

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let bytes = input.bytes();
        let decode = |bytes: &[u8]| decode_counters(Path::new("COUNTERS"), bytes, TABLE);
        if bytes.get(4..8) == Some(&1_u32.to_le_bytes())
            && let Ok(saved) = decode(bytes)
        {
            let again = decode(&encode_counters(TABLE, &saved));
            hold(again.is_ok_and(|again| again == saved), || {
                format!("{saved:?} of format 1 is another one in the newest format")
            })?;
            return Ok(Verdict::Accepted);
        }
        check(bytes, decode(bytes), |saved| encode_counters(TABLE, saved))
    }
}

impl Target for BasesFiles {
    fn name(&self) -> &'static str {
        "bases"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        let bases: Bases = (0..rng.below(5)).map(|_| (id(rng), number(rng))).collect();
        Input::single(encode_bases(TABLE, &bases))
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        mutate(input, other, rng);
    }

    fn reseal(&self, input: &mut Input, _: &mut Rng) {
        reseal(input);
    }

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let bytes = input.bytes();
        let decoded = decode_bases(Path::new("BASES"), bytes, TABLE);
        check(bytes, decoded, |bases| encode_bases(TABLE, bases))
    }
}
