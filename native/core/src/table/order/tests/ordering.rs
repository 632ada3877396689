//! The order of the bytes is the order of the values, and they can be read back.

#![allow(clippy::cast_precision_loss, reason = "the nearest float is meant")]

use std::cmp::Ordering;

use proptest::prelude::*;

use super::*;

fn ints() -> impl Strategy<Value = i128> {
    let near = |bits: u32| {
        (-3i128..=3, any::<bool>()).prop_map(move |(off, minus)| {
            let value = (1i128 << bits) + off;
            if minus { -value } else { value }
        })
    };
    prop_oneof![
        -300i128..300,
        any::<i64>().prop_map(i128::from),
        any::<u64>().prop_map(i128::from),
        (0u32..64).prop_flat_map(near),
        Just((1i128 << 64) - 1),
        Just(1 - (1i128 << 64)),
    ]
    .prop_filter("beyond 64 bits", |value| value.unsigned_abs() < 1 << 64)
}

fn floats() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        (-300i32..300).prop_map(|n| f64::from(n) / 4.0),
        ints().prop_map(|n| n as f64),
        prop::sample::select(vec![
            0.0,
            -0.0,
            f64::NAN,
            -f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MIN_POSITIVE,
            5e-324,
            -5e-324,
            f64::MAX,
        ]),
    ]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(vec![0u8, 1, 2, 0x61, 0xfe, 0xff]);
    proptest::collection::vec(byte, 0..6)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a\\x00\\x01é\u{10ffff}]{0,5}", any::<String>(),]
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::Bool),
        ints().prop_map(Value::Int),
        floats().prop_map(Value::Float),
        text().prop_map(Value::Text),
        bytes().prop_map(Value::Bytes),
    ]
}

/// An integer and a float by value, to the last bit; NaN above all.
fn compare_mixed(int: i128, float: f64) -> Ordering {
    if float.is_nan() || float > 1e30 {
        return Ordering::Less;
    }
    if float < -1e30 {
        return Ordering::Greater;
    }
    let whole = float.floor();
    let order = int.cmp(&(whole as i128));
    order.then(if float > whole {
        Ordering::Less
    } else {
        Ordering::Equal
    })
}

fn compare_floats(a: f64, b: f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(&b).unwrap(),
        (a, b) => a.cmp(&b),
    }
}

/// The order that the document promises, computed without encoding anything.
fn compare(a: &Value, b: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Bool(_) => 0,
        Value::Int(_) | Value::Float(_) => 1,
        Value::Text(_) => 2,
        Value::Bytes(_) => 3,
    };
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Float(a), Value::Float(b)) => compare_floats(*a, *b),
        (Value::Int(a), Value::Float(b)) => compare_mixed(*a, *b),
        (Value::Float(a), Value::Int(b)) => compare_mixed(*b, *a).reverse(),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (a, b) => rank(a).cmp(&rank(b)),
    }
}

fn check_order(a: &Value, b: &Value, kind: Kind) -> std::result::Result<(), TestCaseError> {
    let (x, y) = (encoded(a, kind).unwrap(), encoded(b, kind).unwrap());
    let order = match kind {
        // Integers are as the nearest float there.
        Kind::Float => compare(&as_float(a), &as_float(b)),
        _ => compare(a, b),
    };
    prop_assert_eq!(
        x.cmp(&y),
        order,
        "{:?} and {:?} as {}: {:x?}, {:x?}",
        a,
        b,
        kind,
        x,
        y
    );
    if order != Ordering::Equal {
        prop_assert!(
            !x.starts_with(&y) && !y.starts_with(&x),
            "{:?} and {:?}",
            a,
            b
        );
    }
    for (value, bytes) in [(a, &x), (b, &y)] {
        let behind = [&bytes[..], b"\xff\x00behind"].concat();
        let (decoded, rest) = decode(kind, &behind).unwrap();
        prop_assert_eq!(
            compare(
                &decoded,
                &if kind == Kind::Float {
                    as_float(value)
                } else {
                    value.clone()
                }
            ),
            Ordering::Equal
        );
        prop_assert_eq!(rest, b"\xff\x00behind");
        prop_assert_eq!(super::super::scalar::skip(kind, &behind).unwrap(), rest);
        prop_assert_eq!(&encoded(&decoded, kind).unwrap(), bytes);
    }
    Ok(())
}

