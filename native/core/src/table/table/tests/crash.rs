//! Crashes at every operation of log and table: after an open and catching up the table is what the log says.

use super::*;
use crate::batch::BatchView;

/// Append, follow, flush, merge, build an index, and go on.
fn workload(fixture: &mut Fixture) {
    let value = |n: u64| format!(r#"{{"city": "c{}", "n": {n}}}"#, n % 3);
    for n in 0..24 {
        let key = format!("k{}", n % 7);
        let text = if n % 9 == 8 { String::new() } else { value(n) };
        fixture.put(&key, &text);
        if n % 5 == 4 {
            fixture.catch_up();
            fixture.table.flush().unwrap();
        }
        if n == 12 {
            fixture.build("n", "json:/n:int", 50).unwrap();
        }
        if n % 11 == 10 {
            while fixture.table.compact().unwrap() {}
        }
    }
    fixture.catch_up();
    fixture.table.flush().unwrap();
    fixture.table.close().unwrap();
}

/// What the log of an image has.
fn appended(store: &Store) -> Result<Appended> {
    let stream = store.view().stream(STREAM)?;
    let batches = store.view().read(
        &stream,
        1,
        u64::MAX,
        usize::MAX,
        &mut crate::wal::Position::default(),
    )?;
    let mut appended = Vec::new();
    for batch in batches {
        let view = BatchView::parse(batch.bytes())?;
        appended.extend(
            view.iter()
                .map(|record| (record.key.map(Into::into), record.value.unwrap().to_vec())),
        );
    }
    Ok(appended)
}

#[test]
fn every_crash_leaves_a_table_that_equals_its_log() {
    let mut fixture = Fixture::on(MemoryVfs::new(), &[("city", "json:/city")], table_options());
    fixture.vfs.settle();
    workload(&mut fixture);
    let built = fixture.definition.clone();
    let trace = fixture.vfs.trace();
    let mut images = 0;
    for (cut, policy, image) in trace.crashes(1) {
        // Every third: they take long, and over the policies all cuts are met.
        if (cut + images) % 3 != 0 {
            images += 1;
            continue;
        }
        images += 1;
        let read = super::following::read_crashed(&image, &built);
        let store = open_store(&image).unwrap();
        let appended = appended(&store).unwrap();
        // The catalog would name the index where its building had begun; here: where its tree is there.
        let mut definition = built.clone();
        let tree = Table::dir_in(Path::new(TABLES), 2).join(format!("{:032x}/CURRENT", 50));
        if !image.exists(&tree).unwrap() {
            definition.indexes.truncate(1);
        }
        let model = state_at(&appended, appended.len() as u64);
        assert_eq!(
            read, model,
            "cut {cut}, {policy:?}: before the writer opened it"
        );
        let table = open_table(&image, &store, &definition, table_options())
            .unwrap_or_else(|error| panic!("cut {cut}, {policy:?}: {error}"));
        let mut after = Fixture {
            vfs: image.clone(),
            store,
            table,
            definition,
            options: table_options(),
            appended,
        };
        after.catch_up();
        for index in after.table.building() {
            let (view, stream) = after.view();
            after
                .table
                .build_index(index.id(), &view, &stream, &mut |_| true)
                .unwrap();
        }
        after.check();
        assert_eq!(after.table.counters().records, after.appended.len() as u64);
        after.put("k1", r#"{"city": "new", "n": 1}"#);
        after.catch_up();
        after.table.flush().unwrap();
        after.check();
    }
    assert!(images > 300, "{images} images");
}
