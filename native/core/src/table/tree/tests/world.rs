//! A tree beside the log that it follows.

use super::*;

/// What a record changes: a key, and what it has from then on.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

pub struct World {
    pub vfs: Arc<dyn Vfs>,
    pub tree: Arc<Tree>,
    pub options: TreeOptions,
    /// The change of position `n` is at index `n - 1`.
    pub log: Vec<Change>,
}

/// The version of a key that is visible at a position, from the log alone.
pub fn visible<'a>(log: &'a [Change], key: &[u8], at: u64) -> Option<(u64, Option<&'a [u8]>)> {
    let seen = &log[..at as usize];
    let found = seen.iter().rposition(|change| change.0 == key)?;
    Some((found as u64 + 1, log[found].1.as_deref()))
}

/// Hold what a snapshot answers at a position against the log.
pub fn check_answers(snapshot: &Snapshot, log: &[Change], at: u64) {
    let keys: BTreeSet<&[u8]> = log.iter().map(|change| change.0.as_slice()).collect();
    for &key in &keys {
        let hit = snapshot.get(key, at).unwrap();
        let found = hit.as_ref().map(|hit| (hit.position(), hit.payload()));
        match visible(log, key, at) {
            // Of a deleted key a tombstone may be left.
            expected @ (None | Some((_, None))) => {
                assert!(
                    found.is_none() || found == expected,
                    "{key:?} at {at}: {found:?}"
                );
            }
            expected => assert_eq!(found, expected, "{key:?} at {at}"),
        }
    }
    assert!(snapshot.get(b"no such key", at).unwrap().is_none());
    let few = keys.len() / 3 + 1;
    let inner = keys.iter().copied().step_by(few).map(Some);
    let bounds: Vec<Option<&[u8]>> = [None].into_iter().chain(inner).collect();
    for &begin in &bounds {
        for &end in bounds.iter().rev() {
            let inside = |key: &&[u8]| {
                begin.is_none_or(|begin| *key >= begin) && end.is_none_or(|end| *key < end)
            };
            let inside: Vec<&[u8]> = keys.iter().copied().filter(inside).collect();
            for direction in [Direction::Forward, Direction::Reverse] {
                check_scan(snapshot, log, at, (begin, end), &inside, direction);
            }
        }
    }
}

fn check_scan(
    snapshot: &Snapshot,
    log: &[Change],
    at: u64,
    (begin, end): (Option<&[u8]>, Option<&[u8]>),
    inside: &[&[u8]],
    direction: Direction,
) {
    let mut expected: Vec<_> = inside
        .iter()
        .filter_map(|key| {
            visible(log, key, at).map(|(position, payload)| (*key, position, payload))
        })
        .collect();
    if direction == Direction::Reverse {
        expected.reverse();
    }
    for tombstones in [Tombstones::Shown, Tombstones::Hidden] {
        let scan = snapshot.entries(begin, end, direction, at, tombstones);
        let mut scan = scan.unwrap();
        let mut expected = expected
            .iter()
            .filter(|each| tombstones == Tombstones::Shown || each.2.is_some());
        while scan.advance().unwrap() {
            let Entry {
                key,
                position,
                payload,
            } = scan.entry();
            // Tombstones that hide nothing any more are gone.
            let next = expected.find(|each| each.0 == key || each.2.is_some());
            assert_eq!(
                Some(&(key, position, payload)),
                next,
                "at {at}, {direction:?}"
            );
        }
        assert!(!scan.advance().unwrap());
        assert!(
            expected.all(|each| each.2.is_none()),
            "a key is missing at {at}"
        );
    }
    expected.retain(|each| each.2.is_some());
    for max in [1, 2, usize::MAX] {
        let scan = snapshot.entries(begin, end, direction, at, Tombstones::Hidden);
        let (found, lengths) = in_stretches(scan.unwrap(), max);
        let borrowed = found
            .iter()
            .map(|(key, position, payload)| (&key[..], *position, payload.as_deref()));
        assert_eq!(
            borrowed.collect::<Vec<_>>(),
            expected,
            "at {at}, at most {max}"
        );
        assert!(lengths.iter().flatten().all(|length| *length <= max));
    }
}

/// Key, position and payload.
pub type Found = (Vec<u8>, u64, Option<Vec<u8>>);