fn as_float(value: &Value) -> Value {
    match value {
        Value::Int(value) => Value::Float(*value as f64),
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn scalars(a in values(), b in values()) {
        check_order(&a, &b, Kind::Scalar)?;
    }

    #[test]
    fn numbers(a in ints(), b in ints(), c in floats(), d in floats()) {
        let [a, b, c, d] = [Value::Int(a), Value::Int(b), Value::Float(c), Value::Float(d)];
        check_order(&a, &b, Kind::Int)?;
        for (x, y) in [(&a, &b), (&a, &c), (&c, &d), (&d, &b)] {
            check_order(x, y, Kind::Float)?;
            check_order(x, y, Kind::Scalar)?;
        }
    }

    #[test]
    fn text_and_bytes(a in text(), b in text(), c in bytes(), d in bytes()) {
        check_order(&Value::Text(a), &Value::Text(b), Kind::Text)?;
        check_order(&Value::Bytes(c), &Value::Bytes(d), Kind::Bytes)?;
    }

    /// Several fields sort as the list of their values, and then as the record's key.
    #[test]
    fn several_fields(
        a in (text(), ints(), bytes()),
        b in (text(), ints(), bytes()),
        same in 0usize..3,
    ) {
        let spec = spec("json:/a:text+json:/b:int");
        let b = match same {
            0 => b,
            1 => (a.0.clone(), b.1, b.2),
            _ => (a.0.clone(), a.1, b.2),
        };
        let key = |(text, int, key): &(String, i128, Vec<u8>)| {
            let mut out = Vec::new();
            spec.encode(&[Value::Text(text.clone()), Value::Int(*int)], &mut out).unwrap();
            out.extend_from_slice(key);
            out
        };
        let (x, y) = (key(&a), key(&b));
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        let (values, rest) = spec.split(&x).unwrap();
        prop_assert_eq!(values, vec![Value::Text(a.0), Value::Int(a.1)]);
        prop_assert_eq!(rest, &a.2[..]);
        prop_assert_eq!(spec.record_key_at(&x).unwrap(), x.len() - rest.len());
    }

    /// What is decoded was written so; anything else is refused, and nothing panics.
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..24), tag in prop::sample::select(vec![0x10u8, 0x20, 0x30, 0x40, 0x50])) {
        let tagged = [&[tag][..], &bytes].concat();
        for (_, kind) in Kind::NAMES {
            for bytes in [&bytes, &tagged] {
                match decode(kind, bytes) {
                    Ok((value, rest)) => {
                        let again = encoded(&value, kind).unwrap();
                        prop_assert_eq!([&again[..], rest].concat(), &bytes[..]);
                        prop_assert_eq!(super::super::scalar::skip(kind, bytes).unwrap(), rest);
                    }
                    Err(Error::Malformed { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                let _ = super::super::scalar::skip(kind, bytes);
            }
        }
    }

    /// A beginning is before all that begin with it, and its successor behind them.
    #[test]
    fn beginnings(beginning in text(), rest in text(), other in text()) {
        let spec = spec("json:/a:text");
        let mut begin = Vec::new();
        spec.encode_beginning(&[Value::Text(beginning.clone())], &mut begin).unwrap();
        let end = successor(&begin);
        let inside = |text: &str| {
            let key = encoded(&Value::Text(text.into()), Kind::Text).unwrap();
            begin <= key && end.as_ref().is_none_or(|end| key < *end)
        };
        prop_assert!(inside(&[beginning.as_str(), &rest].concat()));
        prop_assert_eq!(inside(&other), other.starts_with(&beginning));
    }
}

/// The bytes themselves, which are on disk.
#[test]
fn the_encodings_are_these() {
    for (value, kind, bytes) in [
        (Value::Int(0), Kind::Int, &[0x80][..]),
        (Value::Int(258), Kind::Int, &[0x82, 1, 2]),
        (Value::Int(-258), Kind::Int, &[0x7e, 0xfe, 0xfd]),
        (
            Value::Float(1.0),
            Kind::Float,
            &[0xbf, 0xf0, 0, 0, 0, 0, 0, 0],
        ),
        (
            Value::Float(-1.0),
            Kind::Float,
            &[0x40, 0x0f, 255, 255, 255, 255, 255, 255],
        ),
        (
            Value::Float(-0.0),
            Kind::Float,
            &[0x80, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            Value::Float(-f64::NAN),
            Kind::Float,
            &[0xff, 0xf8, 0, 0, 0, 0, 0, 0],
        ),
        (
            Value::Text("a\0b".into()),
            Kind::Text,
            b"a\x00\xffb\x00\x01",
        ),
        (Value::Bool(true), Kind::Scalar, &[0x10, 1]),
        (
            Value::Int((1 << 53) + 1),
            Kind::Scalar,
            &[0x20, 0xc3, 0x40, 0, 0, 0, 0, 0, 0, 0x80, 1],
        ),
        (Value::Text("a".into()), Kind::Scalar, b"\x30a\x00\x01"),
        (Value::Bytes(vec![]), Kind::Scalar, &[0x40, 0, 1]),
    ] {
        assert_eq!(encoded(&value, kind).unwrap(), bytes, "{value:?} as {kind}");
    }
}

#[test]
fn values_of_another_type_are_refused() {
    let cases = [
        (
            Value::Text("x".into()),
            Kind::Float,
            "text, and the field of the index is of type float",
        ),
        (Value::Bool(true), Kind::Int, "bool, and the field"),
        (Value::Float(1.5), Kind::Int, "1.5 is no integer"),
        (
            Value::Int(1 << 64),
            Kind::Int,
            "outside of what an index of type int holds",
        ),
        (
            Value::Bytes(vec![1]),
            Kind::Text,
            "bytes, and the field of the index is of type text",
        ),
    ];
    for (value, kind, reason) in cases {
        let mut out = vec![1];
        let refusal = refused(encode(&value, kind, &mut out));
        assert!(refusal.contains(reason), "{refusal}");
        assert_eq!(out, [1]);
    }
    assert_eq!(encoded(&Value::Float(5.0), Kind::Int).unwrap(), [0x81, 5]);
}

#[test]
fn successors() {
    for (prefix, above) in [
        (&b"a"[..], Some(&b"b"[..])),
        (b"a\xff\xff", Some(b"b")),
        (b"", None),
        (b"\xff\xff", None),
        (b"\x00", Some(b"\x01")),
    ] {
        assert_eq!(successor(prefix).as_deref(), above);
    }
}
