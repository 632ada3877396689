//! Random changes of tables against a model that is too dumb to be wrong.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::tables::{header, index, sample, table};
use crate::wal::format::change::Change;
use crate::wal::format::frame::Kind;
use crate::wal::{IndexState, NewTable, Replacement, State, TableChange, pin_name};

/// A table: name, identities, indexes with whether they are used.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plain {
    id: u128,
    start: u64,
    indexes: Vec<(String, u128, bool)>,
}

#[derive(Clone, Debug)]
enum Step {
    Create(u8, u8),
    Drop(u8),
    Rename(u8, u8),
    Build(u8, u8),
    Activate(u8, u8),
    Abort(u8, u8),
    Unindex(u8, u8),
    Replace(u8),
}

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let name = 0..4u8;
    let two = (0..4u8, 0..3u8);
    let step = prop_oneof![
        4 => two.clone().prop_map(|(t, n)| Step::Create(t, n)),
        1 => name.clone().prop_map(Step::Drop),
        1 => (0..4u8, 0..4u8).prop_map(|(t, n)| Step::Rename(t, n)),
        3 => two.clone().prop_map(|(t, n)| Step::Build(t, n)),
        3 => two.clone().prop_map(|(t, n)| Step::Activate(t, n)),
        1 => two.clone().prop_map(|(t, n)| Step::Abort(t, n)),
        1 => two.prop_map(|(t, n)| Step::Unindex(t, n)),
        1 => name.prop_map(Step::Replace),
    ];
    prop::collection::vec(prop::collection::vec(step, 1..4), 1..30)
}

/// The model: tables by name, `None` if the step is to be refused.
struct Model {
    tables: BTreeMap<String, Plain>,
    fresh: u128,
}

impl Model {
    fn fresh(&mut self) -> u128 {
        self.fresh += 1;
        self.fresh
    }

    fn take(&mut self, step: &Step) -> (TableChange, bool) {
        let name = |n: &u8| format!("t{n}");
        let index_name = |n: &u8| format!("i{n}");
        let id_of = |model: &Self, n: &u8| model.tables.get(&name(n)).map(|table| table.id);
        let tree_of = |model: &Self, t: &u8, n: &u8| {
            let table = model.tables.get(&name(t));
            let mut indexes = table.into_iter().flat_map(|table| table.indexes.iter());
            indexes.find(|index| index.0 == index_name(n)).cloned()
        };
        match step {
            Step::Create(t, count) => {
                let (id, primary) = (self.fresh(), self.fresh());
                let indexes: Vec<(String, u128, bool)> = (0..*count)
                    .map(|n| (index_name(&n), self.fresh(), true))
                    .collect();
                let news = indexes.iter().map(|(name, tree, _)| index(*tree, name));
                let change = TableChange::Create(NewTable {
                    primary,
                    name: name(t),
                    start: 3,
                    indexes: news.collect(),
                    ..table(id, "", &[])
                });
                let free = !self.tables.contains_key(&name(t));
                if free {
                    let start = 3;
                    self.tables.insert(name(t), Plain { id, start, indexes });
                }
                (change, free)
            }
            Step::Drop(t) => {
                let id = id_of(self, t);
                self.tables.remove(&name(t));
                (TableChange::Drop(id.unwrap_or(1 << 99)), id.is_some())
            }
            Step::Rename(t, to) => {
                let id = id_of(self, t);
                let good = id.is_some() && !self.tables.contains_key(&name(to));
                if good {
                    let table = self.tables.remove(&name(t)).unwrap();
                    self.tables.insert(name(to), table);
                }
                (TableChange::Rename(id.unwrap_or(1 << 99), name(to)), good)
            }
            Step::Build(t, n) => {
                let (id, tree) = (id_of(self, t), self.fresh());
                let good = id.is_some() && tree_of(self, t, n).is_none();
                if good {
                    let table = self.tables.get_mut(&name(t)).unwrap();
                    table.indexes.push((index_name(n), tree, false));
                }
                let new = index(tree, &index_name(n));
                (TableChange::Build(id.unwrap_or(1 << 99), new, 5), good)
            }
            Step::Activate(t, n) | Step::Abort(t, n) | Step::Unindex(t, n) => {
                let id = id_of(self, t).unwrap_or(1 << 99);
                let found = tree_of(self, t, n);
                let tree = found.as_ref().map_or(1 << 98, |found| found.1);
                let (change, good) = match step {
                    Step::Activate(..) => (TableChange::Activate(id, tree, 6), false),
                    Step::Abort(..) => (TableChange::Abort(id, tree, 6), false),
                    _ => (TableChange::Unindex(id, tree), true),
                };
                let good = found.is_some_and(|found| good || !found.2);
                if good {
                    let indexes = &mut self.tables.get_mut(&name(t)).unwrap().indexes;
                    match step {
                        Step::Activate(..) => {
                            let index = indexes.iter_mut().find(|index| index.1 == tree);
                            index.unwrap().2 = true;
                        }
                        _ => indexes.retain(|index| index.1 != tree),
                    }
                }
                (change, good)
            }
            Step::Replace(t) => {
                let (id, new, primary) = (id_of(self, t), self.fresh(), self.fresh());
                let count = id.map_or(0, |_| self.tables[&name(t)].indexes.len());
                let trees: Vec<u128> = (0..count).map(|_| self.fresh()).collect();
                if id.is_some() {
                    let table = self.tables.get_mut(&name(t)).unwrap();
                    (table.id, table.start) = (new, 10);
                    for (index, tree) in table.indexes.iter_mut().zip(&trees) {
                        (index.1, index.2) = (*tree, true);
                    }
                }
                let replacement = Replacement {
                    id: new,
                    start: 10,
                    primary,
                    trees,
                };
                let change = TableChange::Replace(id.unwrap_or(1 << 99), replacement);
                (change, id.is_some())
            }
        }
    }
}

