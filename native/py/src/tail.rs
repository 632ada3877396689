//! The log of a Raft group, with what is known of the peers and what is being written.
// One file: the calls of one Python class; what they do is elsewhere.

use braidlog_core::lane::tail::{
    Answer, Broken, Entry, Feed, Found, Heading, Mode, PLAIN, Progress, Steady, Tail as CoreTail,
    Window, encode_answer, encode_append,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple, PyType};

use crate::exit::with_python;

/// The class of entries, and the kind of those that are plain.
static ENTRY: PyOnceLock<(Py<PyType>, Py<PyAny>)> = PyOnceLock::new();

/// An entry as Python has it, and its data: each is made once.
pub struct Held {
    entry: Py<PyAny>,
    data: Py<PyBytes>,
}

impl Held {
    /// Its data.
    pub fn bytes<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        self.data.as_bytes(py)
    }

    /// An entry of Python, and its index.
    fn of(entry: &Bound<'_, PyAny>) -> PyResult<(u64, Entry<Self>)> {
        let py = entry.py();
        let data: Bound<'_, PyBytes> = entry.getattr(intern!(py, "data"))?.cast_into()?;
        let index = entry.getattr(intern!(py, "index"))?.extract()?;
        let made = Entry {
            term: entry.getattr(intern!(py, "term"))?.extract()?,
            kind: entry.getattr(intern!(py, "kind"))?.extract()?,
            size: data.as_bytes().len() as u64,
            data: Self {
                entry: entry.clone().unbind(),
                data: data.unbind(),
            },
        };
        Ok((index, made))
    }

    /// A plain entry that a leader sent.
    fn plain(py: Python<'_>, index: u64, term: u64, data: &[u8]) -> PyResult<Self> {
        let (class, kind) = ENTRY.get_or_try_init(py, || -> PyResult<_> {
            let module = py.import("braidlog.raft.state")?;
            let class = module.getattr("Entry")?.cast_into::<PyType>()?;
            let kind = module.getattr("EntryKind")?.call1((PLAIN,))?;
            Ok((class.unbind(), kind.unbind()))
        })?;
        let data = PyBytes::new(py, data);
        let entry = class.bind(py).call1((index, term, kind, &data))?;
        Ok(Self {
            entry: entry.unbind(),
            data: data.unbind(),
        })
    }

    fn copied(&self, py: Python<'_>) -> Self {
        Self {
            entry: self.entry.clone_ref(py),
            data: self.data.clone_ref(py),
        }
    }
}

/// A message of the group that is encoded already.
#[pyclass(frozen, get_all, module = "braidlog._native")]
pub struct Frame {
    /// Node that it is for.
    receiver: u64,
    /// Its bytes.
    data: Py<PyBytes>,
}

/// What is known of a peer, in the order of the fields of `braidlog.raft.progress.Progress`.
type Known = (u64, u64, &'static str, bool, bool, bool, u64, u64, u64);

/// What has to be stored: number, whether the base is, whether it replaces the log, entries.
type Write<'py> = (u64, bool, bool, Bound<'py, PyTuple>);

/// What Python has said when nothing but appends, or answers to them, was to come.
enum Settled {
    Follows {
        leader: u64,
        term: u64,
        epoch: u64,
        /// Beyond that commit index the hard state is written again, which is Python's.
        commit_max: u64,
    },
    Leads(Leading),
}

/// How a leader is settled.
#[derive(Clone)]
pub struct Leading {
    /// Its term.
    pub term: u64,
    /// The epoch of its membership.
    pub epoch: u64,
    /// The halves of a quorum.
    voters: [Vec<u64>; 2],
    /// Beyond that commit index the hard state is written again, which is Python's.
    commit_max: u64,
    /// Bytes of data that may be uncommitted.
    bytes_max: u64,
}

/// What a lane has taken.
pub enum Heard {
    /// An append of the leader.
    Append,
    /// An answer of a follower.
    Answer(u64),
}

