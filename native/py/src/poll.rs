//! Where the event loop of a node waits, and what every append does meanwhile.
//!
//! # Theory of operation
//!
//! An event loop asks a selector what is ready, and calls Python for each answer. This one reads the sockets of open
//! connections itself and gives the lane what came; it ends the turn, writes, syncs, and waits again. Python is
//! called for what the lane does not take, and the loop goes on as soon as there is anything else to do: a timer, a
//! socket that is not open yet, a call of another thread. So there is one thread, one order of what happens, and
//! nothing to hand over; the sockets are still those of the transports of the loop.
//!
//! # Invariants
//!
//! A socket is read and written here only while the loop waits for nothing but that it can be read. A transport that
//! holds something back, waits for room or is closing is not waited for like that, so it alone has the socket then. A
//! turn ends here only if nothing of Python's is due, so no effect is carried out twice or left out.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::exceptions::{PyKeyError, PyOSError};
use pyo3::prelude::*;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::conn::Conn;
use crate::exit::detach;
use crate::lane::Lane;
use crate::replicas::Replicas;
use crate::served::{Round, Served, crashed, leave};
use crate::socket::Socket;

/// What `selectors` of Python calls it.
const READ: u32 = 1;
const WRITE: u32 = 2;

/// What is taken from the system at once.
const EVENTS_MAX: usize = 64;
/// What one read of a socket takes at most.
const READ_BYTES_MAX: usize = 256 << 10;

/// A connection whose socket is read and written here.
pub struct Hot {
    socket: Arc<Socket>,
    pub conn: Py<Conn>,
    pub wire: Py<PyAny>,
    /// The node at the other end; 0: a client.
    pub node: u64,
}

/// A descriptor that the loop waits for.
struct Known {
    interest: EventFlags,
    hot: Option<Arc<Hot>>,
}

/// A selector that takes what is said on open connections.
#[pyclass(module = "braidlog._native", frozen)]
pub struct Poll {
    epoll: OwnedFd,
    known: Mutex<HashMap<RawFd, Known>>,
    served: Mutex<Option<Arc<Served>>>,
    buffer: Mutex<Vec<u8>>,
    /// How long to look again and again after something came, before the thread sleeps.
    spin: Duration,
    /// Whether reads have to be small, so that Python makes them.
    scarce: AtomicBool,
    /// Turns that ended here.
    turns: AtomicU64,
    /// When something of an append came last.
    awake: Mutex<Option<Instant>>,
    /// How often it was looked in vain instead of sleeping.
    spun: AtomicU64,
}

/// What is ready.
struct Ready {
    descriptor: RawFd,
    flags: EventFlags,
}

impl Ready {
    fn of(event: &Event) -> Self {
        let data = event.data;
        Self {
            descriptor: RawFd::try_from(data.u64()).unwrap_or(-1),
            flags: event.flags,
        }
    }
}

