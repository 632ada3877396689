//! The node that a poll serves: what its lane does at the end of a turn, and what Python is asked for.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::time::{ClockId, clock_gettime};

use crate::conn::{Appends, Conn};
use crate::lane::{Ended, Lane, by_session};
use crate::links::Written;
use crate::poll::{Hot, borrowed};
use crate::replicas::Replicas;

/// The node whose appends are taken.
pub struct Served {
    pub lane: Py<Lane>,
    store: Py<Replicas>,
    /// Does what the lane does not.
    node: Py<PyAny>,
    /// The class of what an answer goes back to.
    request: Py<PyAny>,
    /// Becomes readable when a thread has synced; -1: none does.
    pub syncs: RawFd,
    /// Whether no appends are taken any more.
    drains: AtomicBool,
    /// Whether the loop has to go on, because something was called that may have left it something to do.
    yields: AtomicBool,
    /// How far was written, and hurried, when Python was last told.
    seen: Mutex<(u64, u64)>,
}

/// What became of what was ready.
#[derive(Default)]
pub struct Round {
    /// What is Python's: descriptors, and what they are ready for.
    pub cold: Vec<(RawFd, u32)>,
    /// Whether Python was asked, so that its turn has to end.
    pub asked: bool,
    /// Whether the lane has to end a turn.
    pub stirred: bool,
    /// Whether a thread has synced.
    pub synced: bool,
    /// Connections that have something to write.
    pub written: Vec<Written>,
}

impl Served {
    /// Serve a node; see `Poll.serve`.
    pub fn new(
        lane: Py<Lane>,
        store: Py<Replicas>,
        node: Py<PyAny>,
        request: Py<PyAny>,
        syncs: RawFd,
    ) -> Self {
        Self {
            lane,
            store,
            node,
            request,
            syncs,
            drains: AtomicBool::new(false),
            yields: AtomicBool::new(false),
            seen: Mutex::default(),
        }
    }

    /// Take no appends any more: the node stops.
    pub fn drain(&self) {
        self.drains.store(true, Ordering::Relaxed);
    }

    /// Have the loop go on with what Python may have left it.
    fn give_way(&self) {
        self.yields.store(true, Ordering::Relaxed);
    }

    /// Whether the loop has to go on; then it does.
    pub fn gives_way(&self) -> bool {
        self.yields.swap(false, Ordering::Relaxed)
    }

    /// Take what was read from a connection.
    pub fn take_in(
        &self,
        py: Python<'_>,
        hot: &Hot,
        bytes: &[u8],
        round: &mut Round,
    ) -> PyResult<()> {
        let fed = hot.conn.bind(py).borrow_mut().take_in(py, bytes, 0);
        let fed = match fed {
            Ok(fed) => fed,
            Err(error) => {
                round.asked = true;
                hot.wire
                    .call_method1(py, "refuse", (error.into_value(py),))?;
                return Ok(());
            }
        };
        round.stirred |= fed.stirs;
        let known = {
            let lane = self.lane.bind(py).borrow();
            let heard = fed.commits == 0 || lane.leader_heard == hot.node;
            let awaited = fed.consensus > 0 && lane.awaits_heartbeat;
            fed.hot == 0 || (lane.links.has(hot.node) && heard && !awaited)
        };
        if fed.cold.is_some() || !fed.appended.is_empty() || !known {
            round.asked = true;
            let rest = PyBytes::new(py, bytes);
            hot.wire.call_method1(py, "take", (rest, fed.into_row()))?;
            return Ok(());
        }
        for appends in fed.appends {
            round.stirred = true;
            if !self.append(py, hot, &appends)? {
                round.asked = true;
                let row = (
                    vec![appends],
                    Vec::<u32>::new(),
                    py.None(),
                    0,
                    (0, 0, 0, false),
                );
                hot.wire
                    .call_method1(py, "take", (PyBytes::new(py, b""), row))?;
            }
        }
        let (part, queued) = {
            let conn = hot.conn.bind(py).borrow();
            (conn.has_part(), conn.has_queued())
        };
        if part {
            self.give_way();
            hot.wire.call_method0(py, "look_at_frame")?;
        }
        if queued {
            round.written.push(Written {
                conn: hot.conn.clone_ref(py),
                wire: hot.wire.clone_ref(py),
            });
        }
        Ok(())
    }