/// A message of the group, and the node that it is for.
pub type Message = (u64, Py<PyAny>);

/// Entries in memory by their places, or as they were read back.
enum Gathered {
    Memory(std::ops::Range<usize>),
    Read(Vec<Entry<Held>>),
}

/// The log of one node of a Raft group; `braidlog.raft.log` adds what an entry means.
#[pyclass(subclass, module = "braidlog._native")]
pub struct Tail {
    core: CoreTail<Held, Py<PyAny>>,
    reader: Option<Py<PyAny>>,
    id: u64,
    window: Window,
    settled: Option<Settled>,
    /// Whether the leader was heard since Python asked.
    heard: bool,
}

#[pymethods]
impl Tail {
    #[new]
    #[pyo3(signature = (base, reader=None, *, node, cache_bytes_max, message_bytes_max, window_messages, window_bytes))]
    fn new(
        base: &Bound<'_, PyAny>,
        reader: Option<Py<PyAny>>,
        node: u64,
        cache_bytes_max: u64,
        message_bytes_max: u64,
        window_messages: usize,
        window_bytes: u64,
    ) -> PyResult<Self> {
        let (index, term) = (
            base.getattr("index")?.extract()?,
            base.getattr("term")?.extract()?,
        );
        Ok(Self {
            core: CoreTail::new(index, term, reader.is_some().then_some(cache_bytes_max)),
            reader,
            id: node,
            window: Window {
                message_bytes_max,
                messages: window_messages,
                bytes: window_bytes,
            },
            settled: None,
            heard: false,
        })
    }

    /// Become as another one is, which stays as it is.
    fn become_copy_of(&mut self, py: Python<'_>, other: PyRef<'_, Self>) {
        let message = |each: &Py<PyAny>| each.clone_ref(py);
        self.core = other.core.copied(|each| each.copied(py), message);
    }

    // --- looking

    /// Index of the last entry, or of the base.
    #[getter]
    fn last(&self) -> u64 {
        self.core.last()
    }

    /// Term of the last entry, or of the base.
    #[getter]
    fn last_term(&self) -> u64 {
        self.core.last_term()
    }

    /// Up to where the log is committed. Only planted bugs set it: that asks nothing, and `check` finds what cannot be.
    #[getter]
    fn commit(&self) -> u64 {
        self.core.commit()
    }

    #[setter]
    fn set_commit(&mut self, index: u64) {
        self.core.set_commit(index);
    }

    /// Up to where it is durable here. Only planted bugs set it, likewise.
    #[getter]
    fn durable(&self) -> u64 {
        self.core.durable()
    }

    #[setter]
    fn set_durable(&mut self, index: u64) {
        self.core.set_durable(index);
    }

    /// What the state machine has applied.
    #[getter]
    fn applied(&self) -> u64 {
        self.core.applied()
    }

    /// What was handed out to be applied.
    #[getter]
    fn handed(&self) -> u64 {
        self.core.handed()
    }

    /// How many entries are in memory.
    #[getter]
    fn cached_count(&self) -> usize {
        self.core.cached()
    }

    /// Whether a base waits to be stored or applied.
    #[getter]
    fn install_pending(&self) -> bool {
        self.core.install_pending()
    }

    /// Whether there may be something to hand out.
    #[getter]
    fn has_committed(&self) -> bool {
        self.core.has_committed()
    }

    /// Term of an entry or the base; None outside of the log.
    fn term(&self, index: u64) -> Option<u64> {
        self.core.term(index)
    }

    /// Whether a log with that end is at least as new.
    fn up_to_date(&self, last_index: u64, last_term: u64) -> bool {
        self.core.up_to_date(last_index, last_term)
    }

    /// The last index up to `index` whose term is at most `term`, not below the base.
    fn last_not_after(&self, index: u64, term: u64) -> u64 {
        self.core.last_not_after(index, term)
    }

