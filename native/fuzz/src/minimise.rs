//! Make a reproducer smaller, as long as it breaks the same invariant.

use std::time::{Duration, Instant};

use crate::attempt::{Failure, Kind, attempt};
use crate::input::Input;
use crate::rng::Rng;
use crate::target::Target;

/// What is spent on it.
const TIME: Duration = Duration::from_secs(10);

/// Remove and clear ever smaller pieces of `input` while `failure` stays. Inputs that hang are
/// left as they are: trying one costs the watchdog's whole limit.
pub fn minimise(target: &dyn Target, input: &Input, failure: &Failure) -> Input {
    let mut best = input.clone();
    if failure.kind == Kind::Hang || attempt(target, input).result.is_ok() {
        return best;
    }
    let deadline = Instant::now() + TIME;
    let fails = |candidate: &Input| match attempt(target, candidate).result {
        Err(found) => same(&found, failure),
        Ok(_) => false,
    };
    // A piece may go only together with the checksum that covers it.
    let try_both = |candidate: &Input| {
        let mut sealed = candidate.clone();
        target.reseal(&mut sealed, &mut Rng::new(0, target.name(), 0));
        [candidate.clone(), sealed]
            .into_iter()
            .find(|candidate| fails(candidate))
    };
    for file in 0..best.files.len() {
        let mut size = best.files[file].1.len().next_power_of_two();
        while size > 0 {
            let mut at = 0;
            while at < best.files[file].1.len() && Instant::now() < deadline {
                let end = (at + size).min(best.files[file].1.len());
                let mut cut = best.clone();
                cut.files[file].1.drain(at..end);
                if let Some(smaller) = try_both(&cut) {
                    best = smaller;
                    continue;
                }
                let mut clear = best.clone();
                clear.files[file].1[at..end].fill(0);
                if clear != best
                    && let Some(clearer) = try_both(&clear)
                    && weight(&clearer) < weight(&best)
                {
                    best = clearer;
                }
                at = end;
            }
            size /= 2;
        }
    }
    best
}

/// Whether two failures are likely one bug: the place of a panic, or the words of an invariant up
/// to the first number.
pub fn same(one: &Failure, other: &Failure) -> bool {
    let head = |failure: &Failure| {
        let cut: &[char] = match failure.kind {
            Kind::Panic => &['\n'],
            _ => &['0', '1', '2', '3', '4', '5', '6', '7', '8', '9'],
        };
        let text = &failure.message;
        text.split(cut).next().unwrap_or_default().to_owned()
    };
    one.kind == other.kind && head(one) == head(other)
}

/// Bytes that say something.
fn weight(input: &Input) -> usize {
    let bytes = input.files.iter().flat_map(|(_, bytes)| bytes);
    bytes.filter(|byte| **byte != 0).count()
}
