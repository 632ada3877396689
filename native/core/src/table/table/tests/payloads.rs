//! Payloads of records.

use proptest::prelude::*;

use super::super::payload::{Payload, encode};
use super::*;

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        timestamp in any::<i64>(),
        value in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
        headers in proptest::collection::vec((any::<String>(), proptest::option::of(proptest::collection::vec(any::<u8>(), 0..9))), 0..6),
    ) {
        let mut out = Vec::new();
        let given = || headers.iter().map(|(name, value)| (name.as_str(), value.as_deref()));
        encode(timestamp, value.as_deref(), given(), &mut out);
        let payload = Payload::decode(&out).unwrap();
        prop_assert_eq!((payload.timestamp, payload.value), (timestamp, value.as_deref()));
        prop_assert!(payload.headers.eq(given()));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(0u8..9, 0..60)) {
        match Payload::decode(&bytes) {
            Ok(payload) => {
                let mut out = Vec::new();
                encode(payload.timestamp, payload.value, payload.headers, &mut out);
                prop_assert_eq!(out, bytes);
            }
            Err(error) => prop_assert!(matches!(error, Error::Malformed { .. }), "{}", error),
        }
    }
}

#[test]
fn the_bytes_are_these() {
    let mut out = Vec::new();
    let headers = [("a", Some(&b"bc"[..])), ("d", None)].into_iter();
    encode(258, Some(b"v"), headers, &mut out);
    let expected = b"\x02\x01\0\0\0\0\0\0\x02\0\x01\0\0\0\x02\0\0\0\x01\0\0\0\xff\xff\xff\xffabcdv";
    assert_eq!(out, expected);
    out.clear();
    encode(0, None, std::iter::empty(), &mut out);
    assert_eq!(out, b"\0\0\0\0\0\0\0\0\0\x80");
}