    /// Entries of `begin .. end`: at least one, about `bytes_max`.
    fn read<'py>(
        &self,
        py: Python<'py>,
        begin: u64,
        end: u64,
        bytes_max: u64,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let found = self.gather(py, begin, end, bytes_max)?;
        objects(py, &self.refs(&found))
    }

    /// Bytes of data of `begin .. end`, as far as the entries are in memory: what is not committed is.
    fn data_bytes(&self, begin: u64, end: u64) -> u64 {
        self.core.data_bytes(begin, end)
    }

    /// Refuse what cannot be.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        kept(py, self.core.check())
    }

    // --- changing

    /// Add entries at the end.
    fn append(&mut self, entries: &Bound<'_, PyAny>) -> PyResult<()> {
        for entry in entries.try_iter()? {
            let (index, entry) = Held::of(&entry?)?;
            kept(entries.py(), self.core.append(index, entry))?;
        }
        Ok(())
    }

    /// Go on behind `last`, of a log that is stored and applied up to there: `runs` are (first index, term)
    /// behind the base.
    fn skip_to(&mut self, py: Python<'_>, last: u64, runs: Vec<(u64, u64)>) -> PyResult<()> {
        kept(py, self.core.skip_to(last, &runs))
    }

    /// First index and term of each run of entries of one term; the first is the base.
    fn runs(&self) -> Vec<(u64, u64)> {
        self.core.runs().to_vec()
    }

    /// Cut the log from `begin` on; `clip` has to follow.
    fn cut(&mut self, py: Python<'_>, begin: u64) -> PyResult<()> {
        kept(py, self.core.cut(begin))
    }

    /// Note that the entries from `begin` on were replaced: reports of earlier writes do not mean them.
    fn clip(&mut self, begin: u64) {
        self.core.clip(begin);
    }

    /// Commit up to `index`; a smaller one changes nothing.
    fn commit_to(&mut self, py: Python<'_>, index: u64) -> PyResult<()> {
        kept(py, self.core.commit_to(index))
    }

    /// Let the log begin behind `index`, which is applied.
    fn fold_to(&mut self, py: Python<'_>, index: u64) -> PyResult<()> {
        kept(py, self.core.fold(index))
    }

    /// Replace everything by a base, which is neither durable nor applied yet.
    fn restart_behind(&mut self, py: Python<'_>, index: u64, term: u64) -> PyResult<()> {
        kept(py, self.core.restart_at(index, term))
    }

    /// Note that the disk has the whole log, of which up to `commit` is committed.
    fn loaded(&mut self, commit: u64) {
        self.core.loaded(commit);
    }

    /// Go on where the state machine stands.
    fn resume(&mut self, applied: u64) {
        self.core.resume(applied);
    }

    // --- handing out

    /// Hand the base out, if it is durable and was not handed out.
    fn hand_out_base(&mut self) -> bool {
        self.core.take_base()
    }

    /// What may be applied next.
    fn take_committed<'py>(
        &mut self,
        py: Python<'py>,
        bytes_max: u64,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let Some((end, room)) = self.core.committed(bytes_max) else {
            return Ok(PyTuple::empty(py));
        };
        let begin = self.core.handed() + 1;
        let found = self.gather(py, begin, end, room)?;
        let entries = self.refs(&found);
        let (count, weight) = (entries.len() as u64, weight(&entries));
        let taken = objects(py, &entries)?;
        self.core.handed_out(begin + count - 1, weight);
        Ok(taken)
    }

    /// Note what the state machine has applied.
    fn applied_to(&mut self, py: Python<'_>, index: u64) -> PyResult<()> {
        kept(py, self.core.applied_to(index))
    }

    // --- writes

    /// Hold a message until all that was decided so far is durable.
    fn promise(&mut self, message: Py<PyAny>) {
        self.core.promise(message);
    }

    /// Note that the base has to be stored; with `reset` it replaces the log.
    #[pyo3(signature = (*, reset))]
    fn base_changed(&mut self, reset: bool) {
        self.core.base_changed(reset);
    }

    /// What has to be stored now, if anything has, or the hard state, which is `vital`.
    fn take_write<'py>(&mut self, py: Python<'py>, vital: bool) -> PyResult<Option<Write<'py>>> {
        let (begin, end) = (self.core.unwritten(), self.core.last() + 1);
        let entries = if begin < end {
            // What is not stored is not committed here, and that has a bound.
            let found = self.gather(py, begin, end, u64::MAX)?;
            objects(py, &self.refs(&found))?
        } else {
            PyTuple::empty(py)
        };
        let taken = self.core.take_write(vital);
        Ok(taken.map(|write| (write.number, write.base, write.reset, entries)))
    }

    /// Note that all writes up to `number` are stored.
    fn stored(&mut self, py: Python<'_>, number: u64) -> PyResult<()> {
        kept(py, self.core.stored(number))
    }

    /// The messages whose promise is kept now.
    fn release(&mut self) -> Vec<Py<PyAny>> {
        self.core.release().into()
    }

    // --- peers

    /// The peers, in the order in which they came.
    #[getter]
    fn peers(&self) -> Vec<u64> {
        self.core.peers().map(|each| each.0).collect()
    }

    /// What is known of a peer.
    fn peer(&self, node: u64) -> Option<Known> {
        self.core.peer(node).map(known)
    }

    /// Have these peers and nobody else.
    fn track(&mut self, nodes: Vec<u64>) {
        self.core.track(&nodes);
    }

    /// Forget a peer; whether there was one.
    fn forget(&mut self, node: u64) -> bool {
        self.core.forget(node)
    }

    /// Up to where the log of a peer is durably this one.
    fn matched(&self, py: Python<'_>, node: u64) -> PyResult<u64> {
        let peer = self.core.peer(node).map(|each| each.matched);
        peer.ok_or_else(|| broke(py, &Broken(format!("{node} is no peer"))))
    }

    /// Whether no peer is to be sent anything but what is committed.
    #[getter]
    fn peers_rest(&self) -> bool {
        self.core.rests()
    }

    /// The peers that were heard of since the last call.
    fn take_active(&mut self) -> Vec<u64> {
        let heard = self
            .core
            .peers_mut()
            .filter_map(|(node, peer)| std::mem::take(&mut peer.active).then_some(node));
        heard.collect()
    }

    /// Count a tick for the bases that were sent.
    fn tick_bases(&mut self) {
        for (_, peer) in self.core.peers_mut() {
            peer.base_ticks += 1;
        }
    }

    /// Note that a peer was heard of.
    fn heard(&mut self, node: u64) {
        if let Some(peer) = self.core.peer_mut(node) {
            peer.active = true;
        }
    }

    /// Note a sign of life of a peer: what it was sent may have been lost.
    fn answered(&mut self, node: u64) {
        if let Some(peer) = self.core.peer_mut(node) {
            peer.answered();
        }
    }

    /// Start over with a probe behind what a peer is known to have.
    fn lost(&mut self, node: u64) {
        if let Some(peer) = self.core.peer_mut(node) {
            peer.lost();
        }
    }

    /// Note that a peer has the log durably up to `index`.
    fn accepted(&mut self, node: u64, index: u64) {
        self.core.accepted(node, index);
    }

    /// Note that a peer lacks `index`, and may agree up to `resume`.
    fn rejected(&mut self, node: u64, index: u64, resume: u64) {
        if let Some(peer) = self.core.peer_mut(node) {
            peer.rejected(index, resume);
        }
    }

    /// What peers are to be sent within their windows, as frames; a node alone needs the base.
    ///
    /// Without `nodes` all peers are fed in the order of their ids.
    #[pyo3(signature = (term, epoch, *, tell, nodes=None))]
    fn feed(
        &mut self,
        py: Python<'_>,
        term: u64,
        epoch: u64,
        tell: bool,
        nodes: Option<Vec<u64>>,
    ) -> PyResult<Vec<Py<PyAny>>> {
        let nodes = nodes.unwrap_or_else(|| {
            let mut all = self.peers();
            all.sort_unstable();
            all
        });
        let mut out = Vec::new();
        for node in nodes {
            loop {
                let window = self.window;
                match kept(py, self.core.feed(node, &window, tell))? {
                    Feed::Nothing => break,
                    Feed::Base => out.push(node.into_pyobject(py)?.into_any().unbind()),
                    Feed::Append {
                        begin,
                        end,
                        bytes_max,
                    } => {
                        let found = self.gather(py, begin, end, bytes_max)?;
                        out.push(self.send(py, (node, term, epoch), begin, &found)?);
                    }
                }
            }
        }
        Ok(out)
    }

    // --- frames

    /// Take an append that continues the log; its answer, which promises that it is durable. None if
    /// it is anything else.
    fn take_append(
        &mut self,
        py: Python<'_>,
        frame: &[u8],
        leader: u64,
        term: u64,
        epoch: u64,
    ) -> PyResult<Option<Frame>> {
        let steady = self.steady(leader, term, epoch);
        let make = |index, term, data: &[u8]| Held::plain(py, index, term, data);
        let answer = self.core.take_append(frame, &steady, make)?;
        let frame = |answer: Answer| Frame {
            receiver: answer.receiver,
            data: PyBytes::new(py, &encode_answer(&answer)).unbind(),
        };
        Ok(answer.map(frame))
    }

    /// Say that nothing but appends of this leader is to come: a lane may take and write them, up to a commit index.
    fn settle(&mut self, py: Python<'_>, leader: u64, term: u64, epoch: u64, commit_max: u64) {
        // A vote that waits for the disk may go to this node itself, which is Python's to count.
        let mut waiting = self.core.promises();
        let answers = waiting.all(|each| each.bind(py).is_instance_of::<Frame>());
        self.settled = answers.then_some(Settled::Follows {
            leader,
            term,
            epoch,
            commit_max,
        });
    }

    /// Say that nothing but answers of followers is to come, of which most tell nothing: a lane may take them.
    fn lead(
        &mut self,
        term: u64,
        epoch: u64,
        voters: (Vec<u64>, Vec<u64>),
        commit_max: u64,
        bytes_max: u64,
    ) {
        self.settled = Some(Settled::Leads(Leading {
            term,
            epoch,
            voters: [voters.0, voters.1],
            commit_max,
            bytes_max,
        }));
    }

    /// Whether a lane may take anything.
    #[getter(settled)]
    fn shows_settled(&self) -> bool {
        self.settled.is_some()
    }

    /// Say that Python looks at everything; whether the leader was heard since it did so last.
    fn unsettle(&mut self) -> bool {
        self.settled = None;
        std::mem::take(&mut self.heard)
    }

    /// Take the acceptance of an append; whether it was one.
    fn take_answer(&mut self, frame: &[u8], term: u64, epoch: u64) -> bool {
        let steady = self.steady(0, term, epoch);
        self.core.take_answer(frame, &steady).is_some()
    }
}

