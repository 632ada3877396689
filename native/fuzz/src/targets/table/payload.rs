//! Payloads of entries: records in a primary tree, and the marks of an index building.
//!
//! Accepted means that what was decoded is encoded to the same bytes.

use braidlog_core::error::Error;
use braidlog_core::table::table::{BuildMark, Payload, Refusals, encode_payload};

use crate::input::Input;
use crate::mutate::{Field, damage, u32_at};
use crate::rng::Rng;
use crate::target::{Broken, Target, Verdict, hold};

/// A record without key and position.
pub struct Payloads;

/// Where the lengths of headers begin.
const LENGTHS: usize = 10;

impl Target for Payloads {
    fn name(&self) -> &'static str {
        "payload"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        let headers: Vec<(String, Option<Vec<u8>>)> = (0..rng.below(5))
            .map(|_| {
                let (name, len) = ("hé\0".repeat(rng.below(3)), rng.below(20));
                (name, (!rng.one_in(4)).then(|| rng.bytes(len)))
            })
            .collect();
        let len = rng.below(60);
        let value = (!rng.one_in(5)).then(|| rng.bytes(len));
        let timestamp = rng.u64().cast_signed() >> rng.below(64);
        let mut out = Vec::new();
        let headers = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref()));
        encode_payload(timestamp, value.as_deref(), headers, &mut out);
        Input::single(out)
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        let headers = u32_at(input.bytes(), 8) as usize & 0x7fff;
        let mut fields: Vec<Field> = vec![(8, 2), (9, 1)];
        fields.extend((0..2 * headers.min(8)).map(|at| (LENGTHS + 4 * at, 4)));
        damage(input.bytes_mut(), &fields, other.bytes(), rng);
    }

    /// There are no checksums: runs have those.
    fn reseal(&self, _: &mut Input, _: &mut Rng) {}

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let payload = match Payload::decode(input.bytes()) {
            Ok(payload) => payload,
            Err(Error::Malformed { .. }) => return Ok(Verdict::Refused),
            Err(error) => return Err(format!("refused with {error:?}")),
        };
        let headers: Vec<_> = payload.headers.clone().collect();
        let count = payload.headers.len();
        hold(headers.len() == count, || {
            format!("{count} headers, of which {} come", headers.len())
        })?;
        let mut again = Vec::new();
        encode_payload(
            payload.timestamp,
            payload.value,
            headers.into_iter(),
            &mut again,
        );
        hold(again == input.bytes(), || {
            format!("{payload:?} encodes to other bytes")
        })?;
        Ok(Verdict::Accepted)
    }
}

/// The mark beside a chunk of an index building.
pub struct Marks;

/// Refusals that some records might have.
pub fn refusals(rng: &mut Rng) -> Refusals {
    let listed = rng.below(4);
    let first = (0..listed).map(|_| (rng.u64() >> rng.below(64), "no é".repeat(rng.below(3))));
    let first = first.collect();
    let more = if rng.one_in(2) { rng.u64() >> 8 } else { 0 };
    let count = listed as u64 + more;
    Refusals { count, first }
}

impl Target for Marks {
    fn name(&self) -> &'static str {
        "mark"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        let len = rng.below(20);
        let mark = BuildMark {
            key: rng.bytes(len),
            refused: refusals(rng),
        };
        Input::single(mark.encode())
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        let behind = 4 + u32_at(input.bytes(), 0) as usize % 64;
        let fields: [Field; 5] = [
            (0, 4),
            (behind, 8),
            (behind + 8, 4),
            (behind + 12, 8),
            (behind + 20, 4),
        ];
        damage(input.bytes_mut(), &fields, other.bytes(), rng);
    }

    /// There are no checksums: runs have those.
    fn reseal(&self, _: &mut Input, _: &mut Rng) {}

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        match BuildMark::decode(input.bytes()) {
            Ok(mark) => {
                hold(mark.encode() == input.bytes(), || {
                    format!("{mark:?} encodes to other bytes")
                })?;
                Ok(Verdict::Accepted)
            }
            Err(Error::Malformed { .. }) => Ok(Verdict::Refused),
            Err(error) => Err(format!("refused with {error:?}")),
        }
    }
}
