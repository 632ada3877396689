//! What readers see, and how they read it: from memory where they have caught up, else from segment files.
//!
//! Nothing here takes a lock that a writer holds while it writes, and nothing here places or writes anything.

pub(crate) mod backward;
pub(crate) mod batches;
pub(crate) mod cache;
pub(crate) mod commits;
pub(crate) mod locate;
pub(crate) mod lookup;
pub(crate) mod stream;
pub(crate) mod view;