fn plain(state: &State) -> BTreeMap<String, Plain> {
    let of = |table: &crate::wal::Table| {
        let indexes = table.indexes.iter().map(|index| {
            let used = matches!(index.state, IndexState::Active(_));
            (index.index.name.clone(), index.index.tree, used)
        });
        let (id, start) = (table.id, table.start);
        let indexes = indexes.collect();
        (table.name.clone(), Plain { id, start, indexes })
    };
    state.tables.iter().map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_entries_agree_with_the_model(entries in steps()) {
        let mut state = sample();
        let mut model = Model { tables: BTreeMap::new(), fresh: 100 };
        for entry in entries {
            let before = model.tables.clone();
            let taken: Vec<(TableChange, bool)> = entry.iter().map(|step| model.take(step)).collect();
            let good = taken.iter().all(|(_, good)| *good);
            let changes: Vec<TableChange> = taken.into_iter().map(|(change, _)| change).collect();
            let change = Change::Tables(changes);
            let header = header(Kind::Catalog, 0);
            prop_assert_eq!(&Change::decode(&header, &change.payload()).unwrap(), &change);
            let bytes = state.encode();
            let growth = state.growth(&header, &change);
            let applied = state.apply(&header, &change);
            prop_assert_eq!(applied.is_ok(), good, "{:?}: {:?}", change, applied);
            if !good {
                model.tables = before;
                prop_assert_eq!(state.encode(), bytes.clone());
            }
            prop_assert_eq!(&plain(&state), &model.tables);
            let next = state.encode();
            prop_assert_eq!(next.len(), state.encoded_len());
            prop_assert!(next.len() <= bytes.len() + growth);
            prop_assert_eq!(&State::decode(&next).unwrap(), &state);
            let pins: Vec<String> = state.streams[&1].cursors.keys().cloned().collect();
            let mut expected: Vec<String> = model.tables.values().map(|table| pin_name(table.id)).collect();
            expected.sort();
            prop_assert_eq!(pins, expected);
        }
    }
}
