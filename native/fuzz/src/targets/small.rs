//! The small files: `IDENTITY`, `WATERMARK`, `CHECKPOINT`, `CURRENT`.
//!
//! Each is accepted only in the bytes that its encoder gives (behind a watermark or a checkpoint
//! anything may stand: it is overwritten in place). A checkpoint may also have the parts of its
//! state in another order.

use std::path::Path;

use braidlog_core::error::Error;
use braidlog_core::index::decode;
use braidlog_core::limits::{BLOCK_BYTES, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use braidlog_core::manifest::current::{decode_current, encode_current};
use braidlog_core::wal::{Checkpoint, Mark, NodeIdentity, Seed, Watermark};

use super::frame_make::Maker;
use super::side;
use super::side_make::side_file;
use crate::input::Input;
use crate::mutate::{Field, damage, put_u32, u32_at};
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
        let tables = rng.within(0..=1) == 1;
        let identity = NodeIdentity {
            node: id(rng),
            wal: id(rng),
            segment_bytes: 4096 * rng.within(16..=1 << 19) as u32,
            holes: tables || rng.within(0..=1) == 1,
            tables,
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
            reach: rng.u32(),
        };
        Input::single(mark.encode())
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        let fields: [Field; 7] = [(0, 4), (4, 4), (8, 8), (16, 8), (24, 4), (28, 4), (32, 4)];
        damage(input.bytes_mut(), &fields, other.bytes(), rng);
    }

    fn reseal(&self, input: &mut Input, _: &mut Rng) {
        seal(input.bytes_mut(), 32);
    }

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let Some(mark) = Watermark::decode(input.bytes()) else {
            return Ok(Verdict::Refused);
        };
        // The first format had no reach.
        let old = u32_at(input.bytes(), 4) == 1 && mark.reach == u32::MAX;
        hold(old || input.bytes().starts_with(&mark.encode()), || {
            format!("{mark:?} encodes to other bytes")
        })?;
        Ok(Verdict::Accepted)
    }
}

/// `CHECKPOINT`.
pub struct Checkpoints;

/// Where the checksum of a checkpoint stands, and where its state begins.
const CHECKPOINT_SUM: usize = 44;

impl Checkpoints {
    /// Damage one.
    pub fn damage(bytes: &mut Vec<u8>, foreign: &[u8], rng: &mut Rng) {
        let fields: [Field; 10] = [
            (0, 4),
            (4, 4),
            (8, 8),
            (16, 8),
            (24, 4),
            (28, 4),
            (32, 4),
            (36, 4),
            (40, 4),
            (44, 4),
        ];
        damage(bytes, &fields, foreign, rng);
    }

    /// Make its checksums right: of the index inside, and then of the whole.
    pub fn seal(bytes: &mut Vec<u8>, rng: &mut Rng) {
        if bytes.len() < CHECKPOINT_SUM + 4 {
            return;
        }
        let state = u32_at(bytes, 36) as usize;
        let len = state.saturating_add(u32_at(bytes, 40) as usize);
        let end = len.saturating_add(CHECKPOINT_SUM + 4).min(bytes.len());
        let index = CHECKPOINT_SUM + 4 + state.min(bytes.len());
        if index < end {
            // Behind the end may stand what is left of a longer one.
            let rest = bytes.split_off(end);
            let mut side = bytes.split_off(index);
            side::reseal(&mut side, rng);
            bytes.append(&mut side);
            bytes.extend_from_slice(&rest);
        }
        let head = crc32c::crc32c(&bytes[..CHECKPOINT_SUM]);
        let crc = crc32c::crc32c_append(head, &bytes[CHECKPOINT_SUM + 4..end]);
        put_u32(bytes, CHECKPOINT_SUM, crc);
    }
}

impl Target for Checkpoints {
    fn name(&self) -> &'static str {
        "checkpoint"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        let Ok((side, index)) = decode(&side_file(rng)) else {
            return Input::single(Vec::new());
        };
        let seed = Seed {
            salt: side.salt,
            segment: side.segment,
        };
        let mut maker = Maker::new(seed, 0, rng);
        maker.changes(12);
        let state = maker.state;
        let offset = side.sealed_bytes as u32;
        let mark = Mark {
            seed,
            offset,
            ordinal: 1 + rng.u32() / 2,
            last: offset / 2,
        };
        let checkpoint = Checkpoint { mark, state, index };
        Input::single(checkpoint.encode())
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        Self::damage(input.bytes_mut(), other.bytes(), rng);
    }

    fn reseal(&self, input: &mut Input, rng: &mut Rng) {
        Self::seal(input.bytes_mut(), rng);
    }

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let Some(found) = Checkpoint::decode(input.bytes()) else {
            return Ok(Verdict::Refused);
        };
        // The parts of a state may come in any order, so its bytes need not be the same.
        hold(
            Checkpoint::decode(&found.encode()).as_ref() == Some(&found),
            || format!("{:?} encodes to another one", found.mark),
        )?;
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
