//! What verifying finds: flipped bits, and files whose checksums are right but that no writer made.

use super::*;

#[test]
fn planted_damage_is_found_where_it_is() {
    let model = some_entries(400);
    let vfs = memory();
    let info = write(&vfs, &model, options(Compression::Lz4, 512))
        .unwrap()
        .unwrap();
    let run = open(&vfs, &info).unwrap();
    let mut seen = Vec::new();
    run.verify(&mut |bytes| seen.push(bytes)).unwrap();
    assert!(seen.len() > 20 && seen.is_sorted() && seen.last() == Some(&info.bytes));
    for offset in [0, 2000, 5000] {
        vfs.flip_bit(run.path(), offset, 4).unwrap();
        let error = open(&vfs, &info).unwrap().verify(&mut |_| {}).unwrap_err();
        let Error::Corruption { offset: found, .. } = error else {
            panic!("{error}")
        };
        assert!(found <= offset && offset < found + 512, "{offset}: {error}");
        vfs.flip_bit(run.path(), offset, 4).unwrap();
    }
    run.verify(&mut |_| {}).unwrap();
}

/// The file of a run with `change` made to its parts, and all checksums right again.
fn forge(vfs: &MemoryVfs, change: impl FnOnce(&mut Forged)) -> (MemoryVfs, u32) {
    let bytes = file(vfs);
    let at = |at: usize| {
        let begin = bytes.len() - 128 + at;
        u32::from_le_bytes(bytes[begin..begin + 4].try_into().unwrap()) as usize
    };
    let (pages, index) = (at(88), at(100));
    let mut forged = Forged {
        pages: bytes[..pages].to_vec(),
        index: bytes[pages..pages + index].to_vec(),
        filter: bytes[pages + index..bytes.len() - 128].to_vec(),
        footer: bytes[bytes.len() - 128..].to_vec(),
    };
    change(&mut forged);
    let Forged {
        pages,
        index,
        filter,
        mut footer,
    } = forged;
    for (place, of) in [(112, &index), (116, &filter)] {
        footer[place..place + 4].copy_from_slice(&crc32c::crc32c(of).to_le_bytes());
    }
    let checksum = crc32c::crc32c(&footer[..124]);
    footer[124..].copy_from_slice(&checksum.to_le_bytes());
    (disk_of(&[pages, index, filter, footer].concat()), checksum)
}

struct Forged {
    pages: Vec<u8>,
    index: Vec<u8>,
    filter: Vec<u8>,
    footer: Vec<u8>,
}

#[test]
fn a_filter_that_lacks_a_key_is_found() {
    let vfs = memory();
    let info = write(&vfs, &some_entries(50), RunOptions::default())
        .unwrap()
        .unwrap();
    let (vfs, checksum) = forge(&vfs, |forged| forged.filter.fill(0));
    let info = RunInfo { checksum, ..info };
    let error = open(&vfs, &info).unwrap().verify(&mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("filter"), "{error}");
}

#[test]
fn counts_that_are_wrong_are_found() {
    let vfs = memory();
    let info = write(&vfs, &some_entries(50), RunOptions::default())
        .unwrap()
        .unwrap();
    for (place, change) in [(56, -1), (64, 1), (72, -1), (80, 1)] {
        let (vfs, checksum) = forge(&vfs, |forged| {
            let field = &mut forged.footer[place..place + 8];
            let value = u64::from_le_bytes(field.try_into().unwrap());
            field.copy_from_slice(&value.checked_add_signed(change).unwrap().to_le_bytes());
        });
        let mut info = RunInfo {
            checksum,
            ..info.clone()
        };
        match place {
            56 => info.keys -= 1,
            64 => info.tombstones += 1,
            72 => info.position_min -= 1,
            _ => info.position_max += 1,
        }
        let error = open(&vfs, &info).unwrap().verify(&mut |_| {}).unwrap_err();
        assert!(
            error.to_string().contains("footer counts"),
            "{place}: {error}"
        );
    }
}

#[test]
fn an_index_that_points_elsewhere_is_found() {
    let model = some_entries(400);
    let vfs = memory();
    let info = write(&vfs, &model, options(Compression::None, 512))
        .unwrap()
        .unwrap();
    // The position of the second page's first entry, and then the two pages' places exchanged.
    let (wrong, checksum) = forge(&vfs, |forged| forged.index[8 + 32 + 16] ^= 1);
    let error = open(
        &wrong,
        &RunInfo {
            checksum,
            ..info.clone()
        },
    )
    .unwrap();
    let error = error.verify(&mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("first entry"), "{error}");

    let (wrong, checksum) = forge(&vfs, |forged| {
        let (first, second) = forged.index[8..8 + 64].split_at_mut(32);
        let lengths =
            [&first[..4], &second[..4]].map(|raw| u32::from_le_bytes(raw.try_into().unwrap()));
        first[..16].swap_with_slice(&mut second[..16]);
        let [a, b] = lengths.map(|len| len as usize);
        forged.pages[..a + b].rotate_left(a);
    });
    let run = open(&wrong, &RunInfo { checksum, ..info }).unwrap();
    let error = run.verify(&mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
    // A scan finds it by itself.
    let error = all(&run).unwrap_err();
    assert!(error.to_string().contains("out of order"), "{error}");
}
