//! Files and directories in memory, numbered like inodes, so that a name can be lost in a crash
//! while the file it named is not, and the other way round.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path};
use std::sync::Arc;

use rustix::io::Errno;

use super::content::Content;

/// A file or directory, for life: renaming does not change it, and it is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(super) u64);

/// The root directory, which always exists.
pub(super) const ROOT: NodeId = NodeId(0);

/// One directory entry.
pub(super) type Entry = (NodeId, Arc<str>);

#[derive(Clone, Debug)]
pub(super) enum Node {
    File(Content),
    Dir(Arc<BTreeMap<Arc<str>, NodeId>>),
}

/// A change of directory entries, atomic: a creation links, a removal unlinks, a rename does both.
#[derive(Clone, Debug)]
pub struct EntryChange {
    pub(super) unlink: Option<Entry>,
    pub(super) link: Option<(Entry, NodeId)>,
}

impl EntryChange {
    /// The directories that it changes, each once.
    pub(super) fn dirs(&self) -> impl Iterator<Item = NodeId> + use<> {
        let unlinked = self.unlink.as_ref().map(|(dir, _)| *dir);
        let linked = self.link.as_ref().map(|((dir, _), _)| *dir);
        unlinked
            .into_iter()
            .chain(linked.filter(|&dir| unlinked != Some(dir)))
    }
}

/// All files and directories, including those that no name leads to (any more, or yet).
#[derive(Clone, Debug)]
pub(super) struct Tree {
    nodes: BTreeMap<NodeId, Node>,
}

impl Default for Tree {
    fn default() -> Self {
        Self {
            nodes: BTreeMap::from([(ROOT, Node::Dir(Arc::default()))]),
        }
    }
}

impl Tree {
    /// A number that no node has.
    pub(super) fn next_id(&self) -> NodeId {
        NodeId(self.nodes.last_key_value().map_or(0, |(id, _)| id.0) + 1)
    }

    /// Add a node that no name leads to yet.
    pub(super) fn insert(&mut self, id: NodeId, is_dir: bool) {
        let node = if is_dir {
            Node::Dir(Arc::default())
        } else {
            Node::File(Content::default())
        };
        self.nodes.insert(id, node);
    }

    pub(super) fn entries(&self, dir: NodeId) -> io::Result<&BTreeMap<Arc<str>, NodeId>> {
        match self.nodes.get(&dir) {
            Some(Node::Dir(entries)) => Ok(entries),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    pub(super) fn is_dir(&self, id: NodeId) -> bool {
        matches!(self.nodes.get(&id), Some(Node::Dir(_)))
    }

    pub(super) fn file(&self, id: NodeId) -> io::Result<&Content> {
        match self.nodes.get(&id) {
            Some(Node::File(content)) => Ok(content),
            _ => Err(Errno::ISDIR.into()),
        }
    }

    /// The content of a file that is known to be one.
    pub(super) fn file_mut(&mut self, id: NodeId) -> &mut Content {
        match self.nodes.get_mut(&id) {
            Some(Node::File(content)) => content,
            _ => panic!("node {id:?} is written to, so it is a file"),
        }
    }

    /// Follow `path` from the root; relative paths begin there too.
    pub(super) fn find(&self, path: &Path) -> io::Result<NodeId> {
        let mut id = ROOT;
        for component in path.components() {
            let Some(name) = name_of(component)? else {
                continue;
            };
            id = *self.entries(id)?.get(name).ok_or(Errno::NOENT)?;
        }
        Ok(id)
    }

    /// The directory and the name that `path` ends in, which need not exist.
    pub(super) fn entry(&self, path: &Path) -> io::Result<Entry> {
        let last = path.components().next_back().ok_or(Errno::EXIST)?;
        let name = name_of(last)?.ok_or(Errno::EXIST)?;
        let dir = self.find(path.parent().unwrap_or(Path::new("")))?;
        self.entries(dir)?;
        Ok((dir, name.into()))
    }

    /// What `entry` names.
    pub(super) fn get(&self, entry: &Entry) -> Option<NodeId> {
        self.entries(entry.0).ok()?.get(&entry.1).copied()
    }

    pub(super) fn apply(&mut self, change: &EntryChange) {
        if let Some((dir, name)) = &change.unlink
            && let Some(Node::Dir(entries)) = self.nodes.get_mut(dir)
        {
            Arc::make_mut(entries).remove(name);
        }
        if let Some(((dir, name), id)) = &change.link
            && let Some(Node::Dir(entries)) = self.nodes.get_mut(dir)
        {
            Arc::make_mut(entries).insert(Arc::clone(name), *id);
        }
    }

    /// Every path, directories with a slash at the end, in order.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        let mut open = vec![(ROOT, String::from("/"))];
        while let Some((dir, prefix)) = open.pop() {
            for (name, &id) in self.entries(dir).into_iter().flatten() {
                let mut path = format!("{prefix}{name}");
                if self.is_dir(id) {
                    path.push('/');
                    open.push((id, path.clone()));
                }
                paths.push(path);
            }
        }
        paths.sort_unstable();
        paths
    }
}

/// The name a path component stands for; none for the root and `.`.
fn name_of(component: Component<'_>) -> io::Result<Option<&str>> {
    match component {
        Component::Normal(name) => Ok(Some(name.to_str().ok_or(Errno::ILSEQ)?)),
        Component::RootDir | Component::CurDir => Ok(None),
        // Nobody here needs it, and following it by name would be wrong after a rename.
        Component::ParentDir | Component::Prefix(_) => Err(Errno::INVAL.into()),
    }
}
