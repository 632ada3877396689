//! Side files whose checksums are right and whose content is not.

use proptest::prelude::*;

use super::side_file::{small, small_file};
use super::*;
use crate::Error;

/// Where the parts of `small_file` begin.
const FIRST: usize = 56;
const MOVED: usize = FIRST + 112;
const BARE: usize = MOVED + 112;
const SAMPLES: usize = BARE + 112;
const RUNS: usize = SAMPLES + 9;
const CUTS: usize = RUNS + 3 * 24;

/// Make both checksums right again.
fn reseal(file: &mut [u8]) {
    let streams = u32::from_le_bytes(file[32..36].try_into().unwrap()) as usize;
    let Some(head) = streams
        .checked_mul(112)
        .map(|n| n + 56)
        .filter(|head| *head <= file.len())
    else {
        return;
    };
    let body = crc32c::crc32c(&file[head..]);
    file[48..52].copy_from_slice(&body.to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&file[..52]), &file[56..head]);
    file[52..56].copy_from_slice(&sum.to_le_bytes());
}

fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = small_file();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    reseal(&mut file);
    file
}

#[test]
fn an_untouched_file_passes_resealed() {
    assert_eq!(with(0, b"BRIX"), small_file());
}

#[test]
fn every_broken_invariant_is_refused() {
    let u32s = |at: usize, value: u32| with(at, &value.to_le_bytes());
    let u64s = |at: usize, value: u64| with(at, &value.to_le_bytes());
    let position =
        |offset: u32, llsn: u64| [&offset.to_le_bytes()[..], &llsn.to_le_bytes()].concat();
    let cases = [
        (
            "last frame lost, but behind the last sample",
            with(FIRST + 28, &position(30_100, 139)),
        ),
        (
            "last frame lost without a cut",
            with(MOVED + 4, &[1 | 2 | 4]),
        ),
        (
            "last frame where the next one starts",
            u32s(MOVED + 96, 40_064),
        ),
        ("magic", with(0, b"BRIY")),
        ("version", u32s(4, 1)),
        ("newer version", u32s(4, 3)),
        ("frames behind the sealed end", u64s(24, 30_000)),
        ("more bytes of samples", u32s(36, 10)),
        ("fewer bytes of samples", u32s(36, 8)),
        ("total of runs", u32s(40, 2)),
        ("total of cuts", u32s(44, 0)),
        ("streams descend", u32s(FIRST, 6)),
        ("streams repeat", with(MOVED + 4, &[2])),
        ("unknown flag", with(FIRST + 4, &[2 | 4 | 8])),
        ("flag padding", with(FIRST + 5, &[1])),
        ("not placed, but frames", with(FIRST + 4, &[4])),
        ("begin above end", u64s(FIRST + 8, 141)),
        ("empty, but samples", u64s(FIRST + 16, 100)),
        ("first offset", u32s(FIRST + 24, 4097)),
        ("last offset", u32s(FIRST + 28, 30_049)),
        ("last LLSN", u64s(FIRST + 32, 137)),
        ("last LLSN behind the end", u64s(FIRST + 32, 140)),
        ("fewer frames than samples", u64s(FIRST + 40, 2)),
        ("more frames than bytes", u64s(FIRST + 48, 7)),
        ("more bytes than offsets", u64s(FIRST + 48, 30_302)),
        ("sample at bytes not there", u64s(FIRST + 56, u64::MAX)),
        ("timestamps reversed", u64s(FIRST + 64, 1)),
        ("GLSN range reversed", u64s(FIRST + 80, 956)),
        ("GLSN begin", u64s(FIRST + 80, 899)),
        ("GLSN end", u64s(FIRST + 88, 956)),
        ("GLSNs without runs", u64s(MOVED + 88, 1)),
        (
            "empty GLSN range without runs",
            with(MOVED + 80, &[1, 0, 0, 0, 0, 0, 0, 0, 1]),
        ),
        ("next offset below the last frame", u32s(FIRST + 96, 30_048)),
        ("next offset below the last cut", u32s(FIRST + 96, 30_300)),
        ("bare stream with an end", u64s(BARE + 16, 1)),
        ("bare stream placed", with(BARE + 4, &[2])),
        ("bare stream with frames", u64s(BARE + 40, 1)),
        ("run empty", u64s(RUNS + 16, 0)),
        ("run wraps", u64s(RUNS + 16, u64::MAX)),
        ("run skips", u64s(RUNS + 24 + 8, 131)),
        ("GLSN falls", u64s(RUNS + 24, 929)),
        ("runs not merged", u64s(RUNS + 24, 930)),
        ("commit behind the end", u64s(RUNS + 24 + 16, 20)),
        ("cut repeats", u64s(CUTS + 16, 138)),
        ("cut offset repeats", u32s(CUTS + 24, 30_000)),
        ("cut behind the end", u64s(CUTS + 16, 141)),
        ("last frame lost to a cut elsewhere", u64s(CUTS + 16, 139)),
        ("cut padding", u32s(CUTS + 12, 1)),
    ];
    for (what, file) in cases {
        assert_ne!(file, small_file(), "{what}: nothing was changed");
        let refused = decode(&file);
        assert!(
            matches!(refused, Err(Error::Malformed { .. })),
            "{what}: {refused:?}"
        );
    }
}

