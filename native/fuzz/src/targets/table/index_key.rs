//! Keys of index entries, two of one index: taking them apart, and their order.
//!
//! Accepted means that both are keys of the index. Then each is encoded to the same bytes again, and the order of the bytes is
//! that of the values, which is computed here without the encoding.

use std::cmp::Ordering;

use braidlog_core::error::Error;
use braidlog_core::table::order::{IndexSpec, Kind, Value};

use crate::input::Input;
use crate::mutate::damage;
use crate::rng::Rng;
use crate::target::{Broken, Target, Verdict, hold};

const SPEC: &str = "spec";
const KEYS: [&str; 2] = ["one", "other"];

/// Sources with a type each; those without one have the type of their source.
const FIELDS: [&str; 12] = [
    "json:/a",
    "json:/a/b:int",
    "json:/a:float",
    "json:/a:text",
    "json:/a:bool",
    "json::scalar",
    "header:h",
    "header:h:int",
    "header:h:text",
    "value",
    "value:float",
    "value:bool",
];

/// The target.
pub struct IndexKeys;

impl Target for IndexKeys {
    fn name(&self) -> &'static str {
        "index_key"
    }

    /// Keys that agree in their first fields more often than not, so that the order of what is behind them counts.
    fn generate(&self, rng: &mut Rng) -> Input {
        let fields = (0..rng.within(1..=3)).map(|_| *rng.pick(&FIELDS));
        let spec = fields.collect::<Vec<_>>().join("+");
        let mut files = vec![(SPEC.into(), spec.clone().into_bytes())];
        if let Ok(spec) = IndexSpec::parse(&spec) {
            let mut values: Vec<Value> = Vec::new();
            for name in KEYS {
                for (at, field) in spec.fields().iter().enumerate() {
                    if at == values.len() {
                        values.push(value(field.kind, rng));
                    } else if rng.one_in(2) {
                        values[at] = near(&values[at], field.kind, rng);
                    }
                }
                let mut key = Vec::new();
                // What could not be encoded is refused by the check, which says so.
                if spec.encode(&values, &mut key).is_ok() {
                    let len = rng.below(4);
                    key.extend(rng.bytes(len));
                }
                files.push((name.into(), key));
            }
        }
        Input { files }
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        let at = if rng.one_in(8) { 0 } else { rng.within(1..=2) };
        let foreign = other.files.get(at).map_or(&[][..], |(_, bytes)| bytes);
        let Some((_, bytes)) = input.files.get_mut(at) else {
            return;
        };
        if rng.one_in(3) && !bytes.is_empty() {
            // Bytes that mean something to the encodings.
            let place = rng.below(bytes.len());
            bytes[place] = *rng.pick(&[0, 1, 0x10, 0x20, 0x30, 0x40, 0x7f, 0x80, 0x81, 0xff]);
            return;
        }
        damage(bytes, &[], foreign, rng);
    }

    /// There are no checksums: runs have those.
    fn reseal(&self, _: &mut Input, _: &mut Rng) {}

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let text = String::from_utf8_lossy(input.file(SPEC).unwrap_or_default());
        let spec = match IndexSpec::parse(&text) {
            Ok(spec) => spec,
            Err(Error::InvalidArgument(_)) => return Ok(Verdict::Refused),
            Err(error) => return Err(format!("a spec refused with {error:?}")),
        };
        let again = IndexSpec::parse(&spec.to_string());
        hold(again.as_ref().ok() == Some(&spec), || {
            format!("{text:?} is {spec:?}, and {again:?} by its own text")
        })?;
        let [one, other] = KEYS.map(|name| input.file(name).unwrap_or_default());
        let (Some(first), Some(second)) = (apart(&spec, one)?, apart(&spec, other)?) else {
            return Ok(Verdict::Refused);
        };
        let order = compare(&first, &second);
        hold(one.cmp(other) == order, || {
            format!("{first:?} and {second:?} are {order:?}, {one:x?} and {other:x?} are not")
        })?;
        Ok(Verdict::Accepted)
    }
}

/// The fields of a key, and the key of its record.
type Apart<'a> = (Vec<Value>, &'a [u8]);

/// A key taken apart, and put together again; none if it is none of the index.
fn apart<'a>(spec: &IndexSpec, key: &'a [u8]) -> Result<Option<Apart<'a>>, Broken> {
    let at = spec.record_key_at(key);
    let (values, rest) = match spec.split(key) {
        Ok(split) => split,
        Err(Error::Malformed { .. }) => {
            // It looks less closely, but never fails otherwise.
            return match at {
                Ok(_) | Err(Error::Malformed { .. }) => Ok(None),
                Err(error) => Err(format!("a key skipped with {error:?}")),
            };
        }
        Err(error) => return Err(format!("a key refused with {error:?}")),
    };
    hold(at.as_ref().ok() == Some(&(key.len() - rest.len())), || {
        format!(
            "the record's key is at {at:?} of {key:x?}, behind it are {}",
            rest.len()
        )
    })?;
    let mut again = Vec::new();
    let encoded = spec.encode(&values, &mut again);
    again.extend_from_slice(rest);
    hold(encoded.is_ok() && again == key, || {
        format!("{values:?} of {key:x?} encodes to {again:x?}, {encoded:?}")
    })?;
    Ok(Some((values, rest)))
}

