//! Side files as they are written, and as damage leaves them.

use super::*;
use crate::Error;
use crate::limits::SAMPLE_BYTES;

/// A bit of everything: samples, a run, a binding cut, a lost last frame, moved frames, a
/// stream of commits only.
pub(super) fn small() -> SegmentIndex {
    let mut index = SegmentIndex::new();
    for i in 0..6_u32 {
        index
            .note(
                5,
                NATIVE,
                frame(100 + u64::from(i) * 10, 10, 4096 + i * 3000, 2000),
            )
            .unwrap();
    }
    index
        .commit(
            5,
            NATIVE,
            CommitRun {
                glsn_begin: 900,
                llsn_begin: 100,
                length: 30,
            },
        )
        .unwrap();
    index
        .commit(
            5,
            NATIVE,
            CommitRun {
                glsn_begin: 950,
                llsn_begin: 130,
                length: 5,
            },
        )
        .unwrap();
    index.cut(5, 138, 30_000).unwrap();
    index.note(5, NATIVE, frame(138, 2, 30_048, 64)).unwrap();
    index.note(5, NATIVE, frame(140, 2, 30_200, 64)).unwrap();
    index.cut(5, 140, 30_300).unwrap();
    index.note(5, 1, frame(7, 3, 40_000, 64)).unwrap();
    index.note(5, 1, frame(12, 3, 40_064, 64)).unwrap();
    let run = CommitRun {
        glsn_begin: 1000,
        llsn_begin: 1,
        length: 1,
    };
    index.commit(9, NATIVE, run).unwrap();
    index
}

pub(super) fn small_file() -> Vec<u8> {
    small().encode(0x0102_0304_0506_0708, 0x1112_1314_1516_1718, 50_000)
}

