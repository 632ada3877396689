//! A socket that the core reads and writes, while the event loop does nothing else with it.

use std::io::IoSlice;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use braidlog_core::lane::Segment;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySlice};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::conn::{Conn, View, buffer};

/// What one call of the system takes at most (`IOV_MAX`).
const SLICES_MAX: usize = 1024;

/// A socket, and what the event loop waits for at it.
pub struct Socket {
    descriptor: RawFd,
    interest: AtomicU32,
}

impl Socket {
    /// A socket that its transport keeps open until it says that it is gone.
    pub fn new(descriptor: RawFd, interest: EventFlags) -> Self {
        Self {
            descriptor,
            interest: AtomicU32::new(interest.bits()),
        }
    }

    /// Note what the event loop waits for.
    pub fn set_interest(&self, interest: EventFlags) {
        self.interest.store(interest.bits(), Ordering::Relaxed);
    }

    /// Whether it is read, and nothing waits to be written: else it is the transport's alone.
    pub fn is_plain(&self) -> bool {
        self.interest.load(Ordering::Relaxed) == EventFlags::IN.bits()
    }

    /// Read what is there: how much; `None` if its transport has to look.
    pub fn read(&self, into: &mut [u8]) -> Option<usize> {
        match rustix::net::recv(self.borrowed(), into, RecvFlags::DONTWAIT) {
            Ok((read, _)) if read > 0 => Some(read),
            Err(Errno::AGAIN | Errno::INTR) => Some(0),
            _ => None,
        }
    }

    /// Write as much as it takes at once. What is wrong with it hears who writes the rest.
    pub fn write(&self, slices: &[IoSlice<'_>]) -> usize {
        let slices = slices.get(..SLICES_MAX).unwrap_or(slices);
        rustix::io::writev(self.borrowed(), slices).unwrap_or(0)
    }

    fn borrowed(&self) -> BorrowedFd<'_> {
        // SAFETY: a transport tells the poll that its socket is gone before it closes it
        // (`Wire.connection_lost`), and then no connection has this any more.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }
}

impl Conn {
    /// Write what is outgoing; what the socket does not take now is returned, and all if its transport writes.
    pub fn write<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let Some(socket) = self.socket.clone().filter(|socket| socket.is_plain()) else {
            return Ok(self.take(py));
        };
        let segments = self.core.take();
        if let [Segment::Own(bytes)] = &segments[..] {
            let written = socket.write(&[IoSlice::new(bytes)]);
            let rest = bytes.get(written..).filter(|rest| !rest.is_empty());
            return Ok(rest
                .map(|rest| PyBytes::new(py, rest).into_any())
                .into_iter()
                .collect());
        }
        let mut buffers: Vec<Bound<'py, PyAny>> =
            segments.into_iter().map(|each| buffer(py, each)).collect();
        let (mut written, sizes) = {
            let views = buffers.iter().map(View::of).collect::<PyResult<Vec<_>>>()?;
            let parts = views
                .iter()
                .map(View::bytes)
                .collect::<PyResult<Vec<_>>>()?;
            let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
            let sizes: Vec<usize> = parts.iter().map(|part| part.len()).collect();
            (socket.write(&slices), sizes)
        };
        let mut whole = 0;
        for size in &sizes {
            if written < *size {
                break;
            }
            written -= size;
            whole += 1;
        }
        buffers.drain(..whole);
        if let Some(first) = buffers.first_mut().filter(|_| written > 0) {
            let begin = written.try_into().unwrap_or(isize::MAX);
            let rest = PySlice::new(py, begin, isize::MAX, 1);
            *first = PyMemoryView::from(first)?.get_item(rest)?;
        }
        Ok(buffers)
    }
}
