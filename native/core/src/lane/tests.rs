//! What is hot is taken, what is cold comes back, and the books are right, however the bytes are cut.

use proptest::prelude::*;

use super::*;
use crate::wire::{HEADER_BYTES, Place, frame_header};

const WINDOW: u64 = 2048;

fn server() -> Conn<usize> {
    let mut conn = Conn::new(Side::Server, WINDOW, 1 << 16, 1 << 16, 0);
    conn.set_hot(true);
    conn
}

fn client(window: u64) -> Conn<usize> {
    let mut conn = Conn::new(Side::Client, window, 1 << 16, 1 << 16, 0);
    conn.set_hot(true);
    conn
}

fn frame(kind: u8, request: u32, head: &[u8], payload: &[u8]) -> Vec<u8> {
    let header = frame_header(kind, request, head, &[payload]).unwrap();
    [&header, head, payload].concat()
}

fn written(conn: &mut Conn<usize>) -> Vec<u8> {
    let bytes = |segment: Segment<usize>| match segment {
        Segment::Own(bytes) => bytes,
        Segment::Lent(index) => panic!("payload {index} was lent"),
    };
    conn.take().into_iter().flat_map(bytes).collect()
}

/// An event without its bytes being borrowed; groups are left out, as they depend on the cuts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Append(u32, Vec<u8>),
    Appended(u32, Appended),
    Cold(u8, u32, Vec<u8>, Vec<u8>),
}

fn seen(event: &Event<'_>) -> Seen {
    match event {
        Event::Append { request, batch, .. } => Seen::Append(*request, batch.to_vec()),
        Event::Appended { request, appended } => Seen::Appended(*request, *appended),
        Event::Cold(frame) => Seen::Cold(
            frame.kind,
            frame.request,
            frame.head.to_vec(),
            frame.payload.to_vec(),
        ),
    }
}

/// Everything that comes of pieces, if nobody handles what is cold.
fn fed(conn: &mut Conn<usize>, pieces: &[&[u8]]) -> (Vec<Seen>, bool) {
    let mut events = Vec::new();
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let mut cold = 0;
            let taken = conn.feed(
                rest,
                |_| false,
                |event| {
                    assert_eq!(cold, 0, "something follows a cold frame");
                    cold += usize::from(matches!(event, Event::Cold(_)));
                    events.push(seen(&event));
                },
            );
            let Ok(taken) = taken else {
                return (events, true);
            };
            assert!(cold > 0 || taken == rest.len());
            rest = &rest[taken..];
        }
    }
    (events, false)
}

fn heads() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0..3u8, 0..2u8).prop_map(|(stream, epoch)| vec![0x92, stream, epoch]),
        2 => Just(vec![0x93, 1, 1, 0xc3]),
        4 => (0..300u64).prop_map(|n| encode_appended(&Appended { llsn: n, glsn: n, count: 1, version: n })),
        1 => prop::collection::vec(any::<u8>(), 1..8),
    ]
}

fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let kind = prop_oneof![4 => Just(16u8), 4 => Just(17u8), 1 => 1..=40u8];
    let payload = prop_oneof![Just(Vec::new()), prop::collection::vec(any::<u8>(), 1..900)];
    let one = (kind, 0..6u32, heads(), payload);
    let bytes =
        one.prop_map(|(kind, request, head, payload)| frame(kind, request, &head, &payload));
    prop::collection::vec(bytes, 0..12)
}