    /// Append what came together for one stream; false: nothing was done, and Python has to.
    fn append(&self, py: Python<'_>, hot: &Hot, appends: &Appends<'_>) -> PyResult<bool> {
        if self.drains.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let (stream, epoch, numbers, batches) = appends;
        let now = monotonic();
        let request = |number: &u32| self.request.call1(py, (&hot.wire, *number, now));
        let requests = numbers.iter().map(request).collect::<PyResult<Vec<_>>>()?;
        let views = batches.iter().map(|batch| batch.clone().into_any());
        let size: usize = batches.iter().map(|batch| batch.as_bytes().len()).sum();
        let mut lane = self.lane.bind(py).borrow_mut();
        match lane.append(py, *stream, *epoch, requests, views.collect()) {
            Ok(None) => return Ok(false),
            Ok(Some((llsn, fresh, repeats, left))) => {
                lane.count(numbers.len() as u64, size as u64, 0);
                drop(lane);
                if !repeats.is_empty() || !left.is_empty() {
                    self.give_way();
                    self.call(py, "placed", (*stream, llsn, fresh, repeats, left));
                }
            }
            Err(error) => {
                drop(lane);
                self.bear(py, error);
            }
        }
        Ok(true)
    }

    /// End a turn: whether Python has to go on, and whether something was written that nobody has synced.
    pub fn end_turn(&self, py: Python<'_>, round: &mut Round) -> (bool, bool) {
        let mut written = std::mem::take(&mut round.written);
        let mut synced = round.synced;
        if synced {
            // How many syncs it were says the store.
            let _ = rustix::io::read(borrowed(self.syncs), &mut [0u8; 8]);
        }
        let mut may_sync = true;
        loop {
            if std::mem::take(&mut synced) {
                let Some(durable) = self.store.bind(py).get().synced_to() else {
                    // The store failed, and says so to who writes next.
                    leave(py, written);
                    return (true, false);
                };
                self.call(py, "synced", (durable,));
                let told = self.lane.bind(py).borrow_mut().synced(py, durable);
                if let Err(error) = told {
                    self.bear(py, error);
                    return (true, false);
                }
                let stored = self.lane.bind(py).borrow_mut().take_stored();
                if stored != 0 {
                    self.call(py, "stored", (stored,));
                    leave(py, written);
                    return (true, false);
                }
            }
            if self.lane.bind(py).borrow().is_stirred() {
                let ended = self.lane.bind(py).borrow_mut().end_turn(py);
                let ended = match ended {
                    Ok(ended) => ended,
                    Err(error) => {
                        self.bear(py, error);
                        leave(py, written);
                        return (true, false);
                    }
                };
                match self.carry_out(py, ended, &mut written) {
                    Ok(true) => {}
                    Ok(false) => {
                        leave(py, written);
                        return (true, false);
                    }
                    Err(error) => {
                        self.bear(py, error);
                        leave(py, written);
                        return (true, false);
                    }
                }
            }
            for each in written.drain(..) {
                if !flush(py, each) {
                    self.give_way();
                }
            }
            let Some(now) = self.news(py) else {
                return (false, false);
            };
            if !may_sync {
                return (false, true);
            }
            // One sync a turn: what others sent meanwhile goes with the next.
            may_sync = false;
            *self.seen.lock() = now;
            match self.ask(py, "wrote", now) {
                Some(1..) => synced = true,
                Some(0) => return (false, false),
                None => return (true, false),
            }
        }
    }

    /// How far was written, if that is further than Python was told.
    fn news(&self, py: Python<'_>) -> Option<(u64, u64)> {
        // A store that failed says so to who writes next.
        let now = self.store.bind(py).get().written()?;
        (now != *self.seen.lock()).then_some(now)
    }