impl Tail {
    /// The log, to change it.
    pub fn core(&mut self) -> &mut CoreTail<Held, Py<PyAny>> {
        &mut self.core
    }

    /// The log, to look at it.
    pub fn looked_at(&self) -> &CoreTail<Held, Py<PyAny>> {
        &self.core
    }

    /// Whether a lane may write, and say what is durable.
    pub fn is_settled(&self) -> bool {
        let commit = self.core.commit();
        matches!(self.settled, Some(Settled::Follows { commit_max, .. }) if commit <= commit_max)
    }

    /// Take what another member says, if nothing else was to come.
    pub fn hear(&mut self, py: Python<'_>, frame: &[u8]) -> Option<Heard> {
        match &self.settled {
            None => None,
            Some(Settled::Follows {
                leader,
                term,
                epoch,
                ..
            }) => {
                let (leader, term, epoch) = (*leader, *term, *epoch);
                self.follow(py, frame, leader, term, epoch)
                    .then_some(Heard::Append)
            }
            Some(Settled::Leads(Leading { term, epoch, .. })) => {
                let steady = self.steady(0, *term, *epoch);
                let node = self.core.take_answer(frame, &steady)?;
                Some(Heard::Answer(node))
            }
        }
    }

    /// How this node leads, if a lane may propose and commit.
    pub fn leading(&self) -> Option<&Leading> {
        match &self.settled {
            Some(Settled::Leads(leading)) if self.core.commit() <= leading.commit_max => {
                Some(leading)
            }
            _ => None,
        }
    }

