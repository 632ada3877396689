//! Frames come out as they went in, however the bytes are cut; anything else is refused.

use proptest::prelude::*;

use super::*;

type Owned = (u8, u32, Vec<u8>, Vec<u8>);

fn encode((kind, request, head, payload): &Owned) -> Vec<u8> {
    let (front, back) = payload.split_at(payload.len() / 2);
    let header = frame_header(*kind, *request, head, &[front, back]).unwrap();
    [&header, head.as_slice(), payload].concat()
}

fn decode(pieces: &[&[u8]], limit: usize) -> Result<(Vec<Owned>, usize)> {
    let mut decoder = Decoder::new(limit);
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.feed(piece, |frame| {
            frames.push((
                frame.kind,
                frame.request,
                frame.head.to_vec(),
                frame.payload.to_vec(),
            ));
        })?;
    }
    Ok((frames, decoder.buffered()))
}

fn append(request: u32, head: &[u8]) -> Frame<'_> {
    Frame {
        kind: 16,
        request,
        head,
        payload: b"batch",
    }
}

fn frames() -> impl Strategy<Value = Vec<Owned>> {
    let bytes = |min| prop::collection::vec(any::<u8>(), min..60);
    prop::collection::vec((1..=255u8, any::<u32>(), bytes(1), bytes(0)), 0..6)
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_frames(frames in frames(), cuts in prop::collection::vec(0..400usize, 0..8)) {
        let bytes: Vec<u8> = frames.iter().flat_map(encode).collect();
        let mut ends: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        ends.extend([0, bytes.len()]);
        ends.sort_unstable();
        let pieces: Vec<&[u8]> = ends.windows(2).map(|end| &bytes[end[0]..end[1]]).collect();
        prop_assert_eq!(decode(&pieces, 1000).unwrap(), (frames.clone(), 0));
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(decode(&single, 1000).unwrap(), (frames, 0));
    }

    #[test]
    fn a_flipped_bit_is_refused_or_waits_for_more(frames in frames(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        prop_assume!(!frames.is_empty());
        let mut bytes: Vec<u8> = frames.iter().flat_map(encode).collect();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok((found, buffered)) = decode(&[&bytes], 1000) {
            // Only a greater length can hide it: what follows is taken for part of the frame.
            prop_assert!(buffered > 0 && found.len() < frames.len());
            prop_assert_eq!(&found[..], &frames[..found.len()]);
        }
    }

    #[test]
    fn random_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut decoder = Decoder::new(100);
        let _ = decoder.feed(&bytes, |_| {});
        prop_assert!(decoder.buffered() <= 100);
    }
}

#[test]
fn a_length_over_the_limit_is_refused_at_the_header() {
    let frame = encode(&(1, 1, vec![0x90], vec![0; 80]));
    assert!(decode(&[&frame], 101).is_ok());
    let refused = decode(&[&frame[..19], &frame[19..20]], 100).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "malformed frame at byte 0: 101 bytes, the limit is 100"
    );
}

#[test]
fn feeding_what_is_missing_stops_at_the_end_of_a_frame() {
    let first = encode(&(1, 1, vec![0x90; 3], vec![0; 80]));
    let bytes = [first.clone(), first.clone()].concat();
    let mut decoder = Decoder::new(200);
    let (mut at, mut frames) = (0, 0);
    while frames == 0 {
        let missing = decoder.missing();
        decoder
            .feed(&bytes[at..at + missing], |_| frames += 1)
            .unwrap();
        at += missing;
    }
    assert_eq!((at, decoder.buffered()), (first.len(), 0));
}

#[test]
fn an_error_names_the_offset_and_is_final() {
    let mut bytes = encode(&(1, 1, vec![0x90], vec![]));
    let first = bytes.len() as u64;
    bytes.extend(encode(&(2, 1, vec![0x90], vec![])));
    *bytes.last_mut().unwrap() ^= 1;
    let mut decoder = Decoder::new(100);
    let error = decoder.feed(&bytes, |_| {}).unwrap_err();
    assert!(matches!(error, Error::Malformed { offset, .. } if offset == first));
    let good = encode(&(1, 1, vec![0x90], vec![]));
    assert!(decoder.feed(&good, |_| panic!("gave a frame")).is_err());
}

#[test]
fn every_field_of_the_header_is_judged() {
    let good = encode(&(1, 1, vec![0x90], vec![7]));
    for (at, value) in [(8, 0), (9, 1), (10, 1), (11, 1), (16, 0), (16, 3)] {
        let mut bytes = good.clone();
        bytes[at] = value;
        let checksum = crc32c::crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        assert!(decode(&[&bytes], 100).is_err(), "byte {at} is {value}");
    }
    assert!(frame_header(0, 1, &[0x90], &[]).is_err());
    assert!(frame_header(1, 1, &[], &[]).is_err());
}

#[test]
fn appends_of_a_stream_join_until_something_else_comes() {
    let mut grouping = Grouping::default();
    let place = |grouping: &mut Grouping, head: &[u8]| grouping.place(&append(1, head));
    let first = |stream, epoch| Place::First { stream, epoch };
    assert_eq!(place(&mut grouping, &[0x92, 1, 2]), first(1, 2));
    assert_eq!(place(&mut grouping, &[0x92, 1, 3]), first(1, 3));
    assert_eq!(place(&mut grouping, &[0x92, 1, 2]), Place::Join(0));
    assert_eq!(place(&mut grouping, &[0x92, 0xcc, 1, 3]), Place::Join(1));
    assert_eq!(place(&mut grouping, &[0x93, 1, 3, 0xc2]), Place::Join(1));
    assert_eq!(place(&mut grouping, &[0x93, 1, 2, 0xc3]), Place::Single);
    assert_eq!(place(&mut grouping, &[0x92, 1, 3]), first(1, 3));
    assert_eq!(place(&mut grouping, &[0x92, 1, 3]), Place::Join(3));
}

#[test]
fn only_plain_appends_are_grouped() {
    let huge = [0x92, 1, 0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0];
    let largest = [
        0x92, 1, 0xcf, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    ];
    assert_eq!(
        append_target(&append(1, &largest)),
        Some((1, i64::MAX as u64))
    );
    for head in [
        &huge[..],
        &[0x92, 1],
        &[0x92, 1, 2, 3],
        &[0x92, 1, 2, 0xc2],
        &[0x93, 1, 2],
        &[0x93, 1, 2, 0xc3],
        &[0x93, 1, 2, 0xc2, 0xc2],
        &[0x92, 1, 0xff],
        &[],
    ] {
        assert_eq!(append_target(&append(1, head)), None, "{head:?}");
    }
    assert_eq!(append_target(&append(0, &[0x92, 1, 2])), None);
    let bare = Frame {
        payload: &[],
        ..append(1, &[0x92, 1, 2])
    };
    assert_eq!(append_target(&bare), None);
    let other = Frame {
        kind: 18,
        ..append(1, &[0x92, 1, 2])
    };
    assert_eq!(append_target(&other), None);
}
