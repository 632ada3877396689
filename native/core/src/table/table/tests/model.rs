//! Whatever is appended, flushed, merged, built and reopened: the table is what the list says, at every position that it
//! can be read at.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// Key, and which value.
    Append(Option<u8>, u8),
    Follow,
    Flush,
    Merge,
    Compact,
    /// Without closing anything, as after a kill.
    Reopen,
    Build,
    Drop,
    Keep,
    Check,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = prop_oneof![9 => (0u8..12).prop_map(Some), 1 => Just(None)];
    let step = prop_oneof![
        30 => (key, 0u8..12).prop_map(|(key, value)| Step::Append(key, value)),
        6 => Just(Step::Follow),
        4 => Just(Step::Flush),
        3 => Just(Step::Merge),
        1 => Just(Step::Compact),
        2 => Just(Step::Reopen),
        1 => Just(Step::Build),
        1 => Just(Step::Drop),
        1 => Just(Step::Keep),
        2 => Just(Step::Check),
    ];
    proptest::collection::vec(step, 1..120)
}

fn value(n: u8) -> String {
    match n {
        0 => String::new(),
        1 => "no json".into(),
        2 => "{}".into(),
        3 => r#"{"city": [1]}"#.into(),
        n => format!(r#"{{"city": "c{}", "price": {}.5}}"#, n % 3, n / 2),
    }
}

fn run(steps: &[Step], history: u64) {
    let options = TableOptions {
        history,
        ..table_options()
    };
    let indexes = [
        ("city", "json:/city"),
        ("price", "json:/price:float+json:/city:text"),
    ];
    let mut fixture = Fixture::new(&indexes, options);
    let mut kept = Vec::new();
    let mut trees = 100;
    for step in steps {
        match step {
            Step::Append(key, n) => {
                let key = key.map(|key| format!("k{key}").into_bytes());
                fixture.append(key.as_deref(), value(*n).as_bytes());
            }
            Step::Follow => {
                let end = fixture.catch_up();
                assert_eq!(end, fixture.appended.len() as u64);
            }
            Step::Flush => {
                fixture.table.flush().unwrap();
            }
            Step::Merge => {
                fixture.table.merge().unwrap();
            }
            Step::Compact => while fixture.table.compact().unwrap() {},
            Step::Reopen => {
                kept.clear();
                fixture.reopen();
            }
            Step::Build => {
                trees += 1;
                fixture
                    .build(&format!("late {trees}"), "json:/price", trees)
                    .unwrap();
            }
            Step::Drop => {
                if fixture.definition.indexes.len() > 2 {
                    let dropped = fixture.definition.indexes.remove(2);
                    fixture.table.drop_index(dropped.tree).unwrap();
                }
            }
            Step::Keep => kept.push(fixture.table.snapshot().unwrap()),
            Step::Check => fixture.check(),
        }
        assert!(fixture.table.retained() <= fixture.table.position());
    }
    for snapshot in &kept {
        fixture.check_at(snapshot);
    }
    fixture.catch_up();
    fixture.check();
    let counters = fixture.table.counters();
    assert_eq!(counters.records, fixture.appended.len() as u64);
    let keyless = fixture
        .appended
        .iter()
        .filter(|(key, _)| key.is_none())
        .count();
    assert_eq!(counters.without_key.count, keyless as u64);
    fixture.table.flush().unwrap();
    while fixture.table.compact().unwrap() {}
    fixture.check();
    fixture.reopen();
    assert_eq!(fixture.table.counters(), counters);
    assert_eq!(fixture.table.position(), fixture.appended.len() as u64);
    fixture.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_table_is_a_list(steps in steps(), history in prop::sample::select(vec![0u64, 5, 1000])) {
        run(&steps, history);
    }
}

/// After merging, an index has no more entries than the table has records with the field.
#[test]
fn merges_drop_what_was_replaced_from_indexes() {
    let mut fixture = Fixture::new(&[("city", "json:/city")], table_options());
    for round in 0..10 {
        for key in 0..20 {
            fixture.put(&format!("k{key}"), &format!(r#"{{"city": "c{round}"}}"#));
        }
        fixture.catch_up();
        fixture.table.flush().unwrap();
    }
    while fixture.table.compact().unwrap() {}
    let stats = fixture.table.stats();
    assert_eq!(stats.primary.run_entries, 20);
    assert_eq!(stats.indexes[0].1.run_entries, 20);
    fixture.check();
}