proptest! {
    #[test]
    fn where_the_bytes_are_cut_makes_no_difference(
        frames in frames(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        asked in 0..6u32,
        serves in any::<bool>(),
    ) {
        let bytes = frames.concat();
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        ends.extend([0, bytes.len()]);
        ends.sort_unstable();
        let pieces: Vec<&[u8]> = ends.windows(2).map(|end| &bytes[end[0]..end[1]]).collect();
        let open = || {
            let mut conn = if serves { server() } else { client(WINDOW) };
            let count = if serves { 0 } else { asked };
            for _ in 0..count {
                conn.ask(16, &[0x92, 1, 1], &[b"batch"], |n| n).unwrap();
            }
            conn
        };
        let (mut one, mut other) = (open(), open());
        prop_assert_eq!(fed(&mut one, &[&bytes]), fed(&mut other, &pieces));
        prop_assert_eq!(one.requests().numbers(), other.requests().numbers());
        prop_assert_eq!(one.requests().used(), other.requests().used());
        prop_assert!(one.requests().used() <= WINDOW);
    }

    #[test]
    fn every_frame_is_taken_or_returned(frames in frames()) {
        let (events, refused) = fed(&mut server(), &[&frames.concat()]);
        prop_assert!(!refused);
        prop_assert_eq!(events.len(), frames.len());
        for (event, bytes) in events.iter().zip(&frames) {
            let request = u32::from_le_bytes(bytes[12..16].try_into().unwrap());
            match event {
                Seen::Append(number, _) => prop_assert_eq!((bytes[8], *number), (16, request)),
                Seen::Cold(kind, number, head, payload) => {
                    let again = frame(*kind, *number, head, payload);
                    prop_assert_eq!(&again, bytes);
                }
                Seen::Appended(..) => panic!("a server asks nobody"),
            }
        }
    }

    #[test]
    fn requests_are_as_in_a_list(acts in prop::collection::vec((0..4u8, 0..8u32, 0..1200usize), 0..60)) {
        let mut requests = Requests::new(WINDOW, u32::MAX - 2);
        let mut list: Vec<(u32, u8, u64)> = Vec::new();
        let mut last = u32::MAX - 2;
        for (act, number, size) in acts {
            let used: u64 = list.iter().map(|each| each.2).sum();
            let (cost, kind) = ((size as u64).max(256), (number + 1) as u8);
            let room = used + cost <= WINDOW;
            let known = list.iter().position(|each| each.0 == number);
            if act == 0 {
                let asked = requests.ask(kind, size);
                let mut free = last;
                free = if free == u32::MAX { 1 } else { free + 1 };
                while list.iter().any(|each| each.0 == free) {
                    free = if free == u32::MAX { 1 } else { free + 1 };
                }
                prop_assert_eq!(asked, room.then_some(free));
                if room {
                    list.push((free, kind, cost));
                    last = free;
                }
            } else if act == 1 {
                let expected = match (number, known) {
                    (0, _) => Err(Refusal::Unnumbered),
                    (_, Some(_)) => Err(Refusal::Open),
                    _ if !room => Err(Refusal::Window),
                    _ => Ok(()),
                };
                prop_assert_eq!(requests.open(number, kind, size), expected);
                if expected.is_ok() {
                    list.push((number, kind, cost));
                }
            } else {
                let expected = known.map(|index| list.remove(index).1);
                prop_assert_eq!(requests.kind(number), expected);
                prop_assert_eq!(requests.settle(number), expected);
            }
            let numbers: Vec<u32> = list.iter().map(|each| each.0).collect();
            prop_assert_eq!(requests.numbers(), numbers);
            prop_assert_eq!(requests.used(), list.iter().map(|each| each.2).sum::<u64>());
            prop_assert_eq!(requests.len(), list.len());
        }
    }

    #[test]
    fn appended_comes_back(llsn in any::<i64>(), glsn in 0..70_000u64, count in 0..300u64, version in any::<i64>()) {
        let (llsn, version) = (llsn.unsigned_abs() >> 1, version.unsigned_abs() >> 1);
        let appended = Appended { llsn, glsn, count, version };
        prop_assert_eq!(decode_appended(&encode_appended(&appended)), Some(appended));
    }
}

#[test]
fn numbers_have_their_shortest_form() {
    let appended = Appended {
        llsn: 0x7f,
        glsn: 0x80,
        count: 0xffff,
        version: 0x1_0000_0000,
    };
    let head = encode_appended(&appended);
    let expected = [
        0x94, 0x7f, 0xcc, 0x80, 0xcd, 0xff, 0xff, 0xcf, 0, 0, 0, 1, 0, 0, 0, 0,
    ];
    assert_eq!(head, expected);
}

#[test]
fn an_answer_of_another_version_is_left_to_python() {
    let head = encode_appended(&Appended {
        llsn: 1,
        glsn: 2,
        count: 3,
        version: 4,
    });
    assert!(decode_appended(&head).is_some());
    let longer = [&[0x95], &head[1..], &[0xc0]].concat();
    for other in [&longer[..], &head[..4], &[], &[0x94, 1, 2, 3, 0xc0]] {
        assert_eq!(decode_appended(other), None, "{other:?}");
    }
}

#[test]
fn appends_are_opened_and_grouped() {
    let mut conn = server();
    let append = |request, stream| frame(16, request, &[0x92, stream, 1], b"batch");
    let bytes = [append(1, 1), append(2, 2), append(3, 1)].concat();
    let mut places = Vec::new();
    let taken = conn.feed(
        &bytes,
        |_| false,
        |event| {
            if let Event::Append { place, .. } = event {
                places.push(place);
            }
        },
    );
    assert_eq!(taken.unwrap(), bytes.len());
    let first = |stream| Place::First { stream, epoch: 1 };
    assert_eq!(places, [first(1), first(2), Place::Join(0)]);
    assert_eq!(conn.requests().numbers(), [1, 2, 3]);
    assert_eq!(conn.requests().kind(2), Some(16));
    assert_eq!(conn.requests().used(), 3 * REQUEST_COST_MIN);
}

#[test]
fn what_breaks_a_rule_is_cold_and_changes_nothing() {
    let append = |request, size| frame(16, request, &[0x92, 1, 1], &vec![7; size]);
    for (bytes, why) in [
        (append(0, 5), "no number"),
        (append(1, 5), "open already"),
        (append(2, 2000), "no room"),
        (frame(16, 2, &[0x93, 1, 1, 0xc3], b"batch"), "a repeat"),
        (frame(16, 2, &[0x92, 1, 1], b""), "no batch"),
        (frame(18, 2, &[0x92, 1, 1], b"batch"), "no append"),
    ] {
        let mut conn = server();
        conn.requests_mut().open(1, 16, 5).unwrap();
        let before = (conn.requests().numbers(), conn.requests().used());
        let (events, refused) = fed(&mut conn, &[&bytes]);
        assert!(matches!(&events[..], [Seen::Cold(..)]) && !refused, "{why}");
        assert_eq!((conn.requests().numbers(), conn.requests().used()), before);
    }
}

#[test]
fn everything_is_cold_until_the_connection_is_open() {
    let mut conn: Conn<usize> = Conn::new(Side::Server, WINDOW, 1 << 16, 1 << 16, 0);
    let bytes = frame(16, 1, &[0x92, 1, 1], b"batch");
    assert!(matches!(fed(&mut conn, &[&bytes]).0[..], [Seen::Cold(..)]));
    conn.set_hot(true);
    assert!(matches!(
        fed(&mut conn, &[&bytes]).0[..],
        [Seen::Append(..)]
    ));
    conn.set_hot(false);
    assert!(matches!(fed(&mut conn, &[&bytes]).0[..], [Seen::Cold(..)]));
}

#[test]
fn an_answer_settles_the_append_of_its_number_and_nothing_else() {
    let appended = Appended {
        llsn: 7,
        glsn: 9,
        count: 1,
        version: 3,
    };
    let mut asks = client(WINDOW);
    assert_eq!(
        asks.ask(16, &[0x92, 1, 1], &[b"batch"], |n| n).unwrap(),
        Some(1)
    );
    assert_eq!(asks.ask(18, &[0x90], &[], |n| n).unwrap(), Some(2));
    let mut answers = server();
    answers.requests_mut().open(1, 16, 300).unwrap();
    answers.requests_mut().open(2, 18, 300).unwrap();
    assert!(!answers.answer_append(2, &appended).unwrap());
    assert!(!answers.answer_append(3, &appended).unwrap());
    assert!(answers.answer_append(1, &appended).unwrap());
    assert_eq!(answers.requests().numbers(), [2]);
    let bytes = written(&mut answers);
    assert_eq!(fed(&mut asks, &[&bytes]).0, [Seen::Appended(1, appended)]);
    assert_eq!(asks.requests().numbers(), [2]);
    // The answer to something else, and one to nothing.
    for request in [1, 2] {
        let wrong = frame(17, request, &encode_appended(&appended), b"");
        assert!(matches!(fed(&mut asks, &[&wrong]).0[..], [Seen::Cold(..)]));
        assert_eq!(asks.requests().numbers(), [2]);
    }
}

#[test]
fn what_is_too_large_or_finds_no_room_changes_nothing() {
    let mut conn = client(600);
    conn.limit(1 << 16, HEADER_BYTES + 500);
    assert!(conn.ask(16, &[0x90; 10], &[&[0; 491]], |n| n).is_err());
    assert!(conn.queue(4, 0, &[0x90; 501], &[], |n| n).is_err());
    assert_eq!((conn.requests().len(), conn.queued_bytes()), (0, 0));
    assert_eq!(conn.ask(16, &[0x90], &[&[0; 400]], |n| n).unwrap(), Some(1));
    let before = conn.queued_bytes();
    assert_eq!(conn.ask(16, &[0x90], &[&[0; 400]], |n| n).unwrap(), None);
    assert_eq!((conn.requests().len(), conn.queued_bytes()), (1, before));
    assert!(conn.answer(1, 6, &[0x90; 501], &[], |n| n).is_err());
    assert_eq!(conn.requests().len(), 1);
    conn.requests_mut().clear();
    assert_eq!((conn.requests().used(), conn.requests().len()), (0, 0));
}

#[test]
fn large_payloads_are_lent_and_small_ones_copied() {
    let mut conn = client(WINDOW);
    let (large, small) = (vec![1; 9000], vec![2; 10]);
    let payloads: [&[u8]; 3] = [&small, &large, &small];
    conn.queue(33, 0, &[0x90], &payloads, |n| n).unwrap();
    conn.queue(4, 0, &[0x90], &[], |n| n).unwrap();
    let header = frame_header(33, 0, &[0x90], &payloads).unwrap();
    let ping = frame(4, 0, &[0x90], b"");
    assert_eq!(conn.queued_bytes(), 21 + 9020 + ping.len());
    assert_eq!(
        conn.take(),
        [
            Segment::Own([&header[..], &[0x90], &small].concat()),
            Segment::Lent(1),
            Segment::Own([&small[..], &ping].concat()),
        ]
    );
    assert_eq!((conn.queued_bytes(), conn.take().len()), (0, 0));
}

#[test]
fn what_is_malformed_ends_it_until_it_is_let_go() {
    let mut conn = server();
    let mut bytes = frame(16, 1, &[0x92, 1, 1], b"batch");
    *bytes.last_mut().unwrap() ^= 1;
    assert!(fed(&mut conn, &[&bytes]).1);
    assert!(fed(&mut conn, &[&frame(4, 0, &[0x90], b"")]).1);
    conn.release(100);
    assert_eq!((conn.decoder().buffered(), conn.is_hot()), (0, false));
}