#[test]
fn forged_samples_are_refused_for_what_is_wrong_with_them() {
    let mut missing = with(MOVED + 40, &[3]);
    missing[MOVED + 100] = 3;
    reseal(&mut missing);
    let astray = "the last sample contradicts the last frame";
    let rise = "samples do not rise";
    let overlong = "number of a sample is not in its shortest form";
    for (what, file, reason) in [
        ("sample repeats", with(SAMPLES, &[0]), rise),
        ("sample offset repeats", with(SAMPLES + 8, &[0]), rise),
        (
            "sample before the last frame",
            with(SAMPLES + 3, &[7]),
            astray,
        ),
        (
            "sample behind the last frame",
            with(SAMPLES + 3, &[9]),
            astray,
        ),
        ("offset elsewhere", with(SAMPLES + 4, &[0xb9]), astray),
        ("two bytes for 40", with(SAMPLES + 2, &[0]), overlong),
        ("three bytes for 568", with(SAMPLES + 6, &[0]), overlong),
        (
            "number without an end",
            with(SAMPLES + 8, &[64 | 128]),
            "samples end inside a number",
        ),
        (
            "number of 35 bits",
            with(SAMPLES, &[30, 0xff, 0xff, 0xff, 0xff, 0xff]),
            "number of a sample passes 32 bits",
        ),
        (
            "offset of 33 bits",
            with(SAMPLES, &[30, 0xff, 0xff, 0xff, 0xff, 0x0f]),
            "sample passes 32 bits",
        ),
        ("sample missing", missing, "fewer bytes than samples"),
        (
            "sample left",
            with(MOVED + 100, &[1]),
            "more bytes than samples",
        ),
    ] {
        let refused = decode(&file).unwrap_err();
        assert!(
            matches!(&refused, Error::Malformed { .. }) && refused.to_string().contains(reason),
            "{what}: {refused}"
        );
    }
}

#[test]
fn counts_that_promise_more_than_the_input_are_refused_before_allocating() {
    for at in [32, 36, 40, 44, FIRST + 100, FIRST + 104, FIRST + 108] {
        let file = with(at, &u32::MAX.to_le_bytes());
        assert!(
            matches!(decode(&file), Err(Error::Malformed { .. })),
            "{at}"
        );
    }
    // An entry may promise that many samples; their bytes are not there.
    let mut file = small_file();
    let most = u32::MAX.to_le_bytes();
    file[24..32].copy_from_slice(&(1_u64 << 32).to_le_bytes());
    for at in [FIRST + 40, FIRST + 48, FIRST + 96, FIRST + 100] {
        file[at..at + 4].copy_from_slice(&most);
    }
    reseal(&mut file);
    let refused = decode(&file).unwrap_err().to_string();
    assert!(refused.contains("fewer bytes than samples"), "{refused}");
    file[36..40].copy_from_slice(&most);
    reseal(&mut file);
    let refused = decode(&file).unwrap_err().to_string();
    assert!(refused.contains("should be"), "{refused}");
}

/// What decodes encodes to the same bytes, and can be asked anything.
fn check_accepted(file: &[u8]) {
    let Ok((header, index)) = decode(file) else {
        return;
    };
    assert_eq!(
        index.encode(header.segment, header.salt, header.sealed_bytes),
        file
    );
    for (_, index) in index.iter() {
        let range = index.range().unwrap_or_default();
        for llsn in [
            0,
            range.start,
            range.start / 2 + range.end / 2,
            range.end,
            u64::MAX,
        ] {
            assert_eq!(index.floor(llsn).is_some(), range.contains(&llsn));
            assert_eq!(index.ceil(llsn).is_some(), range.contains(&llsn));
            let _ = (
                index.glsn_of(llsn),
                index.glsn_floor(llsn),
                index.glsn_ceil(llsn),
            );
            let _ = index.clip(llsn, u32::MAX, 0);
        }
        let mut index = index.clone();
        let _ = index.note(frame(range.end, 1, 50_000, 64));
        let _ = index.cut(range.start, 60_000);
    }
}

proptest! {
    #[test]
    fn forged_files_are_refused_or_consistent(
        edits in prop::collection::vec((0..CUTS + 32, any::<u8>()), 1..6),
    ) {
        let mut file = small_file();
        for (at, byte) in edits {
            file[at] = byte;
        }
        file[..8].copy_from_slice(b"BRIX\x02\0\0\0");
        reseal(&mut file);
        check_accepted(&file);
    }

    #[test]
    fn fields_set_to_edges_are_refused_or_consistent(
        edits in prop::collection::vec((6..(CUTS + 32) / 8, 0..5_usize), 1..4),
    ) {
        let mut file = small_file();
        for (word, edge) in edits {
            let edge = [0, 1, u64::MAX, u64::from(u32::MAX), 1 << 63][edge];
            // The 9 bytes of the samples put what follows at odd offsets.
            let at = word * 8 + usize::from(word * 8 > SAMPLES);
            file[at..at + 8].copy_from_slice(&edge.to_le_bytes());
        }
        reseal(&mut file);
        check_accepted(&file);
    }

    #[test]
    fn garbage_is_refused(garbage in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(decode(&garbage).is_err());
        let mut file = garbage;
        if file.len() >= HEADER_BYTES {
            file[..8].copy_from_slice(b"BRIX\x02\0\0\0");
            file[32..36].copy_from_slice(&1_u32.to_le_bytes());
            reseal(&mut file);
            check_accepted(&file);
        }
    }
}

#[test]
fn a_decoded_index_goes_on_where_it_stopped() {
    let (_, mut decoded) = decode(&small_file()).unwrap();
    let mut live = small();
    for index in [&mut decoded, &mut live] {
        for i in 0..40_u32 {
            index
                .note(
                    5,
                    NATIVE,
                    frame(140 + u64::from(i), 1, 60_000 + i * 300, 300),
                )
                .unwrap();
        }
    }
    assert_eq!(decoded, live);
}
