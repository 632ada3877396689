//! What nodes say to one another in a round of the metadata repository: reports, cuts, commits.

use braidlog_core::lane::leader::{Node, Told};
use braidlog_core::lane::report::{REPORT, Report};
use braidlog_core::lane::stream::COMMIT;
use braidlog_core::lane::tail;
use braidlog_core::wire::Frame;
use pyo3::prelude::*;

use crate::exit::with_python;
use crate::group::{CONSENSUS, Group};
use crate::lane::Lane;
use crate::leads::Outcome;
use crate::tail::{Message, broke as broke_of_group};

/// Fields of the report of a replica: stream, epoch, version, committed, end, state.
pub type Row = (u64, u64, u64, u64, u64, u8);

impl Lane {
    /// Take what a node reports.
    pub fn reported(&mut self, py: Python<'_>, frame: &Frame<'_>) -> Option<bool> {
        self.leads.as_ref()?;
        let report = Report::decode(frame.head).filter(|_| frame.payload.is_empty())?;
        Some(self.hear(py, &report))
    }

    /// Take a report; whether it was one from which no more can follow than a cut.
    pub fn hear(&mut self, py: Python<'_>, report: &Report) -> bool {
        let Some(leads) = &self.leads else {
            return false;
        };
        let taken = || {
            let now = self.clock.call0(py)?.extract(py)?;
            leads.take(py, report, now)
        };
        match with_python(py, taken) {
            Ok(Outcome::Cold) => return false,
            Ok(Outcome::Old) => {}
            Ok(Outcome::Taken(stirs)) => {
                self.heard.insert(report.node);
                self.lead_due |= stirs;
            }
            Err(error) => self.broken = Some(error),
        }
        true
    }

    /// Tell the leader what became durable; false if Python has to.
    pub fn report(&mut self, py: Python<'_>, rows: &[Row]) -> bool {
        if self.reports_to == 0 {
            return false;
        }
        let (node, incarnation, features) = self.identity;
        let told = |&(stream, epoch, version, committed, end, state): &Row| {
            let told = Told {
                epoch,
                version,
                committed,
                end,
                state: u64::from(state),
                damaged: false,
            };
            (stream, told)
        };
        let report = Report {
            node,
            head: Node {
                incarnation,
                number: self.next_report(),
                full: false,
                features,
            },
            streams: rows.iter().map(told).collect(),
            syncs: (0, 0),
        };
        if self.reports_to == node {
            return self.hear(py, &report);
        }
        self.links
            .send(py, self.reports_to, REPORT, &report.encode(), &[])
    }

    /// Send messages of the group, and keep those that Python has to send.
    pub fn send_all(&mut self, py: Python<'_>, messages: Vec<Message>) {
        for (node, data) in messages {
            let head = self.group.as_ref().map(Group::head).unwrap_or_default();
            let payload = [data.bind(py).clone()];
            if !self.links.send(py, node, CONSENSUS, head, &payload) {
                self.unsent.push((node, CONSENSUS, head.to_vec(), data));
            }
        }
    }

    /// Commit cuts that a quorum has, and tell the replicas; what the lane cannot do is left to Python.
    pub fn commit_cuts(&mut self, py: Python<'_>) -> PyResult<()> {
        let (Some(leads), Some(group)) = (&mut self.leads, &mut self.group) else {
            return Ok(());
        };
        if !group.take_due() {
            return Ok(());
        }
        let committed = group.commit(py, |index| leads.is_certain(py, index));
        let Some(indexes) = kept_of_group(py, committed)? else {
            group.set_due();
            return Ok(());
        };
        let told = leads.tell(py, indexes)?;
        // A cut that waited for room among those in flight has it now.
        self.lead_due |= leads.has_fresh(py);
        let mut own = None;
        for (node, head) in told {
            if node == self.identity.0 {
                own = Some(head);
            } else if !self.links.send(py, node, COMMIT, &head, &[]) {
                self.unsent.push((node, COMMIT, head, py.None()));
            }
        }
        if let Some(head) = own
            && !self.commit(py, &head)
        {
            self.unsent.push((self.identity.0, COMMIT, head, py.None()));
        }
        Ok(())
    }

    /// Propose what can be committed; what the lane cannot do is left to Python.
    pub fn propose_cuts(&mut self, py: Python<'_>) -> PyResult<()> {
        while self.lead_due {
            let (Some(leads), Some(group)) = (&self.leads, &mut self.group) else {
                return Ok(());
            };
            if !group.is_pure(py, |index| leads.has_proposed(py, index)) {
                return Ok(());
            }
            let Some(data) = leads.cut(py)? else {
                self.lead_due = leads.is_stirred(py);
                return Ok(());
            };
            if !group.may_propose(py, data.len()) {
                leads.dropped(py);
                return Ok(());
            }
            let Some((index, messages)) = group.propose(py, self.replicas.get(), &data)? else {
                leads.dropped(py);
                return Ok(());
            };
            leads.proposed(py, index);
            self.lead_due = leads.is_stirred(py) || leads.has_fresh(py);
            self.send_all(py, messages);
        }
        Ok(())
    }
}

/// A result, with a broken rule of the group as the error that stops the node.
pub fn kept_of_group<T>(py: Python<'_>, result: Result<T, tail::Broken>) -> PyResult<T> {
    result.map_err(|broken| broke_of_group(py, &broken))
}
