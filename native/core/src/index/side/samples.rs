//! The samples of a side file: how far each is behind the one before it.
//!
//! The first sample of a stream is its first frame, which the entry has. Each further one is two
//! varints, both at least 1:
//!
//! ```text
//! varint  delta less that of the sample before
//! varint  offset less that of the sample before
//! ```
//!
//! A varint is LEB128: 7 bits a byte, least significant first, bit 7 set in all bytes but the
//! last. Only the shortest form counts, so that an index has one encoding. Frames of one stream
//! in a row take 3 to 5 bytes a sample, anything at most 10.

use crate::index::stream::Sample;

/// Bits of a number that a byte carries; the bit above them says that more follow.
const BITS: u32 = 7;
const MORE: u8 = 1 << BITS;

/// Least bytes of a sample: one for each number.
const SAMPLE_MIN: usize = 2;

/// Append a stream's samples. They rise in both numbers, as the index keeps them.
pub(super) fn put(samples: &[Sample], out: &mut Vec<u8>) {
    for pair in samples.windows(2) {
        put_varint(pair[1].delta - pair[0].delta, out);
        put_varint(pair[1].offset - pair[0].offset, out);
    }
}

/// Split the next stream's `count` samples off `rest`; its first frame is at `first_offset`.
pub(super) fn take(
    rest: &mut &[u8],
    count: u32,
    first_offset: u32,
) -> Result<Vec<Sample>, &'static str> {
    let Some(further) = count.checked_sub(1) else {
        return Ok(Vec::new());
    };
    // Before the count decides how much is allocated.
    if further as usize > rest.len() / SAMPLE_MIN {
        return Err("fewer bytes than samples");
    }
    let mut samples = Vec::with_capacity(count as usize);
    let mut last = Sample {
        delta: 0,
        offset: first_offset,
    };
    samples.push(last);
    for _ in 0..further {
        last = Sample {
            delta: above(last.delta, take_varint(rest)?)?,
            offset: above(last.offset, take_varint(rest)?)?,
        };
        samples.push(last);
    }
    Ok(samples)
}

fn above(last: u32, step: u32) -> Result<u32, &'static str> {
    if step == 0 {
        return Err("samples do not rise");
    }
    last.checked_add(step).ok_or("sample passes 32 bits")
}

fn put_varint(mut value: u32, out: &mut Vec<u8>) {
    while value >= u32::from(MORE) {
        out.push(value as u8 | MORE);
        value >>= BITS;
    }
    out.push(value as u8);
}

fn take_varint(rest: &mut &[u8]) -> Result<u32, &'static str> {
    let mut value = 0;
    for shift in (0..u32::BITS).step_by(BITS as usize) {
        let (byte, left) = rest.split_first().ok_or("samples end inside a number")?;
        *rest = left;
        let bits = u32::from(byte & !MORE);
        // The fifth byte has room for more than is left of 32 bits.
        if bits << shift >> shift != bits {
            return Err("number of a sample passes 32 bits");
        }
        value |= bits << shift;
        if byte & MORE == 0 {
            let overlong = bits == 0 && shift > 0;
            return if overlong {
                Err("number of a sample is not in its shortest form")
            } else {
                Ok(value)
            };
        }
    }
    Err("number of a sample passes 32 bits")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(value: u32) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(value, &mut out);
        out
    }

    #[test]
    fn numbers_take_a_byte_for_each_7_bits() {
        for (value, bytes) in [
            (0, &[0][..]),
            (1, &[1]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (300, &[0xac, 2]),
            (16_383, &[0xff, 0x7f]),
            (16_384, &[0x80, 0x80, 1]),
            (u32::MAX, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            assert_eq!(encoded(value), bytes, "{value}");
            let mut rest = bytes;
            assert_eq!(take_varint(&mut rest), Ok(value));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn numbers_of_another_form_are_refused() {
        let (overlong, wide, short) = (
            "number of a sample is not in its shortest form",
            "number of a sample passes 32 bits",
            "samples end inside a number",
        );
        for (bytes, reason) in [
            (&[0x80, 0][..], overlong),
            (&[0x81, 0], overlong),
            (&[0xff, 0x80, 0x80, 0x80, 0], overlong),
            (&[0xff, 0xff, 0xff, 0xff, 0x10], wide),
            (&[0xff, 0xff, 0xff, 0xff, 0x8f], wide),
            (&[0x80, 0x80, 0x80, 0x80, 0x80, 0], wide),
            (&[], short),
            (&[0x80], short),
            (&[0x80, 0x80, 0x80, 0x80], short),
        ] {
            let mut rest = bytes;
            assert_eq!(take_varint(&mut rest), Err(reason), "{bytes:x?}");
        }
    }

    #[test]
    fn samples_that_cannot_be_are_refused() {
        for (bytes, count, first_offset, reason) in [
            (&[1, 1, 1][..], 3, 0, "fewer bytes than samples"),
            (&[1, 1], u32::MAX, 0, "fewer bytes than samples"),
            (&[0, 1], 2, 0, "samples do not rise"),
            (&[1, 0], 2, 0, "samples do not rise"),
            (&[1, 1], 2, u32::MAX, "sample passes 32 bits"),
            (
                &[0xff, 0xff, 0xff, 0xff, 0x0f, 1, 1, 1],
                3,
                0,
                "sample passes 32 bits",
            ),
            (&[0x81, 0x80], 2, 0, "samples end inside a number"),
        ] {
            let mut rest = bytes;
            assert_eq!(take(&mut rest, count, first_offset), Err(reason));
        }
    }

    proptest! {
        #[test]
        fn samples_come_back_and_leave_what_follows(
            first_offset: u32,
            steps in prop::collection::vec((1..=u32::MAX, 1..=u32::MAX, 0..32_u32), 0..20),
            behind in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            let mut samples = vec![Sample { delta: 0, offset: first_offset }];
            for (delta, offset, shift) in steps {
                let last = samples[samples.len() - 1];
                let next = last
                    .delta
                    .checked_add((delta >> shift).max(1))
                    .zip(last.offset.checked_add((offset >> shift).max(1)));
                samples.extend(next.map(|(delta, offset)| Sample { delta, offset }));
            }
            let mut bytes = Vec::new();
            put(&samples, &mut bytes);
            bytes.extend_from_slice(&behind);
            let mut rest = &bytes[..];
            let count = samples.len() as u32;
            prop_assert_eq!(take(&mut rest, count, first_offset), Ok(samples));
            prop_assert_eq!(rest, &behind[..]);
        }
    }

    proptest! {
        #[test]
        fn what_is_taken_is_put_the_same(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0..3_u8, 0x80..0x83_u8], 0..30),
            count in 0..12_u32,
            first_offset: u32,
        ) {
            let mut rest = &bytes[..];
            if let Ok(samples) = take(&mut rest, count, first_offset) {
                prop_assert_eq!(samples.len(), count as usize);
                let mut again = Vec::new();
                put(&samples, &mut again);
                prop_assert_eq!(&again[..], &bytes[..bytes.len() - rest.len()]);
            }
        }
    }
}
