//! The loop: generate, damage, seal again, decode.
//!
//! Everything about an iteration follows from (seed, target, iteration). Valid inputs are costly,
//! so each *generation* of iterations shares a small pool of them, which follows from (seed,
//! target, generation).

use std::time::{Duration, Instant};

use crate::attempt::{Failure, Kind, attempt};
use crate::input::Input;
use crate::rng::{Rng, mix};
use crate::target::{Target, Verdict};
use crate::watchdog::Watchdog;

/// Iterations that share a pool of valid inputs.
const GENERATION: u64 = 4096;

/// Valid inputs in a pool.
const POOL: usize = 24;

/// Most acts of damage in one iteration.
const DAMAGE_MAX: usize = 4;

/// How long to run, and on what.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Where all randomness comes from.
    pub seed: u64,
    /// First iteration.
    pub from: u64,
    /// Most iterations.
    pub iterations: u64,
    /// Longest time.
    pub time: Duration,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Inputs decoded.
    pub iterations: u64,
    /// Undamaged ones among them; all were accepted.
    pub valid: u64,
    /// Damaged inputs that were accepted.
    pub accepted: u64,
    /// Damaged inputs that were refused.
    pub refused: u64,
    /// Time spent, making inputs included.
    pub elapsed: Duration,
    /// The slowest decode.
    pub slowest: Duration,
    /// Most bytes that one decode held.
    pub peak: usize,
    /// A number over all inputs and verdicts: equal for equal runs.
    pub digest: u64,
}

/// A broken invariant and the input that shows it.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The iteration.
    pub iteration: u64,
    /// The input.
    pub input: Input,
    /// What is broken.
    pub failure: Failure,
}

/// Makes the inputs of a target.
pub struct Inputs<'t> {
    target: &'t dyn Target,
    seed: u64,
    generation: Option<u64>,
    pool: Vec<Input>,
}

impl<'t> Inputs<'t> {
    /// Inputs of `target` from `seed`.
    pub fn new(target: &'t dyn Target, seed: u64) -> Self {
        Self {
            target,
            seed,
            generation: None,
            pool: Vec::new(),
        }
    }

    /// The input of an iteration, and whether it is an undamaged one.
    pub fn of(&mut self, iteration: u64) -> (Input, bool) {
        let (target, name) = (self.target, self.target.name());
        let generation = iteration / GENERATION;
        if self.generation != Some(generation) {
            // Numbers of iterations and of generations must not give the same randomness.
            let mut rng = Rng::new(mix(self.seed), name, generation);
            self.pool = (0..POOL).map(|_| target.generate(&mut rng)).collect();
            self.generation = Some(generation);
        }
        let mut rng = Rng::new(self.seed, name, iteration);
        let base = rng.pick(&self.pool);
        let mut input = base.clone();
        if rng.one_in(32) {
            return (input, true);
        }
        let other = rng.pick(&self.pool);
        for _ in 0..rng.within(1..=DAMAGE_MAX) {
            target.mutate(&mut input, other, &mut rng);
        }
        if rng.one_in(2) {
            target.reseal(&mut input, &mut rng);
        }
        let same = input == *base;
        (input, same)
    }
}

/// Fuzz one target.
pub fn run(
    target: &dyn Target,
    plan: &Plan,
    watchdog: Option<&Watchdog>,
) -> Result<Stats, Box<Violation>> {
    let mut inputs = Inputs::new(target, plan.seed);
    let mut stats = Stats::default();
    let started = Instant::now();
    for iteration in plan.from..plan.from.saturating_add(plan.iterations) {
        if started.elapsed() >= plan.time {
            break;
        }
        let (input, valid) = inputs.of(iteration);
        if let Some(watchdog) = watchdog {
            watchdog.begin(iteration);
        }
        let begun = Instant::now();
        let outcome = attempt(target, &input);
        stats.slowest = stats.slowest.max(begun.elapsed());
        if let Some(watchdog) = watchdog {
            watchdog.end();
        }
        stats.peak = stats.peak.max(outcome.peak);
        let verdict = outcome.result.and_then(|verdict| {
            if valid && verdict == Verdict::Refused {
                let message = "a valid input was refused".into();
                let kind = Kind::Inconsistent;
                return Err(Failure { kind, message });
            }
            Ok(verdict)
        });
        match verdict {
            Err(failure) => {
                return Err(Box::new(Violation {
                    iteration,
                    input,
                    failure,
                }));
            }
            Ok(_) if valid => stats.valid += 1,
            Ok(Verdict::Accepted) => stats.accepted += 1,
            Ok(Verdict::Refused) => stats.refused += 1,
        }
        stats.iterations += 1;
        let accepted = u64::from(verdict == Ok(Verdict::Accepted));
        stats.digest = mix(stats.digest ^ input.digest() ^ accepted);
    }
    stats.elapsed = started.elapsed();
    Ok(stats)
}

impl Stats {
    /// Why this run shows nothing: a fuzzer whose inputs are all refused, or all accepted, does
    /// not reach what it should.
    pub fn blind(&self) -> Option<&'static str> {
        match (self.valid, self.accepted, self.refused) {
            (0, ..) => Some("no valid input was tried"),
            (_, 0, _) => Some("no damaged input was accepted"),
            (_, _, 0) => Some("no damaged input was refused"),
            _ => None,
        }
    }

    /// Inputs decoded a second.
    pub fn per_second(&self) -> u64 {
        let micros = self.elapsed.as_micros().max(1);
        (u128::from(self.iterations) * 1_000_000 / micros) as u64
    }
}