    /// Whether this node leads, and nothing but answers was to come.
    pub fn leads(&self) -> bool {
        matches!(self.settled, Some(Settled::Leads(_)))
    }

    /// Up to where this node may commit, if it leads.
    pub fn committable(&self, leading: &Leading) -> u64 {
        self.core
            .committable(self.id, leading.term, &leading.voters)
    }

    /// Whether so many bytes more may be proposed, and every peer gets them at once.
    pub fn may_propose(&self, leading: &Leading, size: usize) -> bool {
        let (begin, end) = (self.core.commit() + 1, self.core.last() + 1);
        let fed = |(_, peer): (u64, &Progress)| matches!(peer.mode, Mode::Replicate);
        let size = self.core.data_bytes(begin, end) + size as u64;
        size <= leading.bytes_max && self.core.peers().all(fed)
    }

    /// Log data, and return its index and what the peers are sent.
    pub fn propose(
        &mut self,
        py: Python<'_>,
        leading: &Leading,
        data: &[u8],
    ) -> PyResult<(u64, Vec<Message>)> {
        let index = self.core.last() + 1;
        let entry = Entry {
            term: leading.term,
            kind: PLAIN,
            size: data.len() as u64,
            data: Held::plain(py, index, leading.term, data)?,
        };
        kept(py, self.core.append(index, entry))?;
        let mut messages = Vec::new();
        for each in self.feed(py, leading.term, leading.epoch, false, None)? {
            // A peer that follows needs no base.
            if let Ok(frame) = each.bind(py).cast::<Frame>() {
                let data = frame.get().data.clone_ref(py).into_any();
                messages.push((frame.get().receiver, data));
            }
        }
        Ok((index, messages))
    }