#[pymethods]
impl Poll {
    #[new]
    #[pyo3(signature = (spin_us=0))]
    fn new(spin_us: u64) -> PyResult<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC).map_err(failed)?,
            known: Mutex::default(),
            served: Mutex::default(),
            buffer: Mutex::default(),
            spin: Duration::from_micros(spin_us),
            scarce: AtomicBool::new(false),
            turns: AtomicU64::new(0),
            awake: Mutex::default(),
            spun: AtomicU64::new(0),
        })
    }

    // --- what a selector is asked

    /// Wait for a descriptor.
    fn register(&self, descriptor: RawFd, events: u32) -> PyResult<()> {
        let mut known = self.known.lock();
        let interest = flags_of(events);
        let hot = known.get(&descriptor).and_then(|known| known.hot.clone());
        epoll::add(
            &self.epoll,
            borrowed(descriptor),
            data_of(descriptor),
            interest,
        )
        .map_err(failed)?;
        if let Some(hot) = &hot {
            hot.socket.set_interest(interest);
        }
        known.insert(descriptor, Known { interest, hot });
        Ok(())
    }

    /// Wait for something else at a descriptor.
    fn modify(&self, descriptor: RawFd, events: u32) -> PyResult<()> {
        let mut known = self.known.lock();
        let Some(each) = known.get_mut(&descriptor) else {
            return Err(PyKeyError::new_err(descriptor));
        };
        let interest = flags_of(events);
        epoll::modify(
            &self.epoll,
            borrowed(descriptor),
            data_of(descriptor),
            interest,
        )
        .map_err(failed)?;
        each.interest = interest;
        if let Some(hot) = &each.hot {
            hot.socket.set_interest(interest);
        }
        Ok(())
    }

    /// Wait for a descriptor no more. A connection on it is known until it is gone: its transport may read on later.
    fn unregister(&self, descriptor: RawFd) {
        let mut known = self.known.lock();
        // A descriptor that was closed before is not there any more.
        let _ = epoll::delete(&self.epoll, borrowed(descriptor));
        let Some(each) = known.get_mut(&descriptor) else {
            return;
        };
        each.interest = EventFlags::empty();
        match &each.hot {
            Some(hot) => hot.socket.set_interest(EventFlags::empty()),
            None => {
                known.remove(&descriptor);
            }
        }
    }

    /// What is ready, as (descriptor, events), after `timeout` seconds at most; `None`: however long it takes.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Vec<(RawFd, u32)>> {
        let now = Instant::now();
        let deadline = timeout.map(|seconds| now + Duration::from_secs_f64(seconds.max(0.0)));
        let mut turns = timeout.is_none_or(|seconds| seconds > 0.0);
        // Whether the last turn wrote something after its sync.
        let mut owes = false;
        loop {
            let served = self.served.lock().clone();
            let until = if owes { Some(now) } else { deadline };
            let Some(events) = self.ready(py, until)? else {
                // Python looks what the signal is for.
                if let Some(served) = served.filter(|_| owes) {
                    served.call(py, "soon", ());
                }
                return Ok(Vec::new());
            };
            let Some(served) = served else {
                let cold = events.iter().map(|ready| self.cold(ready)).collect();
                return Ok(cold);
            };
            let mut round = Round::default();
            for ready in &events {
                self.take(py, &served, ready, &mut round);
            }
            if round.stirred && !self.spin.is_zero() {
                *self.awake.lock() = Some(Instant::now());
            }
            let due = round.stirred || round.synced || !round.written.is_empty() || owes;
            owes = false;
            let python = round.asked || !round.cold.is_empty();
            turns &= !python && served.lane.bind(py).borrow().calm;
            if due && turns {
                self.turns.fetch_add(1, Ordering::Relaxed);
                let (asked, more) = served.end_turn(py, &mut round);
                owes = more;
                let yields = served.gives_way();
                if asked || (yields && owes) {
                    served.call(py, "soon", ());
                }
                if asked || yields {
                    return Ok(Vec::new());
                }
            } else if due {
                leave(py, round.written);
                if round.synced {
                    round.cold.push((served.syncs, READ));
                }
                served.call(py, "soon", ());
                return Ok(round.cold);
            }
            if python || !turns || served.gives_way() {
                return Ok(round.cold);
            }
            if !owes && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Vec::new());
            }
        }
    }

    /// Let go of everything.
    fn close(&self, py: Python<'_>) {
        self.release();
        let known = std::mem::take(&mut *self.known.lock());
        for hot in known.into_values().filter_map(|each| each.hot) {
            hot.conn.bind(py).borrow_mut().socket = None;
        }
    }

    /// The descriptor of the poll.
    fn fileno(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    // --- what is taken here

    /// Take the appends of a node: what the lane of its replicas does with them, the store of these, what
    /// else there is to do, the class of requests, and what becomes readable when a thread has synced.
    fn serve(
        &self,
        lane: Py<Lane>,
        store: Py<Replicas>,
        node: Py<PyAny>,
        request: Py<PyAny>,
        syncs: RawFd,
    ) {
        let served = Served::new(lane, store, node, request, syncs);
        *self.served.lock() = Some(Arc::new(served));
    }

    /// Take nothing any more; the loop goes on.
    fn release(&self) {
        let served = self.served.lock().take();
        drop(served);
    }

    /// Read and write the socket of a connection from now on, while its transport does nothing else with it.
    fn adopt(&self, py: Python<'_>, descriptor: RawFd, conn: Py<Conn>, wire: Py<PyAny>, node: u64) {
        let mut known = self.known.lock();
        let each = known.entry(descriptor).or_insert_with(|| Known {
            interest: EventFlags::empty(),
            hot: None,
        });
        let socket = Arc::new(Socket::new(descriptor, each.interest));
        conn.bind(py).borrow_mut().socket = Some(Arc::clone(&socket));
        let hot = Hot {
            socket,
            conn,
            wire,
            node,
        };
        each.hot = Some(Arc::new(hot));
    }

    /// Forget a connection: its socket is about to be closed.
    fn abandon(&self, py: Python<'_>, descriptor: RawFd) {
        let mut known = self.known.lock();
        let Some(each) = known.get_mut(&descriptor) else {
            return;
        };
        let hot = each.hot.take();
        if each.interest.is_empty() {
            known.remove(&descriptor);
        }
        drop(known);
        if let Some(hot) = hot {
            hot.conn.bind(py).borrow_mut().socket = None;
        }
    }

    /// How many connections are read and written here.
    #[getter]
    fn adopted(&self) -> usize {
        let known = self.known.lock();
        known.values().filter(|each| each.hot.is_some()).count()
    }

    /// How many turns ended here, without Python's.
    #[getter]
    fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// How often it was looked in vain instead of sleeping.
    #[getter]
    fn spun(&self) -> u64 {
        self.spun.load(Ordering::Relaxed)
    }

    /// Whether reads have to be small, because memory is short.
    #[setter]
    fn set_scarce(&self, scarce: bool) {
        self.scarce.store(scarce, Ordering::Relaxed);
    }

    /// Take no appends any more, because the node stops.
    fn drain(&self) {
        if let Some(served) = &*self.served.lock() {
            served.drain();
        }
    }
}

