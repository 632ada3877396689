//! The small files: `IDENTITY`, `WATERMARK`, `CURRENT`.
//!
//! Each is accepted only in the bytes that its encoder gives (behind a watermark anything may
//! stand: it is a fixed-size record that is overwritten in place).

use std::path::Path;

use braidlog_core::error::Error;
use braidlog_core::limits::{BLOCK_BYTES, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use braidlog_core::manifest::current::{decode_current, encode_current};
use braidlog_core::wal::{NodeIdentity, Watermark};

use crate::input::Input;
use crate::mutate::{Field, damage, put_u32};
use crate::rng::Rng;
use crate::target::{Broken, Target, Verdict, hold};

/// `IDENTITY`.
pub struct Identity;

impl Target for Identity {
    fn name(&self) -> &'static str {
        "identity"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        let id = |rng: &mut Rng| u128::from(rng.u64()) << 64 | u128::from(rng.u64());
        let identity = NodeIdentity {
            node: id(rng),
            wal: id(rng),
            segment_bytes: 4096 * rng.within(16..=1 << 19) as u32,
        };
        Input::single(identity.encode())
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        let fields: [Field; 5] = [(0, 4), (4, 4), (8, 8), (40, 4), (44, 4)];
        damage(input.bytes_mut(), &fields, other.bytes(), rng);
    }

    fn reseal(&self, input: &mut Input, _: &mut Rng) {
        seal(input.bytes_mut(), 44);
    }

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let bytes = input.bytes();
        match NodeIdentity::decode(bytes, Path::new("IDENTITY")) {
            Ok(identity) => {
                hold(identity.encode() == bytes, || {
                    format!("{identity:?} encodes to other bytes")
                })?;
                // What is divided by and allocated later.
                let segment = u64::from(identity.segment_bytes);
                let sound = (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment)
                    && segment.is_multiple_of(BLOCK_BYTES as u64);
                hold(sound, || format!("segments of {segment} bytes"))?;
                Ok(Verdict::Accepted)
            }
            Err(Error::Corruption { .. } | Error::Foreign { .. } | Error::Newer { .. }) => {
                Ok(Verdict::Refused)
            }
            Err(error) => Err(format!("refused with {error:?}")),
        }
    }
}

/// `WATERMARK`.
pub struct Watermarks;

impl Target for Watermarks {
    fn name(&self) -> &'static str {
        "watermark"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        let mark = Watermark {
            segment: rng.u64() >> rng.below(64),
            salt: rng.u64(),
            durable: rng.u32(),
        };
        Input::single(mark.encode())
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        let fields: [Field; 6] = [(0, 4), (4, 4), (8, 8), (16, 8), (24, 4), (28, 4)];
        damage(input.bytes_mut(), &fields, other.bytes(), rng);
    }

    fn reseal(&self, input: &mut Input, _: &mut Rng) {
        seal(input.bytes_mut(), 28);
    }

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let Some(mark) = Watermark::decode(input.bytes()) else {
            return Ok(Verdict::Refused);
        };
        hold(input.bytes().starts_with(&mark.encode()), || {
            format!("{mark:?} encodes to other bytes")
        })?;
        Ok(Verdict::Accepted)
    }
}

/// `CURRENT`.
pub struct Current;

impl Target for Current {
    fn name(&self) -> &'static str {
        "current"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        Input::single(encode_current(rng.u64() >> rng.within(2..=63)))
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        let bytes = input.bytes_mut();
        if rng.one_in(2) && !bytes.is_empty() {
            // Text, so that it stays a name more often.
            let at = rng.below(bytes.len());
            bytes[at] = *rng.pick(b"0123456789abcdef- +\n");
            return;
        }
        damage(bytes, &[], other.bytes(), rng);
    }

    /// The checksum in hexadecimal behind the first space.
    fn reseal(&self, input: &mut Input, _: &mut Rng) {
        let bytes = input.bytes_mut();
        if let Some(space) = bytes.iter().position(|byte| *byte == b' ') {
            let sum = format!(" {:08x}\n", crc32c::crc32c(&bytes[..space]));
            bytes.splice(space.., sum.into_bytes());
        }
    }

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        match decode_current(Path::new("CURRENT"), input.bytes()) {
            Ok(number) => {
                hold(encode_current(number) == input.bytes(), || {
                    format!("{number} encodes to other bytes")
                })?;
                Ok(Verdict::Accepted)
            }
            Err(Error::Corruption { .. }) => Ok(Verdict::Refused),
            Err(error) => Err(format!("refused with {error:?}")),
        }
    }
}

fn seal(bytes: &mut [u8], at: usize) {
    if bytes.len() >= at + 4 {
        let crc = crc32c::crc32c(&bytes[..at]);
        put_u32(bytes, at, crc);
    }
}
