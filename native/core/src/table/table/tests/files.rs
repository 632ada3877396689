//! Files that are lost, or of nobody.

use std::collections::BTreeSet;

use super::*;
use crate::table::run::parse_file_name;
use crate::vfs::Vfs;

fn tree_dir(tree: u128) -> std::path::PathBuf {
    Table::dir_in(Path::new(TABLES), 2).join(format!("{tree:032x}"))
}

fn with_two_indexes() -> Fixture {
    let mut fixture = Fixture::new(&[("city", "json:/city")], table_options());
    for n in 0..40 {
        let value = format!(r#"{{"city": "c{}", "n": {n}}}"#, n % 3);
        fixture.put(&format!("k{n}"), &value);
    }
    fixture.catch_up();
    fixture.build("n", "json:/n:int", 50).unwrap();
    fixture.table.flush().unwrap();
    fixture
}

fn remove_files(fixture: &Fixture, tree: u128) {
    let dir = tree_dir(tree);
    for name in fixture.vfs.list(&dir).unwrap() {
        fixture.vfs.remove(&dir.join(name)).unwrap();
    }
    fixture.vfs.remove_dir(&dir).unwrap();
}

#[test]
fn a_lost_index_leaves_the_table_readable() {
    let mut fixture = with_two_indexes();
    fixture.table.close().unwrap();
    remove_files(&fixture, 50);
    fixture.reopen();
    let [lost] = fixture.table.lost() else {
        panic!("{:?}", fixture.table.lost());
    };
    assert_eq!((lost.name.as_str(), lost.id), ("n", 50));
    assert!(fixture.table.index("n").is_err());
    fixture.definition.indexes.retain(|index| index.name != "n");
    fixture.build("n", "json:/n:int", 51).unwrap();
    fixture.catch_up();
    fixture.check();
    assert_eq!(fixture.table.indexes().len(), 2);
}

#[test]
fn a_damaged_index_is_lost_and_a_damaged_table_is_not() {
    let mut fixture = with_two_indexes();
    fixture.table.close().unwrap();
    let run = |tree| {
        let dir = tree_dir(tree);
        let names = fixture.vfs.list(&dir).unwrap();
        dir.join(
            names
                .iter()
                .find(|name| parse_file_name(name).is_some())
                .unwrap(),
        )
    };
    let (of_index, of_table) = (run(50), run(3));
    fixture.vfs.remove(&of_index).unwrap();
    fixture.reopen();
    assert_eq!(fixture.table.lost().len(), 1);
    fixture.vfs.remove(&of_table).unwrap();
    let options = table_options();
    let opened = open_table(&fixture.vfs, &fixture.store, &fixture.definition, options);
    let error = opened.err().unwrap();
    assert!(matches!(error, Error::Missing { .. }), "{error}");
}

#[test]
fn an_index_from_the_start_is_made_again_of_the_log() {
    let mut fixture = with_two_indexes();
    fixture.table.close().unwrap();
    remove_files(&fixture, 10);
    fixture.reopen();
    assert_eq!(fixture.table.lost(), []);
    fixture.catch_up();
    fixture.check();
}

#[test]
fn what_is_read_is_known() {
    let fixture = with_two_indexes();
    assert!(!fixture.table.is_read());
    assert_eq!(fixture.table.tree_ids(), [3, 10, 50]);
    let snapshot = fixture.table.snapshot().unwrap();
    assert!(fixture.table.is_read());
    let mut rows = snapshot
        .scan_index("n", None, None, Direction::Forward)
        .unwrap();
    drop(snapshot);
    assert!(rows.advance().unwrap());
    fixture.table.drop_index(50).unwrap();
    assert_eq!(fixture.table.dropped_and_read(), [50]);
    while rows.advance().unwrap() {}
    drop(rows);
    assert!(fixture.table.dropped_and_read().is_empty());
    assert!(!fixture.table.is_read());
    let row = fixture.table.get(b"k1").unwrap().unwrap();
    assert_eq!(row.key(), b"k1");
    drop(row);
    assert!(!fixture.table.is_read());
}

#[test]
fn a_reader_of_files_that_were_merged_is_known() {
    let mut fixture = with_two_indexes();
    let snapshot = fixture.table.snapshot().unwrap();
    let rows = snapshot.scan(None, None, Direction::Forward).unwrap();
    drop(snapshot);
    fixture.put("k1", "{}");
    fixture.catch_up();
    fixture.table.flush().unwrap();
    while fixture.table.compact().unwrap() {}
    fixture.table.abandon();
    assert!(fixture.table.is_read());
    drop(rows);
    assert!(!fixture.table.is_read());
}

#[test]
fn only_what_nobody_knows_is_removed() {
    let mut fixture = with_two_indexes();
    let tables = Path::new(TABLES);
    let stranger = tables.join("notes");
    let orphan = Table::dir_in(tables, 77);
    fixture.vfs.create_dir_all(&stranger).unwrap();
    fixture.vfs.create_dir_all(&orphan.join("deep")).unwrap();
    fixture.vfs.replace(&orphan.join("file"), b"x").unwrap();
    let begun = tables.join(format!("{:032x}.trash", 78));
    fixture.vfs.create_dir_all(&begun).unwrap();
    let known = |trees: &[u128]| BTreeMap::from([(2_u128, trees.iter().copied().collect())]);
    let collect =
        |known: &BTreeMap<u128, BTreeSet<u128>>| collect_orphans(&fixture.vfs, tables, known);
    assert_eq!(collect(&known(&[3, 10, 50])).unwrap(), 2);
    assert_eq!(collect(&known(&[3, 10, 50])).unwrap(), 0);
    let names = fixture.vfs.list(tables).unwrap();
    assert_eq!(names, [format!("{:032x}", 2), "notes".into()]);
    assert_eq!(collect(&known(&[3, 10])).unwrap(), 1);
    assert!(!fixture.vfs.exists(&tree_dir(50)).unwrap());
    fixture.definition.indexes.truncate(1);
    fixture.reopen();
    fixture.check();
    let nothing = Path::new("/data/none");
    assert_eq!(
        collect_orphans(&fixture.vfs, nothing, &known(&[])).unwrap(),
        0
    );
}

/// Cut at every operation of a removal: the next one finishes it, and tables that are known stay.
#[test]
fn a_removal_that_was_cut_short_is_finished() {
    let mut fixture = with_two_indexes();
    fixture.table.close().unwrap();
    fixture.vfs.settle();
    let known = BTreeMap::from([(2_u128, BTreeSet::from([3_u128, 10]))]);
    collect_orphans(&fixture.vfs, Path::new(TABLES), &known).unwrap();
    let trace = fixture.vfs.trace();
    fixture.definition.indexes.truncate(1);
    let mut images = 0;
    for (cut, policy, image) in trace.crashes(1) {
        images += 1;
        collect_orphans(&image, Path::new(TABLES), &known)
            .unwrap_or_else(|error| panic!("cut {cut}, {policy:?}: {error}"));
        let names = image.list(&Table::dir_in(Path::new(TABLES), 2)).unwrap();
        assert_eq!(names.len(), 3, "cut {cut}, {policy:?}: {names:?}");
        let store = open_store(&image).unwrap();
        open_table(&image, &store, &fixture.definition, table_options()).unwrap();
    }
    assert!(images > 10, "{images}");
}