impl Poll {
    /// Wait until something is ready; nothing is if the time is up. `None`: a signal came.
    fn ready(&self, py: Python<'_>, deadline: Option<Instant>) -> PyResult<Option<Vec<Ready>>> {
        let spins = self.awake.lock().map(|awake| awake + self.spin);
        let waited = detach(py, || {
            let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
            loop {
                let now = Instant::now();
                let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
                let spinning = spins.is_some_and(|spins| now < spins);
                let timeout = if spinning {
                    Some(ZERO)
                } else {
                    left.map(timespec)
                };
                let buffer = rustix::buffer::spare_capacity(&mut events);
                let found = epoll::wait(&self.epoll, buffer, timeout.as_ref())?;
                if found > 0 || !spinning || left.is_some_and(|left| left.is_zero()) {
                    return Ok(events.iter().map(Ready::of).collect());
                }
                self.spun.fetch_add(1, Ordering::Relaxed);
            }
        });
        match waited {
            Ok(ready) => Ok(Some(ready)),
            Err(Errno::INTR) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// What Python is told of something that is ready.
    fn cold(&self, ready: &Ready) -> (RawFd, u32) {
        let (descriptor, flags) = (ready.descriptor, ready.flags);
        let mut events = 0;
        if flags.intersects(EventFlags::IN.complement()) {
            events |= WRITE;
        }
        if flags.intersects(EventFlags::OUT.complement()) {
            events |= READ;
        }
        let known = self.known.lock();
        let interest = known.get(&descriptor).map(|each| each.interest);
        (
            descriptor,
            events & events_of(interest.unwrap_or(EventFlags::empty())),
        )
    }

    /// Take what is ready at one descriptor.
    fn take(&self, py: Python<'_>, served: &Served, ready: &Ready, round: &mut Round) {
        let (descriptor, flags) = (ready.descriptor, ready.flags);
        if descriptor == served.syncs && flags == EventFlags::IN {
            round.synced = true;
            return;
        }
        let hot = self
            .known
            .lock()
            .get(&descriptor)
            .and_then(|each| each.hot.clone());
        let mine = flags == EventFlags::IN && !self.scarce.load(Ordering::Relaxed);
        let hot = hot.filter(|hot| mine && hot.socket.is_plain());
        let Some(hot) = hot else {
            // A socket that another one of this round has closed is waited for no more.
            let cold = self.cold(ready);
            if cold.1 != 0 {
                round.cold.push(cold);
            }
            return;
        };
        let mut buffer = std::mem::take(&mut *self.buffer.lock());
        buffer.resize(READ_BYTES_MAX, 0);
        match hot.socket.read(&mut buffer) {
            Some(read) if read > 0 => {
                let bytes = buffer.get(..read).unwrap_or_default();
                if let Err(error) = served.take_in(py, &hot, bytes, round) {
                    // What a transport does with a protocol that fails.
                    round.asked = true;
                    crashed(py, &hot.wire, error);
                }
            }
            Some(_) => {}
            None => round.cold.push((descriptor, READ)),
        }
        *self.buffer.lock() = buffer;
    }
}

const ZERO: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// A time to wait, in whole milliseconds and never too short, or the loop would turn until it is over.
fn timespec(left: Duration) -> Timespec {
    let whole = left.as_micros().div_ceil(1000);
    let millis = i64::try_from(whole).unwrap_or(i64::MAX);
    Timespec {
        tv_sec: millis / 1000,
        tv_nsec: (millis % 1000) * 1_000_000,
    }
}

pub fn borrowed(descriptor: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the system checks it; it is used for one call, and one that is closed is refused.
    unsafe { BorrowedFd::borrow_raw(descriptor) }
}

fn data_of(descriptor: RawFd) -> EventData {
    EventData::new_u64(u64::from(descriptor.cast_unsigned()))
}

fn flags_of(events: u32) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, events & READ != 0);
    flags.set(EventFlags::OUT, events & WRITE != 0);
    flags
}

fn events_of(flags: EventFlags) -> u32 {
    let reads = if flags.contains(EventFlags::IN) {
        READ
    } else {
        0
    };
    let writes = if flags.contains(EventFlags::OUT) {
        WRITE
    } else {
        0
    };
    reads | writes
}

fn failed(error: Errno) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), error.to_string()))
}
