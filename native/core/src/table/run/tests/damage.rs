//! No byte of a run can change, and no tail be lost, without an error.

use super::*;

/// Open and read everything in every way.
fn read(vfs: &MemoryVfs, info: &RunInfo, model: &[Owned]) -> Result<Vec<Owned>> {
    let run = open(vfs, info)?;
    for (key, position, payload) in model {
        let found = run.get(key, *position)?;
        let found = found.map(|found| owned(found.entry()));
        assert_eq!(found, Some((key.clone(), *position, payload.clone())));
    }
    all(&run)
}

#[test]
fn every_flipped_bit_is_found() {
    for compression in [Compression::None, Compression::Zstd, Compression::Lz4] {
        let model = some_entries(40);
        let vfs = memory();
        let info = write(&vfs, &model, options(compression, 512))
            .unwrap()
            .unwrap();
        let whole = file(&vfs);
        assert_eq!(read(&vfs, &info, &model).unwrap(), model);
        for at in 0..whole.len() {
            for bit in [0, 3, 7] {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                let error = read(&disk_of(&bytes), &info, &model).unwrap_err();
                let Error::Corruption { path, offset, .. } = &error else {
                    panic!("byte {at}: {error}");
                };
                assert!(path.ends_with("000007.run"), "{error}");
                // The check that found it covers the byte.
                assert!(
                    *offset <= at as u64 || at + 128 >= whole.len(),
                    "byte {at}: {error}"
                );
            }
        }
    }
}

#[test]
fn every_truncation_is_found() {
    let model = some_entries(40);
    let vfs = memory();
    let info = write(&vfs, &model, options(Compression::None, 512))
        .unwrap()
        .unwrap();
    let whole = file(&vfs);
    for len in 0..whole.len() {
        let error = open(&disk_of(&whole[..len]), &info).err().unwrap();
        assert!(
            matches!(error, Error::Missing { .. }),
            "{len} bytes: {error}"
        );
    }
    let longer = [&whole[..], &[0]].concat();
    let error = open(&disk_of(&longer), &info).err().unwrap();
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
}

/// Pages that are whole in themselves, but of another place or another run.
#[test]
fn pages_of_other_places_are_found() {
    let payload = |byte| Some(vec![byte; 600]);
    let pages: Vec<Owned> = (0..8u8).map(|n| (vec![n], 1, payload(n))).collect();
    let vfs = memory();
    let info = write(&vfs, &pages, options(Compression::None, 512))
        .unwrap()
        .unwrap();
    let whole = file(&vfs);
    let page = 618;
    assert_eq!(whole[page - 1], 0);
    assert_eq!(whole[page + 17], 1);
    let mut swapped = whole.clone();
    swapped.copy_within(..page, page);
    let error = read(&disk_of(&swapped), &info, &pages).unwrap_err();
    assert!(
        matches!(error, Error::Corruption { offset: 618, .. }),
        "{error}"
    );

    // A run of the same name with other content: as after a file was restored from elsewhere.
    let other: Vec<Owned> = (0..8u8).map(|n| (vec![n], 1, payload(n + 1))).collect();
    let vfs = memory();
    write(&vfs, &other, options(Compression::None, 512)).unwrap();
    let error = open(&vfs, &info).err().unwrap();
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
}
