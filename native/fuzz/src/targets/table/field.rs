//! Fields of records: what an index makes of a value that anybody may have written.
//!
//! Accepted means that the record is in an index of a field of its JSON. Whatever it is, each index says the same of it alone as beside
//! others, and a second time; and a key can be taken apart, with the record's key behind it.

use braidlog_core::table::order::{Extractor, IndexSpec, Outcome};

use crate::input::Input;
use crate::mutate::damage;
use crate::rng::Rng;
use crate::target::{Broken, Target, Verdict, hold};

const VALUE: &str = "value";
const HEADER: &str = "header";
const KEY: &[u8] = b"k\x00\xff";

/// Indexes of fields of JSON, and then of what is none.
const SPECS: [&str; 12] = [
    "json:/k:text",
    "json:/n",
    "json:/n:int",
    "json:/n:float",
    "json:/k+json:/n",
    "json:/l/1",
    "json:/l/1/k:bool",
    "json::scalar",
    "json:/k+header:h:text",
    "header:h:int",
    "value",
    "value:float+header:h",
];
const OF_JSON: usize = 9;

/// The target.
pub struct Fields;

impl Target for Fields {
    fn name(&self) -> &'static str {
        "field"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        let header = rng.pick(&["", "5", "-7", "é", "1e9"]).as_bytes().to_vec();
        Input {
            files: vec![
                (VALUE.into(), object(rng).into_bytes()),
                (HEADER.into(), header),
            ],
        }
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        let at = usize::from(rng.one_in(8));
        let foreign = other.files.get(at).map_or(&[][..], |(_, bytes)| bytes);
        let Some((_, bytes)) = input.files.get_mut(at) else {
            return;
        };
        if rng.one_in(2) && !bytes.is_empty() {
            // Bytes of JSON, so that it stays JSON more often.
            let place = rng.below(bytes.len());
            bytes[place] = *rng.pick(b"{}[],:\"\\u0dknl15.-+eE tfr");
            return;
        }
        damage(bytes, &[], foreign, rng);
    }

    /// There are no checksums: batches have those.
    fn reseal(&self, _: &mut Input, _: &mut Rng) {}

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let parsed: Result<Vec<_>, _> = SPECS.iter().map(|text| IndexSpec::parse(text)).collect();
        let specs = parsed.map_err(|error| format!("a spec of the fuzzer: {error}"))?;
        let (value, header) = (input.file(VALUE), input.file(HEADER));
        let (value, header) = (value.unwrap_or_default(), header.unwrap_or_default());
        let mut extractor = Extractor::new(specs.clone());
        let first = extract(&mut extractor, value, header)?;
        let second = extract(&mut extractor, value, header)?;
        hold(first == second, || {
            format!("{first:?}, and then {second:?}")
        })?;
        for (spec, seen) in specs.iter().zip(&first) {
            let alone = extract(&mut Extractor::new(vec![spec.clone()]), value, header)?;
            hold(alone.first() == Some(seen), || {
                format!("{spec}: {seen:?} beside others, alone {alone:?}")
            })?;
            let Seen::Key(key) = seen else { continue };
            let split = spec.split(key);
            let fits = split.as_ref().is_ok_and(|(values, behind)| {
                let mut again = Vec::new();
                let encoded = spec.encode(values, &mut again).is_ok();
                again.extend_from_slice(KEY);
                encoded && *behind == KEY && again == *key
            });
            hold(fits, || {
                format!("{spec}: {key:x?} is taken apart as {split:?}")
            })?;
        }
        let mut of_json = first.iter().take(OF_JSON);
        let there = of_json.any(|seen| matches!(seen, Seen::Key(_)));
        Ok(if there {
            Verdict::Accepted
        } else {
            Verdict::Refused
        })
    }
}

/// What an index says of a record.
#[derive(Debug, PartialEq)]
enum Seen {
    Key(Vec<u8>),
    Absent,
    Refused(&'static str),
}

fn extract(extractor: &mut Extractor, value: &[u8], header: &[u8]) -> Result<Vec<Seen>, Broken> {
    let headers = std::iter::once(("h", (!header.is_empty()).then_some(header)));
    let mut seen = Vec::new();
    let mut in_order = true;
    extractor.extract(KEY, value, &headers, |index, outcome| {
        in_order &= index == seen.len();
        seen.push(match outcome {
            Outcome::Key(key) => Seen::Key(key.to_vec()),
            Outcome::Absent => Seen::Absent,
            Outcome::Refused(reason) => Seen::Refused(reason),
        });
    });
    hold(in_order && seen.len() == extractor.specs().len(), || {
        format!("told of {} indexes", seen.len())
    })?;
    Ok(seen)
}

/// JSON with a text in `k` and a number in `n`.
fn object(rng: &mut Rng) -> String {
    let members = (0..rng.below(4)).map(|_| {
        let name = *rng.pick(&["k", "n", "l", "", "k\\u0000", "é"]);
        format!("\"{name}\":{},", json(3, rng))
    });
    let members: String = members.collect();
    let number = number(rng);
    let text = *rng.pick(&["", "tea", "\\u0000\\u0001", "\\ud83d\\ude00", "é\\n"]);
    format!(
        "{{{members}\"l\":[0,{}],\"n\":{number},\"k\":\"{text}\"}}",
        json(2, rng)
    )
}

fn number(rng: &mut Rng) -> String {
    let int = rng.u64() >> rng.below(64);
    match rng.below(5) {
        0 => format!("-{int}"),
        1 => format!("{int}.{}", rng.below(1000)),
        2 => format!("{int}e{}", rng.below(400)),
        3 => format!("{}{int}", int | 1),
        _ => int.to_string(),
    }
}

fn json(depth: usize, rng: &mut Rng) -> String {
    let kinds = if depth == 0 { 4 } else { 6 };
    match rng.below(kinds) {
        0 => "null".into(),
        1 => rng.pick(&["true", "false"]).to_string(),
        2 => number(rng),
        3 => "\"x\"".into(),
        4 => format!("[{},{}]", json(depth - 1, rng), json(depth - 1, rng)),
        _ => format!(
            "{{\"k\":{},\"n\":{}}}",
            json(depth - 1, rng),
            json(depth - 1, rng)
        ),
    }
}
