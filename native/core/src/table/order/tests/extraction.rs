//! Fields of records: as a plain reader finds them, in one pass, and nothing that is no JSON.

use std::fmt::Write;

use proptest::prelude::*;

use super::*;
use crate::batch::{BatchBuilder, BatchView, Compression};

/// What became of a record in each index.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Key(Vec<u8>),
    Absent,
    Refused(&'static str),
}

fn extract(extractor: &mut Extractor, key: &[u8], record: &RecordRef<'_>) -> Vec<Seen> {
    let mut seen = Vec::new();
    extractor.extract(
        key,
        record.value.unwrap(),
        &record.headers,
        |index, outcome| {
            assert_eq!(index, seen.len());
            seen.push(match outcome {
                Outcome::Key(key) => Seen::Key(key.to_vec()),
                Outcome::Absent => Seen::Absent,
                Outcome::Refused(reason) => Seen::Refused(reason),
            });
        },
    );
    seen
}

fn extractor(specs: &[&str]) -> Extractor {
    Extractor::new(specs.iter().map(|text| spec(text)).collect())
}

fn key(text: &str, values: &[Value], key: &[u8]) -> Seen {
    let mut out = Vec::new();
    spec(text).encode(values, &mut out).unwrap();
    out.extend_from_slice(key);
    Seen::Key(out)
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

#[test]
fn all_indexes_of_one_record() {
    let specs = [
        "json:/city",
        "json:/price:float",
        "json:/tags/1:text",
        "json:/a/b:int+json:/city:text",
        "json:/gone",
        "json:/none",
        "json:/city:int",
        "json:/tags",
        "value:text",
        "json:/a~1b:bool",
    ];
    let value = r#" {"price": 3, "city": "Os\u006co", "tags": ["x", "y"], "none": null,
        "a": {"c": [1, {"b": 9}], "b": 7.0}, "a/b": true} "#;
    let mut extractor = extractor(&specs);
    for _ in 0..2 {
        let seen = extract(&mut extractor, b"tea", &record(value.as_bytes()));
        let expected = [
            key(specs[0], &[text("Oslo")], b"tea"),
            key(specs[1], &[Value::Float(3.0)], b"tea"),
            key(specs[2], &[text("y")], b"tea"),
            key(specs[3], &[Value::Int(7), text("Oslo")], b"tea"),
            Seen::Absent,
            Seen::Absent,
            Seen::Refused("the field is not an integer, or beyond 64 bits"),
            Seen::Refused("the field is an object or an array"),
            key(specs[8], &[text(value)], b"tea"),
            key(specs[9], &[Value::Bool(true)], b"tea"),
        ];
        assert_eq!(seen, expected);
        // Nothing of one record stays for the next.
        let seen = extract(&mut extractor, b"tea", &record(b"{}"));
        assert_eq!(seen[..8], [const { Seen::Absent }; 8]);
    }
}

#[test]
fn what_is_no_json_is_refused_by_indexes_of_json_alone() {
    let mut extractor = extractor(&["json:/a", "value"]);
    for value in [
        &b""[..],
        b"tea",
        b"{\"a\": 1",
        b"{\"a\": 1} x",
        b"{\"a\": 1,}",
        b"{\"a\": 01}",
        b"{\"b\": nul, \"a\": 1}",
        b"{\"a\": NaN}",
        b"{'a': 1}",
    ] {
        let seen = extract(&mut extractor, b"k", &record(value));
        assert_eq!(seen[0], Seen::Refused("the value is not JSON"), "{value:?}");
        assert_eq!(seen[1], key("value", &[Value::Bytes(value.to_vec())], b"k"));
    }
    // Deeper than any record should be, and no way to exhaust the stack.
    let deep = "[".repeat(1 << 20);
    let seen = extract(&mut extractor, b"k", &record(deep.as_bytes()));
    assert_eq!(seen[0], Seen::Refused("the value is not JSON"));
}

