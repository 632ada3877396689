//! The connections over which a node speaks to others, as far as the lane uses them.

use std::collections::BTreeMap;

use braidlog_core::wire::{HEADER_BYTES, frame_header};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;

use crate::conn::{Conn, Views};
use crate::error::to_py;

/// A connection, and the socket below it.
struct Link {
    conn: Py<Conn>,
    wire: Py<PyAny>,
}

/// A connection that has something to write, and its socket.
pub struct Written {
    pub conn: Py<Conn>,
    pub wire: Py<PyAny>,
}

/// The links that are open, by the node at the other end.
#[derive(Default)]
pub struct Links {
    open: BTreeMap<u64, Link>,
    /// Sockets that have something to write at the end of this turn.
    written: Vec<Written>,
    /// What may wait for a socket; more is lost, and Python's to lose.
    unsent_bytes_max: usize,
}

impl Links {
    /// What may wait for a socket.
    pub fn limit(&mut self, unsent_bytes_max: usize) {
        self.unsent_bytes_max = unsent_bytes_max;
    }

    /// Speak to a node over this connection from now on.
    pub fn open(&mut self, node: u64, conn: Py<Conn>, wire: Py<PyAny>) {
        self.open.insert(node, Link { conn, wire });
    }

    /// Have this connection to a node no more.
    pub fn close(&mut self, node: u64, conn: &Py<Conn>) {
        if self.open.get(&node).is_some_and(|link| link.conn.is(conn)) {
            self.open.remove(&node);
        }
    }

    /// Queue a message for a node. False: it is left to Python, which keeps it, loses it, or says why not.
    pub fn send(
        &mut self,
        py: Python<'_>,
        node: u64,
        kind: u8,
        head: &[u8],
        payload: &[Bound<'_, PyAny>],
    ) -> bool {
        let header = header_of(kind, head, payload);
        header.is_ok_and(|header| self.send_framed(py, node, &header, head, payload))
    }

    /// Queue a message for several nodes; those to which it is left to Python to send it.
    pub fn send_all(
        &mut self,
        py: Python<'_>,
        nodes: &[u64],
        kind: u8,
        head: &[u8],
        payload: &[Bound<'_, PyAny>],
    ) -> Vec<u64> {
        let Ok(header) = header_of(kind, head, payload) else {
            return nodes.to_vec();
        };
        let left = |node: &&u64| !self.send_framed(py, **node, &header, head, payload);
        nodes.iter().filter(left).copied().collect()
    }

    fn send_framed(
        &mut self,
        py: Python<'_>,
        node: u64,
        header: &[u8; HEADER_BYTES],
        head: &[u8],
        payload: &[Bound<'_, PyAny>],
    ) -> bool {
        let Some(link) = self.open.get(&node) else {
            return false;
        };
        // Only a connection that is being read is borrowed, and nothing is sent meanwhile.
        let Ok(mut conn) = link.conn.bind(py).try_borrow_mut() else {
            return false;
        };
        // What the core writes itself has nothing that waits.
        let has_room = conn.is_plain() || has_room(py, link, payload, self.unsent_bytes_max);
        if !conn.writable || !has_room {
            return false;
        }
        let noted = conn.has_queued();
        let sent = conn.send(header, head, payload).unwrap_or(false);
        if sent && !noted {
            self.written.push(Written {
                conn: link.conn.clone_ref(py),
                wire: link.wire.clone_ref(py),
            });
        }
        sent
    }

    /// Whether there is one to a node.
    pub fn has(&self, node: u64) -> bool {
        self.open.contains_key(&node)
    }

    /// Take the sockets that have something to write.
    pub fn take_written(&mut self) -> Vec<Written> {
        std::mem::take(&mut self.written)
    }

    /// Whether there are any.
    pub fn has_written(&self) -> bool {
        !self.written.is_empty()
    }

    /// Tell the collector of Python what is held.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        for link in self.open.values() {
            visit.call(&link.conn)?;
            visit.call(&link.wire)?;
        }
        for written in &self.written {
            visit.call(&written.conn)?;
            visit.call(&written.wire)?;
        }
        Ok(())
    }

    /// Let go of everything.
    pub fn clear(&mut self) {
        self.open.clear();
        self.written.clear();
    }
}

/// The header of a message that expects no answer.
fn header_of(kind: u8, head: &[u8], payload: &[Bound<'_, PyAny>]) -> PyResult<[u8; HEADER_BYTES]> {
    let views = Views::of(payload)?;
    frame_header(kind, 0, head, &views.slices()?).map_err(to_py)
}

/// Whether the socket has not too much to write. What is larger than the bound by itself goes alone.
fn has_room(py: Python<'_>, link: &Link, payload: &[Bound<'_, PyAny>], max: usize) -> bool {
    let unsent = || -> PyResult<usize> {
        let unsent = link.wire.getattr(py, intern!(py, "unsent_bytes"))?;
        unsent.call0(py)?.extract(py)
    };
    let size = || {
        payload
            .iter()
            .map(PyAnyMethods::len)
            .sum::<PyResult<usize>>()
    };
    match unsent() {
        Ok(0) => true,
        Ok(unsent) => size().is_ok_and(|size| unsent + size <= max),
        Err(_) => false,
    }
}
