//! What is printed.

use std::fmt::Write;

use crate::attempt::Failure;
use crate::run::Stats;

/// The line of a target that held.
pub fn stats(name: &str, seed: u64, stats: &Stats, json: bool) -> String {
    let Stats {
        iterations,
        valid,
        accepted,
        refused,
        elapsed,
        slowest,
        peak,
        digest,
    } = stats;
    let per_second = stats.per_second();
    let (elapsed, slowest) = (elapsed.as_secs_f64(), slowest.as_secs_f64() * 1e3);
    let blind = stats.blind();
    if json {
        let blind = blind.map_or("null".into(), quote);
        return format!(
            "{{\"target\":{},\"seed\":{seed},\"iterations\":{iterations},\"valid\":{valid},\
             \"accepted\":{accepted},\"refused\":{refused},\"seconds\":{elapsed:.3},\
             \"per_second\":{per_second},\"slowest_ms\":{slowest:.3},\"peak_bytes\":{peak},\
             \"digest\":\"{digest:016x}\",\"blind\":{blind}}}",
            quote(name)
        );
    }
    let mut line = format!(
        "{name:<10} {per_second:>9}/s  {iterations:>9} inputs: {accepted:>8} accepted, \
         {refused:>8} refused, {valid:>6} valid; slowest {slowest:.1} ms, peak {} KiB",
        peak >> 10
    );
    if let Some(reason) = blind {
        let _ = write!(line, "\n{name}: FAILED: {reason}");
    }
    line
}

/// What is said of a broken invariant.
pub fn violation(name: &str, seed: u64, iteration: u64, failure: &Failure, json: bool) -> String {
    let Failure { kind, message } = failure;
    let kind = kind.name();
    if json {
        return format!(
            "{{\"target\":{},\"seed\":{seed},\"iteration\":{iteration},\"violation\":{},\
             \"message\":{}}}",
            quote(name),
            quote(kind),
            quote(message)
        );
    }
    format!(
        "{name}: {kind} in iteration {iteration}: {message}\n\
         again with: --target {name} --seed {seed} --from {iteration} --iterations 1"
    )
}

/// A JSON string.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\u{0}'..='\u{1f}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn strings_are_escaped() {
        assert_eq!(quote("a\"b\\c\nd\u{e9}"), "\"a\\\"b\\\\c\\u000ad\u{e9}\"");
    }
}