fn compare((one, key): &Apart<'_>, (other, other_key): &Apart<'_>) -> Ordering {
    let fields = one
        .iter()
        .zip(other)
        .map(|(one, other)| of_values(one, other));
    let order = fields.fold(Ordering::Equal, Ordering::then);
    order.then(key.cmp(other_key))
}

/// The order that the document of the encodings promises.
fn of_values(one: &Value, other: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Bool(_) => 0,
        Value::Int(_) | Value::Float(_) => 1,
        Value::Text(_) => 2,
        Value::Bytes(_) => 3,
    };
    match (one, other) {
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Int(one), Value::Int(other)) => one.cmp(other),
        (Value::Float(one), Value::Float(other)) => of_floats(*one, *other),
        (Value::Int(one), Value::Float(other)) => of_mixed(*one, *other),
        (Value::Float(one), Value::Int(other)) => of_mixed(*other, *one).reverse(),
        (Value::Text(one), Value::Text(other)) => one.chars().cmp(other.chars()),
        (Value::Bytes(one), Value::Bytes(other)) => one.cmp(other),
        (one, other) => rank(one).cmp(&rank(other)),
    }
}

/// NaN is above all, and equal to itself.
fn of_floats(one: f64, other: f64) -> Ordering {
    one.partial_cmp(&other)
        .unwrap_or_else(|| one.is_nan().cmp(&other.is_nan()))
}

#[allow(clippy::cast_possible_truncation, reason = "only what fits is cast")]
fn of_mixed(int: i128, float: f64) -> Ordering {
    if float.is_nan() || float > 1e30 {
        return Ordering::Less;
    }
    if float < -1e30 {
        return Ordering::Greater;
    }
    let whole = float.floor();
    let behind = float.partial_cmp(&whole).unwrap_or(Ordering::Equal);
    int.cmp(&(whole as i128)).then(behind.reverse())
}

/// A value that an index of that type takes.
pub fn value(kind: Kind, rng: &mut Rng) -> Value {
    let kind = if kind == Kind::Scalar {
        *rng.pick(&[Kind::Bool, Kind::Int, Kind::Float, Kind::Text, Kind::Bytes])
    } else {
        kind
    };
    match kind {
        Kind::Bool => Value::Bool(rng.one_in(2)),
        Kind::Int => {
            let old = rng.u64() >> rng.below(64);
            let value = i128::from(rng.hurtful(old, 64));
            Value::Int(if rng.one_in(2) { value } else { -value })
        }
        Kind::Float => Value::Float(float(rng)),
        Kind::Text => Value::Text(text(rng)),
        Kind::Scalar | Kind::Bytes => Value::Bytes(bytes(rng)),
    }
}

#[allow(clippy::cast_precision_loss, reason = "the nearest float is meant")]
fn float(rng: &mut Rng) -> f64 {
    let any = f64::from_bits(rng.u64());
    let old = rng.u64() >> rng.below(64);
    let whole = rng.hurtful(old, 64) as f64;
    *rng.pick(&[
        any,
        whole,
        -whole,
        whole / 4.0,
        -whole / 4.0,
        0.0,
        -0.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN_POSITIVE,
        -5e-324,
    ])
}

fn text(rng: &mut Rng) -> String {
    const CHARS: [char; 7] = ['\0', '\u{1}', 'a', 'b', 'é', '\u{ffff}', '\u{10ffff}'];
    (0..rng.below(5)).map(|_| *rng.pick(&CHARS)).collect()
}

fn bytes(rng: &mut Rng) -> Vec<u8> {
    const BYTES: [u8; 6] = [0, 1, 2, 0x61, 0xfe, 0xff];
    (0..rng.below(5)).map(|_| *rng.pick(&BYTES)).collect()
}

/// A value that is hardly another one.
#[allow(clippy::cast_precision_loss, reason = "the nearest float is meant")]
fn near(old: &Value, kind: Kind, rng: &mut Rng) -> Value {
    match old {
        Value::Int(old) if kind == Kind::Scalar && rng.one_in(3) => Value::Float(*old as f64),
        Value::Int(old) if rng.one_in(2) => {
            let step = i128::from(rng.one_in(2)) * 2 - 1;
            let new = old + step;
            Value::Int(if new.unsigned_abs() >> 64 == 0 {
                new
            } else {
                *old
            })
        }
        Value::Float(old) if rng.one_in(2) => {
            let other = [old.next_up(), old.next_down(), -old];
            Value::Float(*rng.pick(&other))
        }
        Value::Text(old) if rng.one_in(2) => Value::Text(old.clone() + &text(rng)),
        Value::Bytes(old) if rng.one_in(2) => Value::Bytes([&old[..], &bytes(rng)].concat()),
        _ => value(kind, rng),
    }
}