/// An index that is built by itself has what one has that was there from the start, beside others.
#[test]
fn what_an_index_says_does_not_depend_on_others() {
    let specs = [
        "json:/k:text",
        "json:/n:int",
        "json:/o/n:int",
        "json::scalar",
    ];
    let mut values = vec![
        b"{\"k\": \"\xff\", \"n\": 1}".to_vec(),
        b"{\"\xff\": 1, \"n\": 1}".to_vec(),
        b"{\"o\": {\"\xff\\n\": [], \"n\": 2}, \"n\": 1}".to_vec(),
        b"{\"\\u006b\": \"\\u0078\", \"n\": 1}".to_vec(),
        b"{\"k\": \"\\ud800\", \"n\": 1}".to_vec(),
        b"{\"k\": \"\xff\\n\", \"n\": 1}".to_vec(),
    ];
    for depth in 190..210 {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        values.push(format!(r#"{{"n": 1, "o": {{"x": {open}{close}, "n": 2}}}}"#).into_bytes());
        values.push(format!(r#"{{"n": 1, "k": {open}{close}}}"#).into_bytes());
    }
    let mut together = extractor(&specs);
    for value in &values {
        let seen = extract(&mut together, b"k", &record(value));
        for (at, spec) in specs.iter().enumerate() {
            let alone = extract(&mut extractor(&[*spec]), b"k", &record(value));
            assert_eq!(alone[0], seen[at], "{spec} of {}", value.escape_ascii());
        }
    }
    let mut seen = |value: &[u8]| extract(&mut together, b"k", &record(value));
    let one = key(specs[1], &[Value::Int(1)], b"k");
    assert_eq!(seen(&values[0])[0], Seen::Refused("the field is not UTF-8"));
    assert_eq!(seen(&values[0])[1], one);
    assert_eq!(seen(&values[1])[1], one);
    assert_eq!(seen(&values[3])[0], key(specs[0], &[text("x")], b"k"));
    assert_eq!(seen(&values[4])[1], Seen::Refused("the value is not JSON"));
}

#[test]
fn the_last_of_two_members_counts() {
    let mut extractor = extractor(&["json:/a/b:int"]);
    let mut seen = |value: &str| extract(&mut extractor, b"", &record(value.as_bytes())).remove(0);
    let int = |value| key("json:/a/b:int", &[Value::Int(value)], b"");
    assert_eq!(seen(r#"{"a": {"b": 1, "b": 2}}"#), int(2));
    assert_eq!(seen(r#"{"a": {"b": 1}, "a": {"b": 3}}"#), int(3));
    assert_eq!(seen(r#"{"a": {"b": 1}, "a": {}}"#), Seen::Absent);
    assert_eq!(seen(r#"{"a": {"b": 1}, "a": 4}"#), Seen::Absent);
}

#[test]
fn numbers_are_exact_where_they_can_be() {
    let mut extractor = extractor(&["json:", "json::int", "json::float"]);
    for (digits, scalar, int) in [
        ("9007199254740993", Value::Int(9_007_199_254_740_993), true),
        ("18446744073709551615", Value::Int((1 << 64) - 1), true),
        ("-18446744073709551615", Value::Int(1 - (1 << 64)), true),
        (
            "18446744073709551616",
            Value::Float(18_446_744_073_709_551_616.0),
            false,
        ),
        ("1e2", Value::Int(100), true),
        ("-0", Value::Int(0), true),
        ("-0.0", Value::Int(0), true),
        ("2.5", Value::Float(2.5), false),
        ("1e400", Value::Float(f64::INFINITY), false),
    ] {
        let seen = extract(&mut extractor, b"", &record(digits.as_bytes()));
        assert_eq!(
            seen[0],
            key("json:", std::slice::from_ref(&scalar), b""),
            "{digits}"
        );
        if int {
            assert_eq!(seen[1], key("json::int", &[scalar], b""), "{digits}");
        } else {
            assert!(matches!(seen[1], Seen::Refused(_)), "{digits}");
        }
        assert!(matches!(seen[2], Seen::Key(_)));
    }
}

#[test]
fn headers_are_what_their_type_makes_of_them() {
    let mut builder = BatchBuilder::new();
    let headers = [
        ("n", Some(&b"-7"[..])),
        ("n", Some(b"8")),
        ("f", Some(b"2.5")),
        ("b", Some(b"true")),
        ("r", Some(b"\xff")),
        ("null", None),
    ];
    builder.push(Some(b"v"), Some(b"k"), 0, &headers).unwrap();
    let mut bytes = Vec::new();
    builder.encode_into(Compression::None, &mut bytes).unwrap();
    let view = BatchView::parse(&bytes).unwrap();
    let record = view.record(0).unwrap();
    let specs = [
        "header:n:int",
        "header:f:float",
        "header:b:bool",
        "header:r",
        "header:r:text",
        "header:x",
        "header:null",
        "header:f:int",
    ];
    let seen = extract(&mut extractor(&specs), b"k", &record);
    let expected = [
        key(specs[0], &[Value::Int(-7)], b"k"),
        key(specs[1], &[Value::Float(2.5)], b"k"),
        key(specs[2], &[Value::Bool(true)], b"k"),
        key(specs[3], &[Value::Bytes(vec![0xff])], b"k"),
        Seen::Refused("the field is not text"),
        Seen::Absent,
        Seen::Absent,
        Seen::Refused("the field is not an integer, or beyond 64 bits"),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn keys_that_would_be_too_long_are_refused() {
    let mut extractor = extractor(&["value"]);
    let seen = extract(&mut extractor, &[1; 8000], &record(&[2; 8382]));
    assert!(matches!(&seen[0], Seen::Key(key) if key.len() == 16 << 10));
    let seen = extract(&mut extractor, &[1; 8000], &record(&[2; 8383]));
    assert!(matches!(seen[0], Seen::Refused(reason) if reason.contains("longer")));
}

/// A JSON text, and what a plain reader finds at each pointer of the test below.
#[derive(Clone, Debug)]
enum Json {
    Null,
    Bool(bool),
    Number(i32),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        any::<i32>().prop_map(Json::Number),
        "[a-c\\x00-\\x1fé\"\\\\]{0,4}".prop_map(Json::Text),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let name = prop::sample::select(vec!["a", "b", "0", "1", ""]);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Json::List),
            proptest::collection::vec((name.prop_map(String::from), inner), 0..4)
                .prop_map(Json::Object),
        ]
    })
}

impl Json {
    fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(value) => out.push_str(&value.to_string()),
            Self::Text(value) => {
                out.push('"');
                for char in value.chars() {
                    let _ = write!(out, "\\u{:04x}", char as u32);
                }
                out.push('"');
            }
            Self::List(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at > 0 { " , " } else { "" });
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (at, (name, member)) in members.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    let _ = write!(out, "\"{name}\": ");
                    member.write(out);
                }
                out.push('}');
            }
        }
    }

    fn at(&self, steps: &[&str]) -> Option<&Self> {
        let Some((step, rest)) = steps.split_first() else {
            return Some(self);
        };
        match self {
            Self::List(items) => items.get(step.parse::<usize>().ok()?)?.at(rest),
            Self::Object(members) => members
                .iter()
                .rev()
                .find(|(name, _)| name == step)?
                .1
                .at(rest),
            _ => None,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn as_a_plain_reader_finds_them(json in json()) {
        let pointers = ["", "/a", "/a/b", "/0", "/0/a", "/a/0", "/b/1/a", "/", "/a/b/0"];
        let specs: Vec<String> = pointers.iter().map(|pointer| format!("json:{pointer}")).collect();
        let specs: Vec<&str> = specs.iter().map(String::as_str).collect();
        let mut value = String::new();
        json.write(&mut value);
        let seen = extract(&mut extractor(&specs), b"k", &record(value.as_bytes()));
        for ((pointer, text), seen) in pointers.iter().zip(specs).zip(seen) {
            let steps: Vec<&str> = pointer.split('/').skip(1).collect();
            let expected = match json.at(&steps) {
                None | Some(Json::Null) => Seen::Absent,
                Some(Json::Bool(value)) => key(text, &[Value::Bool(*value)], b"k"),
                Some(Json::Number(value)) => key(text, &[Value::Int((*value).into())], b"k"),
                Some(Json::Text(value)) => key(text, &[Value::Text(value.clone())], b"k"),
                Some(_) => Seen::Refused("the field is an object or an array"),
            };
            prop_assert_eq!(seen, expected, "{} of {}", pointer, value);
        }
    }
}
