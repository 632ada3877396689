//! The lane: what every append does, as a pure state machine.
//!
//! *Theory of operation.* Python decides what happens seldom: greetings, roles, epochs, elections. What
//! happens with every append is here, and a frame is *hot* if a short predicate says that it is nothing else. A
//! [`Conn`] is one end of a connection: it cuts what came into frames, keeps the requests that are
//! open and their window, and gathers what is to be written. [`Conn::feed`] takes hot frames by
//! itself, and stops behind the first *cold* one, which it returns as it is: Python handles that,
//! and feeds the rest. So the order within a connection is that of its bytes.
//!
//! | frame | is hot if |
//! |---|---|
//! | `Append` | the connection is open, the role may append, it is no repeat, its number is new and the window has room |
//! | `Appended` | the connection is open, and the number is that of an open `Append` |
//! | `Replicate` | it is of a peer, and has exactly what is next for a settled backup |
//! | `Commit` | it is of a peer, and each cut is the next one, or known, to all settled replicas of its log |
//! | `Consensus` | it is of a peer and of the node's group, which is settled, and continues its log or says that it does ([`tail`]) |
//! | `Report` | this node leads, the report is not a full one, and its replicas have all that is committed ([`leader`], [`report`]) |
//!
//! Whatever else could be said of a frame is Python's to say: it gets every frame that breaks a
//! rule, for there is no rule in here that a hot frame could break.
//!
//! *Invariants.* The lane has no clock, thread, chance or socket. A frame is taken or returned, never both.
//! What the open requests take never exceeds the window, and is the sum of what each takes. A
//! number is open at most once. After an error nothing comes out any more.
//!
//! [`stream`] is a replica of a log stream in the same way, for what an append does to it.
//!
//! [`tail`] is the log of a Raft group in the same way, for what an append of the group does.
//!
//! [`leader`] is what the leader of the metadata repository does for every cut.
//!
//! [`Line`] is what a client appends and has not sent, and [`Budget`] the room that it takes.

mod conn;
mod head;
pub mod leader;
mod line;
mod outgoing;
pub mod report;
mod requests;
pub mod stream;
pub mod tail;
#[cfg(test)]
mod tests;

pub use conn::{Conn, Event, Side};
pub use head::{Appended, decode_appended, encode_appended};
pub use line::{Budget, Extent, Limits, Line};
pub use outgoing::{Outgoing, Segment};
pub use requests::{REQUEST_COST_MIN, Refusal, Requests, cost};
