//! One decode of one input: caught, measured, judged.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use crate::alloc;
use crate::input::Input;
use crate::target::{Target, Verdict};

/// What kind of invariant was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The decoder panicked.
    Panic,
    /// It held more memory than its bound.
    Memory,
    /// It went on for too long.
    Hang,
    /// What it accepted contradicts itself, or a valid input was refused.
    Inconsistent,
}

impl Kind {
    /// For people and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Panic => "panic",
            Self::Memory => "memory",
            Self::Hang => "hang",
            Self::Inconsistent => "inconsistent",
        }
    }
}

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which one.
    pub kind: Kind,
    /// How.
    pub message: String,
}

/// What came of one decode.
#[derive(Debug)]
pub struct Outcome {
    /// The verdict, or what was broken.
    pub result: Result<Verdict, Failure>,
    /// Most bytes held.
    pub peak: usize,
}

/// Longest message that is kept.
const MESSAGE_CHARS: usize = 1000;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static CAUGHT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// While this thread decodes, a panic is kept for the report and not printed.
fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if CATCHING.get() {
                CAUGHT.set(info.to_string());
            } else {
                usual(info);
            }
        }));
    });
}

/// Decode `input` once.
pub fn attempt(target: &dyn Target, input: &Input) -> Outcome {
    keep_panics();
    let bound = target.bound(input);
    CATCHING.set(true);
    let (caught, peak) =
        alloc::measure(|| panic::catch_unwind(AssertUnwindSafe(|| target.check(input))));
    CATCHING.set(false);
    let failure = |kind, message| Err(Failure { kind, message });
    let result = match caught {
        Err(_) => failure(Kind::Panic, CAUGHT.take()),
        Ok(Err(message)) => failure(Kind::Inconsistent, shorten(message)),
        Ok(Ok(_)) if peak > bound => {
            let len = input.len();
            let message = format!("{peak} bytes held for an input of {len}, the bound is {bound}");
            failure(Kind::Memory, message)
        }
        Ok(Ok(verdict)) => Ok(verdict),
    };
    Outcome { result, peak }
}

/// Whole states and records make long messages.
fn shorten(mut message: String) -> String {
    if let Some((end, _)) = message.char_indices().nth(MESSAGE_CHARS) {
        message.truncate(end);
        message.push_str("...");
    }
    message
}