    /// Carry out what a turn has left; false: it was Python's, which has done it.
    fn carry_out(
        &self,
        py: Python<'_>,
        ended: Ended,
        written: &mut Vec<Written>,
    ) -> PyResult<bool> {
        if !ended.is_calm() {
            let turn = ended.into_row(py)?;
            self.call(py, "turned", (turn,));
            return Ok(false);
        }
        written.extend(ended.written);
        if !ended.answers.is_empty() {
            let (sessions, times) = by_session(py, ended.answers)?;
            let mut answered = 0;
            for (session, rows) in sessions {
                answered += rows.len() as u64;
                let conn: Py<Conn> = session.getattr("core")?.extract()?;
                let mut held = conn.bind(py).borrow_mut();
                if !held.is_plain() || !held.takes_appends() || !held.writable {
                    drop(held);
                    self.give_way();
                    session.call_method1("answer_appends", (rows,))?;
                    continue;
                }
                let before = held.queued();
                let others = held.answer_appends(rows)?;
                let size = held.queued() - before;
                drop(held);
                if !others.is_empty() {
                    session.call_method1("unasked", (others,))?;
                }
                session.call_method1("answered", (size,))?;
                written.push(Written {
                    conn,
                    wire: session.unbind(),
                });
            }
            self.lane.bind(py).borrow_mut().count(0, 0, answered);
            self.call(py, "measured", (times,));
        }
        let watched = self.lane.bind(py).borrow().watched(py, &ended.advanced);
        if !watched.is_empty() {
            self.give_way();
            self.call(py, "advanced", (watched,));
        }
        Ok(true)
    }

    /// Ask Python to do something; what goes wrong there ends the node, or is borne.
    pub fn call<'py>(&self, py: Python<'py>, what: &str, given: impl PyCallArgs<'py>) {
        if let Err(error) = self.node.bind(py).call_method1(what, given) {
            self.bear(py, error);
        }
    }

    /// Ask Python for something; `None`: it went wrong.
    fn ask(&self, py: Python<'_>, what: &str, given: (u64, u64)) -> Option<u64> {
        let asked = || self.node.bind(py).call_method1(what, given)?.extract();
        match asked() {
            Ok(answer) => Some(answer),
            Err(error) => {
                self.bear(py, error);
                None
            }
        }
    }

    /// Let Python judge an error.
    fn bear(&self, py: Python<'_>, error: PyErr) {
        self.give_way();
        let value = error.into_value(py);
        if let Err(error) = self.node.bind(py).call_method1("bear", (value,)) {
            error.write_unraisable(py, None);
        }
    }
}

/// Write what a connection has outgoing; false: Python writes the rest.
fn flush(py: Python<'_>, written: Written) -> bool {
    let mut conn = written.conn.bind(py).borrow_mut();
    if !conn.is_plain() {
        drop(conn);
        leave(py, vec![written]);
        return false;
    }
    let rest = conn.write(py);
    drop(conn);
    let told = match rest {
        Ok(rest) if rest.is_empty() => return true,
        Ok(rest) => written.wire.call_method1(py, "write_rest", (rest,)),
        Err(error) => Err(error),
    };
    if let Err(error) = told {
        crashed(py, &written.wire, error);
    }
    false
}

/// Leave it to Python to write, at the end of its turn.
pub fn leave(py: Python<'_>, written: Vec<Written>) {
    for each in written {
        if let Err(error) = each.wire.call_method0(py, "write_soon") {
            crashed(py, &each.wire, error);
        }
    }
}

/// Close a connection whose protocol failed.
pub fn crashed(py: Python<'_>, wire: &Py<PyAny>, error: PyErr) {
    let value = error.into_value(py);
    if let Err(error) = wire.call_method1(py, "crashed", (value,)) {
        error.write_unraisable(py, None);
    }
}

/// The time of `time.monotonic`, in seconds.
fn monotonic() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    #[expect(clippy::cast_precision_loss, reason = "as Python has it")]
    let (seconds, nanos) = (now.tv_sec as f64, now.tv_nsec as f64);
    seconds + nanos / 1e9
}