/// What a scan in stretches gives, and how many entries each has; none if it was one of the memory level.
pub fn in_stretches(mut scan: Visible<Versions>, max: usize) -> (Vec<Found>, Vec<Option<usize>>) {
    let (mut found, mut lengths) = (Vec::new(), Vec::new());
    while scan.advance_stretch(max).unwrap() {
        let last = scan.entry();
        let last = (
            last.key.to_vec(),
            last.position,
            last.payload.map(<[u8]>::to_vec),
        );
        let Some(stretch) = scan.stretch() else {
            found.push(last);
            lengths.push(None);
            continue;
        };
        let ((keys, key_ends), (payloads, ends)) = (stretch.keys(), stretch.payloads());
        let (mut key_at, mut at) = (0, 0);
        for ((position, key_end), end) in stretch.positions().zip(key_ends).zip(ends) {
            let (key_end, end) = (key_end as usize, end as usize);
            let payload = Some(payloads[at..end].to_vec());
            found.push((keys[key_at..key_end].to_vec(), position, payload));
            (key_at, at) = (key_end, end);
        }
        assert_eq!((key_at, at), (keys.len(), payloads.len()));
        assert_eq!(found.last(), Some(&last), "it stands on the last one");
        assert_eq!(stretch.last_key(), last.0);
        lengths.push(Some(stretch.len()));
    }
    (found, lengths)
}

impl World {
    pub fn create(vfs: Arc<dyn Vfs>, options: TreeOptions) -> Result<Self> {
        let tree = Tree::create(Arc::clone(&vfs), Path::new(DIR), ID, 0, options, &cache())?;
        Ok(Self {
            vfs,
            tree,
            options,
            log: Vec::new(),
        })
    }

    pub fn memory() -> Self {
        Self::create(Arc::new(MemoryVfs::untraced()), TINY).unwrap()
    }

    /// Open what is there, and apply what the log has behind it.
    pub fn open(vfs: Arc<dyn Vfs>, options: TreeOptions, log: &[Change]) -> Result<Self> {
        let opened = Tree::open(Arc::clone(&vfs), Path::new(DIR), ID, options, &cache());
        let (tree, _) = opened?;
        let flushed = tree.flushed() as usize;
        assert!(flushed <= log.len(), "flushed what was never applied");
        let mut world = Self {
            vfs,
            tree,
            options,
            log: log[..flushed].to_vec(),
        };
        for change in &log[flushed..] {
            world.apply(std::slice::from_ref(change));
        }
        Ok(world)
    }

    pub fn reopen(self) -> Self {
        let Self {
            vfs,
            tree,
            options,
            log,
        } = self;
        drop(tree);
        Self::open(vfs, options, &log).unwrap()
    }

    pub fn apply(&mut self, changes: &[Change]) {
        let mut piece = Piece::new();
        for (at, (key, payload)) in changes.iter().enumerate() {
            let position = (self.log.len() + at + 1) as u64;
            let payload = payload.as_deref();
            piece
                .push(&Entry {
                    key,
                    position,
                    payload,
                })
                .unwrap();
        }
        self.log.extend_from_slice(changes);
        self.tree.apply(piece, self.log.len() as u64).unwrap();
    }

    /// Apply entries, and flush them.
    pub fn flushed(&mut self, keys: &str, payload: &[u8]) {
        let changes: Vec<Change> = keys
            .bytes()
            .map(|key| (vec![key], Some(payload.to_vec())))
            .collect();
        self.apply(&changes);
        assert!(self.tree.flush().unwrap());
    }

    /// Merge and reshape until nothing is wanted.
    pub fn settle(&self) {
        while self.tree.merge(None).unwrap() || self.tree.reshape().unwrap() {}
    }

    /// Names of the files of runs.
    pub fn files(&self) -> BTreeSet<u64> {
        let names = self.vfs.list(Path::new(DIR)).unwrap();
        names
            .iter()
            .filter_map(|name| parse_file_name(name))
            .collect()
    }

    /// Answers, and what has to hold between the version and the files.
    pub fn check(&self) {
        let snapshot = self.tree.snapshot();
        let applied = self.log.len() as u64;
        assert_eq!(
            (snapshot.position(), self.tree.applied()),
            (applied, applied)
        );
        let floor = snapshot.floor();
        for at in BTreeSet::from([floor, floor.midpoint(applied), applied]) {
            check_answers(&snapshot, &self.log, at);
        }
        self.check_version();
    }

    pub fn check_version(&self) {
        let version = Arc::clone(&self.tree.state().view.version);
        version.check().unwrap();
        let files = self.files();
        assert!(version.runs().keys().all(|number| files.contains(number)));
        let mut again = TreeVersion::default();
        let context = manifest::Context {
            edit: 9,
            snapshot: true,
        };
        again.apply(context, &version.snapshot()).unwrap();
        assert_eq!(again, *version, "a snapshot gives the version again");
    }

    /// As [`World::check`], where nobody reads: then no file is there but the listed ones.
    pub fn check_whole(&self) {
        self.check();
        let version = Arc::clone(&self.tree.state().view.version);
        let listed: BTreeSet<u64> = version.runs().keys().copied().collect();
        assert_eq!(self.files(), listed);
        let names = self.vfs.list(Path::new(DIR)).unwrap();
        let known = |name: &String| {
            parse_file_name(name).is_some()
                || name == "CURRENT"
                || name == "trash"
                || name.starts_with("MANIFEST-")
        };
        assert!(names.iter().all(known), "{names:?}");
    }
}
