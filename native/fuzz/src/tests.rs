//! The fuzzer finds what it should: a planted bug behind the checksums of every format, and each
//! kind of failure; and it does the same twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::attempt::{Failure, Kind, attempt};
use crate::input::Input;
use crate::minimise::{minimise, same};
use crate::rng::Rng;
use crate::run::{Inputs, Plan, Stats, Violation, run};
use crate::target::{self, Broken, Target, Verdict};
use crate::watchdog::Watchdog;

mod planted;

/// A target with a bug in what follows its decoder: only inputs that it accepts get there.
struct Planted<F> {
    inner: &'static dyn Target,
    bug: F,
}

impl<F: Fn(&Input) -> Result<(), Broken> + Sync> Target for Planted<F> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        self.inner.generate(rng)
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        self.inner.mutate(input, other, rng);
    }

    fn reseal(&self, input: &mut Input, rng: &mut Rng) {
        self.inner.reseal(input, rng);
    }

    fn bound(&self, input: &Input) -> usize {
        self.inner.bound(input)
    }

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let verdict = self.inner.check(input)?;
        if verdict == Verdict::Accepted {
            (self.bug)(input)?;
        }
        Ok(verdict)
    }
}

fn plan(seed: u64, iterations: u64) -> Plan {
    Plan {
        seed,
        from: 0,
        iterations,
        time: Duration::MAX,
    }
}

fn run_of(target: &dyn Target, plan: &Plan) -> Result<Stats, Violation> {
    run(target, plan, None).map_err(|violation| *violation)
}

fn violation_of(target: &dyn Target, iterations: u64) -> Violation {
    match run_of(target, &plan(3, iterations)) {
        Ok(stats) => panic!("{}: nothing found, {stats:?}", target.name()),
        Err(violation) => violation,
    }
}

#[test]
fn every_target_finds_its_planted_bug_again_and_makes_it_smaller() {
    for (name, bug) in planted::BUGS {
        let Some(inner) = target::named(name) else {
            panic!("{name}")
        };
        let target = Planted {
            inner,
            bug: |input: &Input| {
                bug(input);
                Ok(())
            },
        };
        let found = violation_of(&target, 100_000);
        assert_eq!(found.failure.kind, Kind::Panic, "{name}");
        assert!(
            found.failure.message.contains("planted.rs"),
            "{name}: {:?}",
            found.failure
        );
        let (again, _) = Inputs::new(&target, 3).of(found.iteration);
        assert_eq!(again, found.input, "{name}");

        let smaller = minimise(&target, &found.input, &found.failure);
        assert!(smaller.len() <= found.input.len(), "{name}");
        let Ok((stored, read)) = Input::decode(&smaller.encode(name)) else {
            panic!("{name}: reproducer cannot be read")
        };
        assert_eq!((stored.as_str(), &read), (name, &smaller));
        match attempt(&target, &read).result {
            Err(failure) => assert!(same(&failure, &found.failure), "{name}: {failure:?}"),
            Ok(verdict) => panic!("{name}: the reproducer is {verdict:?}"),
        }
    }
    let planted: Vec<&str> = planted::BUGS.iter().map(|(name, _)| *name).collect();
    assert_eq!(planted, target::ALL.map(Target::name));
}

fn watermark() -> &'static dyn Target {
    &crate::targets::small::Watermarks
}

#[test]
fn memory_and_contradictions_are_found() {
    let greedy = Planted {
        inner: watermark(),
        bug: |_: &Input| {
            std::hint::black_box(vec![1u8; 16 << 20]);
            Ok(())
        },
    };
    let found = violation_of(&greedy, 1000).failure;
    assert_eq!(found.kind, Kind::Memory, "{found:?}");
    let liar = Planted {
        inner: watermark(),
        bug: |_: &Input| Err("not what it was".into()),
    };
    let found = violation_of(&liar, 1000).failure;
    assert_eq!(found.kind, Kind::Inconsistent, "{found:?}");
}

#[test]
fn a_decode_that_does_not_end_is_found() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let endless = Planted {
        inner: watermark(),
        bug: |_: &Input| {
            while !STOP.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            Ok(())
        },
    };
    let found: Arc<parking::Slot> = Arc::default();
    let slot = Arc::clone(&found);
    let watchdog = Watchdog::start(Duration::from_millis(50), move |iteration, failure| {
        slot.put(iteration, failure);
        STOP.store(true, Ordering::Release);
    });
    assert!(run(&endless, &plan(3, 1000), Some(&watchdog)).is_ok());
    let Some((iteration, failure)) = found.take() else {
        panic!("the watchdog slept")
    };
    assert_eq!(failure.kind, Kind::Hang);
    assert!(iteration < 1000);
}

/// A place for what another thread found.
mod parking {
    use std::sync::Mutex;

    use super::Failure;

    #[derive(Default)]
    pub struct Slot(Mutex<Option<(u64, Failure)>>);

    impl Slot {
        pub fn put(&self, iteration: u64, failure: Failure) {
            if let Ok(mut slot) = self.0.lock() {
                *slot = Some((iteration, failure));
            }
        }

        pub fn take(&self) -> Option<(u64, Failure)> {
            self.0.lock().ok().and_then(|mut slot| slot.take())
        }
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    for target in target::ALL {
        let digest = |seed| match run_of(target, &plan(seed, 400)) {
            Ok(stats) => stats.digest,
            Err(violation) => panic!("{}: {:?}", target.name(), violation.failure),
        };
        assert_eq!(digest(5), digest(5), "{}", target.name());
        assert_ne!(digest(5), digest(6), "{}", target.name());
    }
}

#[test]
fn sealing_a_valid_input_again_changes_nothing() {
    for target in target::ALL {
        let mut rng = Rng::new(9, target.name(), 0);
        for _ in 0..20 {
            let input = target.generate(&mut rng);
            assert!(input.len() > 0, "{}", target.name());
            let mut sealed = input.clone();
            target.reseal(&mut sealed, &mut rng);
            for ((name, bytes), (_, again)) in input.files.iter().zip(&sealed.files) {
                let at = bytes.iter().zip(again).position(|(one, two)| one != two);
                assert_eq!(at, None, "{} {name}", target.name());
            }
            assert!(sealed == input, "{}", target.name());
        }
    }
}

#[test]
fn a_fuzzer_that_sees_too_little_says_so() {
    let stats = Stats {
        valid: 1,
        accepted: 1,
        refused: 1,
        ..Stats::default()
    };
    assert_eq!(stats.blind(), None);
    for blind in [
        Stats { valid: 0, ..stats },
        Stats {
            accepted: 0,
            ..stats
        },
        Stats {
            refused: 0,
            ..stats
        },
    ] {
        assert!(blind.blind().is_some(), "{blind:?}");
    }
}
