//! Fuzz targets for every decoder of the storage core, on stable Rust, without instrumentation.
//!
//! # Theory of operation
//!
//! A [target](target::Target) makes valid inputs with the encoders, damages them with knowledge of
//! their structure, makes their checksums right again half of the time so that the code behind
//! the checksums is reached, and decodes the result. What an iteration does follows from (seed,
//! target, iteration) alone, so three numbers reproduce any of them.
//!
//! # Invariants checked
//!
//! - No panic, on any input.
//! - No more memory than 8 times the input and 4 MiB, counted by the [allocator](alloc). Where
//!   something is decompressed, one largest batch on top.
//! - No iteration longer than [`watchdog::LIMIT`].
//! - A refusal is the error that the decoder documents.
//! - What was accepted agrees with itself: each target says how.
//! - Valid inputs are accepted; of the damaged ones some are accepted and some refused, or the
//!   fuzzer is blind and says so.

mod alloc;
mod args;
mod attempt;
mod input;
mod minimise;
mod mutate;
mod report;
mod rng;
mod run;
mod target;
mod targets;
#[cfg(test)]
mod tests;

mod watchdog;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use args::{Command, Fuzz};
use attempt::{Failure, attempt};
use input::Input;
use run::{Inputs, Violation};
use target::Target;
use watchdog::Watchdog;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

fn main() -> ExitCode {
    match args::parse(std::env::args_os().skip(1)) {
        Err(reason) => {
            eprintln!("{reason}\n\n{}", args::HELP);
            ExitCode::from(2)
        }
        Ok(Command::Print(text)) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Ok(Command::Replay(path)) => replay(&path),
        Ok(Command::Fuzz(fuzz)) => fuzz_all(&fuzz),
    }
}

fn fuzz_all(fuzz: &Fuzz) -> ExitCode {
    let mut held = true;
    for target in &fuzz.targets {
        held &= fuzz_one(*target, fuzz);
    }
    if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn fuzz_one(target: &'static dyn Target, fuzz: &Fuzz) -> bool {
    let (seed, json, name) = (fuzz.plan.seed, fuzz.json, target.name());
    let out = fuzz.out.clone();
    let watchdog = Watchdog::start(watchdog::LIMIT, move |iteration, failure| {
        // The other thread cannot be stopped; what it decodes is made again here.
        let (input, _) = Inputs::new(target, seed).of(iteration);
        println!(
            "{}",
            report::violation(name, seed, iteration, &failure, json)
        );
        save(out.as_deref(), name, &input);
        std::process::exit(1);
    });
    match run::run(target, &fuzz.plan, Some(&watchdog)) {
        Ok(stats) => {
            println!("{}", report::stats(name, seed, &stats, json));
            // A single iteration is repeated for its outcome, not for its mix.
            fuzz.plan.iterations == 1 || stats.blind().is_none()
        }
        Err(violation) => {
            let Violation {
                iteration,
                input,
                failure,
            } = *violation;
            println!(
                "{}",
                report::violation(name, seed, iteration, &failure, json)
            );
            if fuzz.out.is_some() {
                let smaller = minimise::minimise(target, &input, &failure);
                save(fuzz.out.as_deref(), name, &smaller);
            }
            false
        }
    }
}

fn save(out: Option<&Path>, name: &str, input: &Input) {
    let Some(path) = out else { return };
    match std::fs::write(path, input.encode(name)) {
        Ok(()) => eprintln!("reproducer of {} bytes: {}", input.len(), path.display()),
        Err(reason) => eprintln!("cannot write {}: {reason}", path.display()),
    }
}

fn replay(path: &PathBuf) -> ExitCode {
    let refuse = |reason: String| {
        eprintln!("{}: {reason}", path.display());
        ExitCode::from(2)
    };
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(reason) => return refuse(reason.to_string()),
    };
    let (name, input) = match Input::decode(&bytes) {
        Ok(decoded) => decoded,
        Err(reason) => return refuse(reason.to_string()),
    };
    let Some(target) = target::named(&name) else {
        return refuse(format!("no target {name:?}"));
    };
    let watchdog = Watchdog::start(watchdog::LIMIT, |_, Failure { kind, message }| {
        println!("{}: {message}", kind.name());
        std::process::exit(1);
    });
    watchdog.begin(0);
    let outcome = attempt(target, &input);
    watchdog.end();
    let (len, peak) = (input.len(), outcome.peak);
    match outcome.result {
        Ok(verdict) => {
            println!("{name}: {verdict:?}, {peak} bytes held for an input of {len}");
            ExitCode::SUCCESS
        }
        Err(Failure { kind, message }) => {
            println!("{name}: {}: {message}", kind.name());
            ExitCode::FAILURE
        }
    }
}
