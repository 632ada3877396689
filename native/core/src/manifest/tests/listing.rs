//! A list of numbered entries: what it refuses, and that it is the same after every open.

use std::path::Path;
use std::sync::Arc;

use super::{DIR, ID, memory};
use crate::error::{Error, Result};
use crate::limits::LISTING_ENTRY_BYTES_MAX;
use crate::manifest::{Listing, ListingOperation, Manifest, Options};
use crate::vfs::{MemoryVfs, Vfs};

fn open(vfs: &Arc<dyn Vfs>, rotate_edits: u64) -> Manifest<Listing> {
    let options = Options {
        rotate_edits,
        ..Options::default()
    };
    Manifest::open_or_create(vfs.clone(), Path::new(DIR), ID, options).unwrap()
}

fn add(number: u64, entry: &[u8]) -> ListingOperation {
    ListingOperation::Add {
        number,
        entry: entry.into(),
    }
}

fn numbers(manifest: &Manifest<Listing>) -> Vec<u64> {
    manifest
        .version()
        .entries()
        .map(|(number, _)| number)
        .collect()
}

#[test]
fn lists_what_was_added_across_files_and_opens() {
    let vfs = memory();
    let mut manifest = open(&vfs, 2);
    for number in 1..=20u64 {
        let mut edit = vec![add(number, &number.to_le_bytes())];
        if number > 3 {
            edit.push(ListingOperation::Remove { number: number - 3 });
        }
        manifest.commit(&edit).unwrap();
        assert_eq!(manifest.version().next(), number + 1);
        if number % 5 == 0 {
            let expected = manifest.version().clone();
            drop(manifest);
            manifest = open(&vfs, 2);
            assert_eq!(*expected, **manifest.version());
        }
    }
    assert_eq!(numbers(&manifest), [18, 19, 20]);
    let entries: Vec<_> = manifest.version().entries().collect();
    assert_eq!(entries[0].1, 18u64.to_le_bytes());
}

#[test]
fn gives_no_number_twice_even_if_nothing_is_listed() {
    let vfs = memory();
    let mut manifest = open(&vfs, 4096);
    manifest.commit(&[add(7, b"")]).unwrap();
    manifest
        .commit(&[ListingOperation::Remove { number: 7 }])
        .unwrap();
    manifest.close().unwrap();
    let mut manifest = open(&vfs, 4096);
    assert_eq!((numbers(&manifest), manifest.version().next()), (vec![], 8));
    assert!(refused(&manifest.commit(&[add(7, b"again")])));
}

#[test]
fn refuses_what_does_not_apply() {
    let vfs = memory();
    let mut manifest = open(&vfs, 4096);
    assert!(refused(&manifest.commit(&[add(0, b"")])));
    assert!(refused(
        &manifest.commit(&[ListingOperation::Remove { number: 1 }])
    ));
    assert!(refused(
        &manifest.commit(&[ListingOperation::Advance { next: 5 }])
    ));
    let large = vec![0; LISTING_ENTRY_BYTES_MAX + 1];
    assert!(refused(&manifest.commit(&[add(1, &large)])));
    assert_eq!(numbers(&manifest), [0u64; 0]);
}

/// Wherever the first open is killed, the next one makes the list; and what tells of entries is not replaced.
#[test]
fn a_creation_that_was_cut_short_is_done_again() {
    let memory = MemoryVfs::new();
    memory.create_dir_all(Path::new(DIR)).unwrap();
    memory.settle();
    let vfs: Arc<dyn Vfs> = Arc::new(memory.clone());
    open(&vfs, 4096).commit(&[add(1, b"one")]).unwrap();
    let mut made = 0;
    for (_, _, image) in memory.trace().crashes(3) {
        let vfs: Arc<dyn Vfs> = Arc::new(image);
        let mut manifest = open(&vfs, 4096);
        made += usize::from(numbers(&manifest).is_empty());
        if manifest.version().next() == 1 {
            manifest.commit(&[add(1, b"one")]).unwrap();
        }
        drop(manifest);
        assert_eq!(numbers(&open(&vfs, 4096)), [1]);
        vfs.remove(&Path::new(DIR).join("CURRENT")).unwrap();
        let lost = Manifest::<Listing>::open_or_create(vfs, Path::new(DIR), ID, Options::default());
        assert!(matches!(lost.err(), Some(Error::Missing { .. })));
    }
    assert!(made > 0);
}

fn refused(result: &Result<u64>) -> bool {
    matches!(result, Err(Error::InvalidArgument(_)))
}