    /// Take an append of the leader. Its answer waits for the disk.
    fn follow(&mut self, py: Python<'_>, frame: &[u8], leader: u64, term: u64, epoch: u64) -> bool {
        // An answer that cannot be made, for want of memory, leaves the entries as if they had come without a need
        // for one: the leader asks again.
        let Ok(Some(answer)) = self.take_append(py, frame, leader, term, epoch) else {
            return false;
        };
        if let Ok(answer) = Py::new(py, answer) {
            self.core.promise(answer.into_any());
        }
        self.heard = true;
        true
    }

    /// Take the answers that may go, with their receivers.
    pub fn released(&mut self, py: Python<'_>) -> Vec<Message> {
        let kept = self.core.release();
        let message = |each: Py<PyAny>| {
            let frame = each.bind(py).cast::<Frame>().ok()?.get();
            Some((frame.receiver, frame.data.clone_ref(py).into_any()))
        };
        // `settle` has seen that there are no others.
        kept.into_iter().filter_map(message).collect()
    }

    fn steady(&self, leader: u64, term: u64, epoch: u64) -> Steady {
        Steady {
            id: self.id,
            leader,
            term,
            epoch,
        }
    }

    /// Find entries, and read those back that are only in storage.
    fn gather(&self, py: Python<'_>, begin: u64, end: u64, bytes_max: u64) -> PyResult<Gathered> {
        match kept(py, self.core.find(begin, end, bytes_max))? {
            Found::Memory(range) => Ok(Gathered::Memory(range)),
            Found::Storage { begin, end } => {
                let read = self.read_back(py, begin, end, bytes_max)?;
                Ok(Gathered::Read(read))
            }
        }
    }