#[test]
fn the_bytes_are_where_the_format_says() {
    let file = small_file();
    assert_eq!(file[..8], *b"BRIX\x02\0\0\0");
    assert_eq!(file[8..16], [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(file[16..24], 0x1112_1314_1516_1718_u64.to_le_bytes());
    assert_eq!(file[24..32], 50_000_u64.to_le_bytes());
    let words = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    // 3 streams, 5 samples in 9 bytes, 3 runs, 2 cuts
    assert_eq!([32, 36, 40, 44].map(words), [3, 9, 3, 2]);
    assert_eq!(file.len(), 56 + 3 * 112 + 9 + 3 * 24 + 2 * 16);
    assert_eq!(
        [56, 60, 168, 172, 280].map(words),
        [5, 2 | 4, 5, 1 | 2 | 1 << 16, 9]
    );
    assert_eq!([156, 268, 380].map(words), [3, 2, 0]);
    // Stream 5: LLSN 100 at 4096, 130 at 13_096, 138 at 30_048; moved: 7 at 40_000, 12 at 40_064.
    let (first, second) = ([30, 0xa8, 0x46], [8, 0xb8, 0x84, 0x01]);
    assert_eq!(9000, 0x28 + 0x46 * 128);
    assert_eq!(30_048 - 13_096, 0x38 + 0x04 * 128 + 128 * 128);
    let samples = [&first[..], &second, &[5, 64]].concat();
    assert_eq!(file[56 + 3 * 112..][..9], samples);
    let (header, index) = decode(&file).unwrap();
    assert_eq!(index, small());
    assert_eq!((header.streams, header.file_bytes), (3, file.len() as u64));
}

#[test]
fn an_empty_segment_has_a_side_file_too() {
    let file = SegmentIndex::new().encode(1, 2, 4096);
    assert_eq!(file.len(), HEADER_BYTES);
    assert!(decode(&file).unwrap().1.is_empty());
}

#[test]
fn a_summary_needs_the_head_only_and_agrees_with_the_whole() {
    let file = small_file();
    let head = usize::try_from(summary_bytes(&file[..HEADER_BYTES]).unwrap()).unwrap();
    assert_eq!(head, 56 + 3 * 112);
    let (header, summaries) = decode_summary(&file[..head]).unwrap();
    let (whole, index) = decode(&file).unwrap();
    assert_eq!(header, whole);
    assert_eq!(summaries.len(), index.len());
    for (summary, (stream, index)) in summaries.iter().zip(index.iter()) {
        assert_eq!(
            (summary.stream, summary.lane > NATIVE),
            (stream, index.is_moved())
        );
        assert_eq!(summary.range, index.range());
        assert_eq!((summary.first, summary.last), (index.first(), index.last()));
        assert_eq!(
            (summary.frames, summary.bytes),
            (index.frames(), index.bytes())
        );
        assert_eq!(summary.timestamps, index.timestamps());
    }
    assert_eq!(summaries[0].range, Some(100..140));
    assert_eq!(summaries[0].glsns, Some(900..955));
    assert_eq!(
        (summaries[1].range.clone(), summaries[1].glsns.clone()),
        (Some(7..15), None)
    );
    assert_eq!(
        (summaries[2].range.clone(), summaries[2].glsns.clone()),
        (None, Some(1000..1001))
    );
}

#[test]
fn every_flipped_bit_is_noticed() {
    let file = small_file();
    let head = 56 + 3 * 112;
    for bit in 0..file.len() * 8 {
        let mut bad = file.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let refused = decode(&bad);
        assert!(matches!(refused, Err(Error::Malformed { .. })), "bit {bit}");
        // The body checksum is part of the head: only the arrays are out of a summary's sight.
        assert_eq!(decode_summary(&bad).is_err(), bit / 8 < head, "bit {bit}");
    }
}

#[test]
fn every_other_length_is_noticed() {
    let file = small_file();
    let head = 56 + 3 * 112;
    for length in 0..file.len() {
        assert!(
            matches!(decode(&file[..length]), Err(Error::Malformed { .. })),
            "{length}"
        );
        assert_eq!(
            decode_summary(&file[..length]).is_ok(),
            length >= head,
            "{length}"
        );
    }
    for more in [1, 8, 4096] {
        let mut longer = file.clone();
        longer.resize(file.len() + more, 0);
        assert!(
            matches!(decode(&longer), Err(Error::Malformed { .. })),
            "{more}"
        );
    }
}

#[test]
fn frames_of_any_size_cost_at_most_a_500th() {
    let segment = 64_u64 << 20;
    let sizes = [
        64, 72, 128, 200, 512, 1000, 1024, 2048, 3000, 4088, 4096, 4104, 8192, 10_008,
    ];
    for size in sizes.into_iter().chain([65_536, 100_000, 1 << 20]) {
        let mut index = SegmentIndex::new();
        let frames = segment / size;
        for i in 0..frames {
            let note = frame(1 + i * 3, 3, (i * size) as u32, size as u32);
            index.note(1, NATIVE, note).unwrap();
            let run = CommitRun {
                glsn_begin: 1 + i * 3,
                llsn_begin: 1 + i * 3,
                length: 3,
            };
            index.commit(1, NATIVE, run).unwrap();
        }
        let file = index.encode(1, 1, segment).len() as u64;
        assert!(
            file * 500 <= frames * size,
            "frames of {size}: {file} bytes"
        );
    }
}

/// Header, entry and commit run included, for a segment of the default size.
#[test]
fn a_whole_file_takes_at_most_8_bytes_a_sample() {
    let segment = 64_u64 << 20;
    for size in [176, 512, 4096, 8192, 16_384, 65_536, 131_072, 1 << 20] {
        let mut index = SegmentIndex::new();
        let records = (size / 128) as u32;
        for i in 0..segment / size {
            let llsn = 1 + i * u64::from(records);
            let note = frame(llsn, records, (i * size) as u32, size as u32);
            index.note(1, NATIVE, note).unwrap();
        }
        let run = CommitRun {
            glsn_begin: 1,
            llsn_begin: 1,
            length: 1,
        };
        index.commit(1, NATIVE, run).unwrap();
        let samples = index.stream(1, NATIVE).unwrap().samples().len();
        let file = index.encode(1, 1, segment).len();
        // What is the same for each segment is thinly spread over a few large frames.
        let most = if size > 65_536 { 8 } else { 6 };
        assert!(
            file <= samples * most,
            "frames of {size}: {file} bytes for {samples} samples"
        );
    }
}

#[test]
fn many_streams_cost_a_fixed_part_each_and_4_bytes_a_sample() {
    let (streams, frames, size) = (100_u32, 200_000_u32, 320_u32);
    let mut index = SegmentIndex::new();
    for i in 0..frames {
        index
            .note(
                i % streams,
                NATIVE,
                frame(u64::from(i / streams), 1, i * size, size),
            )
            .unwrap();
    }
    let file = index.encode(1, 1, u64::from(frames * size)).len() as u64;
    let data = u64::from(frames * size);
    assert!(
        file <= 56 + u64::from(streams) * 112 + data / SAMPLE_BYTES * 4,
        "{file}"
    );
}
