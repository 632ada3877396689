//! What a fuzz target is.

use crate::input::Input;
use crate::mutate;
use crate::rng::Rng;
use crate::targets;

/// What the decoder said of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It decoded.
    Accepted,
    /// It was refused with a proper error.
    Refused,
}

/// A broken invariant, in words.
pub type Broken = String;

/// A decoder under test.
pub trait Target: Sync {
    /// Name on the command line.
    fn name(&self) -> &'static str;

    /// A valid input, made by the encoders with random parameters.
    fn generate(&self, rng: &mut Rng) -> Input;

    /// Damage a valid input once; `other` is another one, to take pieces from.
    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        mutate::damage(input.bytes_mut(), &[], other.bytes(), rng);
    }

    /// Make the checksums right again, so that what lies behind them is reached. Of a valid input
    /// it changes nothing.
    fn reseal(&self, input: &mut Input, rng: &mut Rng);

    /// The most bytes that decoding may hold at any time.
    fn bound(&self, input: &Input) -> usize {
        general_bound(input)
    }

    /// Decode, and hold what was accepted to the invariants.
    fn check(&self, input: &Input) -> Result<Verdict, Broken>;
}

/// The bound of every target unless it says otherwise: 8 times the input and 4 MiB.
pub fn general_bound(input: &Input) -> usize {
    8 * input.len() + (4 << 20)
}

/// All targets.
pub const ALL: [&dyn Target; 22] = [
    &targets::batch::Batch,
    &targets::frame::Frames,
    &targets::segment::Segment,
    &targets::side::Side,
    &targets::manifest::ManifestFiles,
    &targets::small::Identity,
    &targets::small::Watermarks,
    &targets::small::Checkpoints,
    &targets::small::Current,
    &targets::wire::Wire,
    &targets::lane::Lane,
    &targets::tail::Tail,
    &targets::stream::Streams,
    &targets::table::run::Runs,
    &targets::table::tree::Trees,
    &targets::part::Part,
    &targets::table::index_key::IndexKeys,
    &targets::table::field::Fields,
    &targets::table::payload::Payloads,
    &targets::table::payload::Marks,
    &targets::table::counted::CountersFiles,
    &targets::table::counted::BasesFiles,
];

/// The target of that name.
pub fn named(name: &str) -> Option<&'static dyn Target> {
    ALL.into_iter().find(|target| target.name() == name)
}

/// Refuse unless `condition` holds.
pub fn hold(condition: bool, invariant: impl FnOnce() -> String) -> Result<(), Broken> {
    if condition { Ok(()) } else { Err(invariant()) }
}
