//! Waking an event loop from a thread that holds no GIL: eight bytes into an eventfd or a pipe.

use std::os::fd::BorrowedFd;

/// Add 1 to the descriptor; a full pipe or a closed descriptor is no error, the loop is awake or gone.
pub fn signal(descriptor: i32) {
    if descriptor < 0 {
        return;
    }
    // SAFETY: the caller keeps the descriptor open for as long as the sync thread runs.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    #[expect(
        clippy::host_endian_bytes,
        reason = "the kernel reads what is added to an eventfd in the byte order of the machine"
    )]
    let one = 1u64.to_ne_bytes();
    let _ = rustix::io::write(borrowed, &one);
}
