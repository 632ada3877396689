//! What an index is over, as text.

use super::*;

#[test]
fn all_forms_are_read_and_written_back() {
    for (text, full) in [
        ("json:/city", "json:/city:scalar"),
        ("json:/price:float", "json:/price:float"),
        ("json:", "json::scalar"),
        ("json::text", "json::text"),
        ("json:/a/0/b~1c~0d:int", "json:/a/0/b~1c~0d:int"),
        ("json:/a:b:text", "json:/a:b:text"),
        ("header:region", "header:region:bytes"),
        ("header:a:b:int", "header:a:b:int"),
        ("value", "value:bytes"),
        ("value:text", "value:text"),
        ("json:/c++", "json:/c++:scalar"),
        ("json:/values+value", "json:/values:scalar+value:bytes"),
        ("json:/a+values", "json:/a+values:scalar"),
        ("header:a+json", "header:a+json"),
        ("json:/a+header+value", "json:/a+header+value:bytes"),
        (
            "json:/city:text+header:n:int+value",
            "json:/city:text+header:n:int+value:bytes",
        ),
    ] {
        let parsed = spec(text);
        assert_eq!(parsed.to_string(), full);
        assert_eq!(spec(full), parsed);
    }
}

#[test]
fn refusals_say_what_is_allowed() {
    for (text, reason) in [
        ("", "begins with json:, header: or value"),
        ("city", "begins with json:, header: or value"),
        ("jsn:/city", "begins with json:, header: or value"),
        ("json:city", "must begin with /"),
        ("json:/a~2", "~ must be followed by 0"),
        ("json:/a~", "~ must be followed by 0"),
        ("json:/price:flaot", "scalar, bool, int, float, text, bytes"),
        ("json:/price:", "there is no type \"\""),
        ("json:/a:bytes", "JSON has no bytes"),
        ("header:", "needs a name"),
        ("header::int", "needs a name"),
        ("header:a:scalar", "headers and values are bytes"),
        ("value:scalar", "headers and values are bytes"),
        ("value:number", "the types are"),
        ("json:/a+json:b", "must begin with /"),
    ] {
        let refusal = refused(IndexSpec::parse(text));
        assert!(refusal.contains(reason), "{text}: {refusal}");
    }
    let many = ["json:/a"; 17].join("+");
    assert!(refused(IndexSpec::parse(&many)).contains("at most 16 fields"));
    let deep = format!("json:{}", "/a".repeat(33));
    assert!(refused(IndexSpec::parse(&deep)).contains("more than 32 steps"));
}

#[test]
fn values_of_bounds_are_checked() {
    let spec = spec("json:/a:text+json:/b:int");
    let text = |text: &str| Value::Text(text.into());
    let encode = |values: &[Value]| {
        let mut out = Vec::new();
        spec.encode(values, &mut out).map(|()| out)
    };
    assert_eq!(encode(&[]).unwrap(), b"");
    assert_eq!(encode(&[text("x")]).unwrap(), b"x\x00\x01");
    assert!(refused(encode(&[text("x"), text("y")])).contains("type int"));
    let three = [text("x"), Value::Int(1), Value::Int(2)];
    assert!(refused(encode(&three)).contains("3 values for an index of 2 fields"));
    let beginning = |values: &[Value]| {
        let mut out = Vec::new();
        spec.encode_beginning(values, &mut out).map(|()| out)
    };
    assert_eq!(beginning(&[text("x")]).unwrap(), b"x");
    assert_eq!(beginning(&[]).unwrap(), b"");
    assert!(refused(beginning(&[Value::Int(1)])).contains("type text"));
    assert!(refused(beginning(&[text("x"), Value::Int(1)])).contains("text or bytes, not int"));
}

#[test]
fn keys_of_another_index_are_refused() {
    for key in [
        &b""[..],
        b"x",
        b"x\x00",
        b"x\x00\x02",
        b"x\x00\x01",
        b"x\x00\x01\x85\x01",
        b"x\x00\x01\x81\x00",
    ] {
        let split = spec("json:/a:text+json:/b:int").split(key).map(|_| ());
        assert!(matches!(split, Err(Error::Malformed { .. })), "{key:?}");
    }
}
