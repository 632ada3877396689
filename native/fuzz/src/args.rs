//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use lexopt::prelude::*;

use crate::run::Plan;
use crate::target::{self, Target};

/// What `--help` prints.
pub const HELP: &str = "\
Fuzz the decoders of the storage core.

Usage: braidlog-fuzz [OPTIONS]

  --seconds N      time for each target (default 5)
  --target NAME    only this target; may be repeated
  --seed S         where all randomness comes from (default 1)
  --iterations N   stop a target after so many inputs
  --from N         begin with this iteration: with --iterations 1, repeats one
  --out FILE       where a minimal reproducer goes if an invariant breaks
  --replay FILE    decode a reproducer once and say what happens
  --json           report as JSON, one object for each target
  --list           name the targets

Exit status: 0 all invariants held, 1 one broke or a target saw too little, 2 usage.
";

/// What to do.
pub enum Command {
    /// Print and exit.
    Print(String),
    /// Decode a reproducer.
    Replay(PathBuf),
    /// Fuzz.
    Fuzz(Fuzz),
}

/// What to fuzz.
pub struct Fuzz {
    /// Targets.
    pub targets: Vec<&'static dyn Target>,
    /// How.
    pub plan: Plan,
    /// Where a reproducer goes.
    pub out: Option<PathBuf>,
    /// Report as JSON.
    pub json: bool,
}

/// Parse the arguments, the program's name not among them.
pub fn parse(args: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Command, lexopt::Error> {
    let mut parser = lexopt::Parser::from_args(args);
    let mut plan = Plan {
        seed: 1,
        from: 0,
        iterations: u64::MAX,
        time: Duration::from_secs(5),
    };
    let mut timed = false;
    let (mut targets, mut out, mut json) = (Vec::new(), None, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seconds") => {
                plan.time = Duration::try_from_secs_f64(parser.value()?.parse()?)
                    .map_err(|reason| lexopt::Error::Custom(reason.into()))?;
                timed = true;
            }
            Long("seed") => plan.seed = parser.value()?.parse()?,
            Long("iterations") => plan.iterations = parser.value()?.parse()?,
            Long("from") => plan.from = parser.value()?.parse()?,
            Long("target") => {
                let name = parser.value()?.string()?;
                let unknown = || format!("no target {name:?}; --list names them");
                targets.push(target::named(&name).ok_or_else(unknown)?);
            }
            Long("out") => out = Some(parser.value()?.into()),
            Long("replay") => return Ok(Command::Replay(parser.value()?.into())),
            Long("json") => json = true,
            Long("list") => {
                let names = target::ALL.map(Target::name).join("\n");
                return Ok(Command::Print(names + "\n"));
            }
            Short('h') | Long("help") => return Ok(Command::Print(HELP.into())),
            _ => return Err(argument.unexpected()),
        }
    }
    if targets.is_empty() {
        targets = target::ALL.to_vec();
    }
    if plan.iterations < u64::MAX && !timed {
        plan.time = Duration::MAX;
    }
    Ok(Command::Fuzz(Fuzz {
        targets,
        plan,
        out,
        json,
    }))
}