    fn read_back(
        &self,
        py: Python<'_>,
        begin: u64,
        end: u64,
        bytes_max: u64,
    ) -> PyResult<Vec<Entry<Held>>> {
        let Some(reader) = &self.reader else {
            let reason = "entries left the memory without a reader";
            return Err(broke(py, &Broken(reason.to_owned())));
        };
        let read = with_python(py, || {
            reader.call_method1(py, intern!(py, "read"), (begin, end, bytes_max))
        })?;
        let mut entries = Vec::new();
        for (at, entry) in (begin..).zip(read.bind(py).try_iter()?) {
            let (index, entry) = Held::of(&entry?)?;
            if index != at || at >= end || self.core.term(at) != Some(entry.term) {
                let reason = format!("storage has {:?} at {at}", (index, entry.term));
                return Err(broke(py, &Broken(reason)));
            }
            entries.push(entry);
        }
        if entries.is_empty() {
            let reason = format!("no entries from {begin} in storage");
            return Err(broke(py, &Broken(reason)));
        }
        Ok(entries)
    }

    fn refs<'a>(&'a self, found: &'a Gathered) -> Vec<&'a Entry<Held>> {
        match found {
            Gathered::Memory(range) => range.clone().map(|at| self.core.entry(at)).collect(),
            Gathered::Read(entries) => entries.iter().collect(),
        }
    }

    /// Make the frame with these entries, and note that it is sent.
    fn send(
        &mut self,
        py: Python<'_>,
        (node, term, epoch): (u64, u64, u64),
        begin: u64,
        found: &Gathered,
    ) -> PyResult<Py<PyAny>> {
        let previous = begin - 1;
        let Some(previous_term) = self.core.term(previous) else {
            let reason = format!("an append behind {previous}, which is gone");
            return Err(broke(py, &Broken(reason)));
        };
        let heading = Heading {
            sender: self.id,
            receiver: node,
            term,
            epoch,
            previous,
            previous_term,
            commit: self.core.commit(),
        };
        let entries = self.refs(found);
        let bytes = encode_append(&heading, entries.iter().copied(), |held| {
            held.data.as_bytes(py)
        });
        let (count, weight) = (entries.len() as u64, weight(&entries));
        self.core.sent(node, previous + count, weight);
        let frame = Frame {
            receiver: node,
            data: PyBytes::new(py, &bytes).unbind(),
        };
        Ok(Py::new(py, frame)?.into_any())
    }
}

fn weight(entries: &[&Entry<Held>]) -> u64 {
    entries.iter().map(|each| each.weight()).sum()
}

fn objects<'py>(py: Python<'py>, entries: &[&Entry<Held>]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, entries.iter().map(|each| each.data.entry.bind(py)))
}

fn known(peer: &Progress) -> Known {
    let mode = match peer.mode {
        Mode::Probe => "probe",
        Mode::Replicate => "replicate",
        Mode::Base => "base",
    };
    (
        peer.next,
        peer.matched,
        mode,
        peer.active,
        peer.probed,
        peer.nudge,
        peer.commit_sent,
        peer.base,
        peer.base_ticks,
    )
}

/// A result, with a broken rule as the error that stops the node.
fn kept<T>(py: Python<'_>, result: Result<T, Broken>) -> PyResult<T> {
    result.map_err(|broken| broke(py, &broken))
}

/// The error for a broken rule of the group.
pub fn broke(py: Python<'_>, broken: &Broken) -> PyErr {
    let build = || {
        let class = py
            .import("braidlog.raft.errors")?
            .getattr("RaftInvariantError")?;
        class.call1((broken.to_string(),))
    };
    with_python(py, build).map_or_else(|failure| failure, PyErr::from_value)
}
