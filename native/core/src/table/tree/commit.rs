//! Committing edits, and removing what they leave behind.

use std::io::ErrorKind;
use std::sync::Arc;

use super::numbers::Reserved;
use super::operation::TreeOperation;
use super::tree::Tree;
use super::version::TreeVersion;
use super::view::{State, View};
use crate::error::{Error, Result};
use crate::manifest::Manifest;
use crate::table::run::{Run, file_name};

/// A run that a task wrote, durable and open, and in no edit yet.
pub(super) struct Written {
    pub run: Arc<Run>,
    pub number: Reserved,
}

/// The one who writes the manifest.
pub(super) struct Committer {
    /// `None` once closed, and where another process writes.
    manifest: Option<Manifest<TreeVersion>>,
    /// Runs of no version any more, until nobody reads them.
    obsolete: Vec<Arc<Run>>,
    /// Numbers whose files may be there, and that no edit lists as far as is known.
    discarded: Vec<u64>,
}

impl Committer {
    pub fn new(manifest: Manifest<TreeVersion>) -> Self {
        Self {
            manifest: Some(manifest),
            obsolete: Vec::new(),
            discarded: Vec::new(),
        }
    }

    /// For a tree that another process writes: refuses every edit.
    pub fn absent() -> Self {
        Self {
            manifest: None,
            obsolete: Vec::new(),
            discarded: Vec::new(),
        }
    }

    /// Whether somebody reads a run of no version any more.
    pub fn is_read(&self) -> bool {
        self.obsolete.iter().any(|run| Arc::strong_count(run) > 1)
    }

    pub fn obsolete(&self) -> usize {
        self.obsolete.len()
    }
}

impl Tree {
    /// Commit one edit with the runs that it adds, and show readers what `change` makes of its view.
    ///
    /// On an error nothing has changed; if it is not known whether the edit happened, that is settled
    /// before the next one. The runs are discarded.
    pub(super) fn commit(
        &self,
        committer: &mut Committer,
        mut operations: Vec<TreeOperation>,
        written: Vec<Written>,
        change: impl FnOnce(&State, Arc<View>) -> State,
    ) -> Result<()> {
        let result = self.check_wanted().and_then(|()| {
            let manifest = committer.manifest.as_mut().ok_or(Error::Closed)?;
            let below = self.numbers.settled();
            if below > manifest.version().settled() {
                operations.push(TreeOperation::Settle { below });
            }
            manifest.settle()?;
            manifest.commit(&operations)?;
            Ok(Arc::clone(manifest.version()))
        });
        let version = match result {
            Ok(version) => version,
            Err(error) => {
                let numbers = written.iter().map(|written| written.number.number);
                committer.discarded.extend(numbers);
                drop(written);
                self.clean(committer);
                return Err(error);
            }
        };
        let before = self.state();
        let mut runs = before.view.runs.clone();
        runs.extend(
            written
                .iter()
                .map(|written| (written.number.number, Arc::clone(&written.run))),
        );
        let view = Arc::new(View::new(version, runs));
        let gone = before
            .view
            .runs
            .iter()
            .filter(|(number, _)| !view.runs.contains_key(number));
        committer
            .obsolete
            .extend(gone.map(|(_, run)| Arc::clone(run)));
        drop(before);
        self.publish(|state| change(state, view));
        self.clean(committer);
        Ok(())
    }

    /// Discard runs that are in no edit.
    pub(super) fn discard(&self, numbers: impl IntoIterator<Item = u64>) {
        let committer = &mut *self.committer.lock();
        committer.discarded.extend(numbers);
        self.clean(committer);
    }

    /// Remove the files that nobody needs, unless an edit of unknown outcome may list them. What cannot be
    /// removed now is tried again after the next edit; after a crash, it is an orphan.
    fn clean(&self, committer: &mut Committer) {
        let Some(manifest) = &committer.manifest else {
            return;
        };
        if manifest.check_settled().is_err() {
            return;
        }
        let is_gone = |name: &str| {
            let path = self.place.dir.join(name);
            match self.place.vfs.remove(&path) {
                Ok(()) => true,
                Err(Error::Io { source, .. }) => source.kind() == ErrorKind::NotFound,
                Err(_) => false,
            }
        };
        let is_run_gone = |number: u64| {
            let name = file_name(number);
            // A writer that failed may have left what it had.
            is_gone(&name) & is_gone(&format!("{name}.tmp"))
        };
        // Whoever could get at a run has a reference of their own: there is no way from here to one.
        committer
            .obsolete
            .retain(|run| Arc::strong_count(run) > 1 || !is_gone(&file_name(run.info().number)));
        let version = manifest.version();
        committer
            .discarded
            .retain(|number| !version.runs().contains_key(number) && !is_run_gone(*number));
    }

    /// Find out what became of a commit whose outcome is unknown, and remove the files that nobody needs
    /// any more. Does nothing else.
    pub fn settle(&self) -> Result<()> {
        let committer = &mut *self.committer.lock();
        let manifest = committer.manifest.as_mut().ok_or(Error::Closed)?;
        manifest.settle()?;
        self.clean(committer);
        Ok(())
    }

    /// Commit nothing any more, and end the manifest in good order. What is in memory is not flushed: the
    /// log has it.
    pub fn close(&self) -> Result<()> {
        let committer = &mut *self.committer.lock();
        if committer.manifest.is_none() {
            return Ok(());
        }
        self.clean(committer);
        committer.manifest.take().map_or(Ok(()), Manifest::close)
    }
}
