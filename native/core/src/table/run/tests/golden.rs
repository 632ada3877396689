//! Runs that released versions wrote are read, and this version writes the same bytes where the codec decides nothing.

use super::*;

const GOLDEN: [(Compression, &[u8]); 3] = [
    (
        Compression::None,
        include_bytes!("../../../../../../tests/compat/runs/v1-none.run"),
    ),
    (
        Compression::Zstd,
        include_bytes!("../../../../../../tests/compat/runs/v1-zstd.run"),
    ),
    (
        Compression::Lz4,
        include_bytes!("../../../../../../tests/compat/runs/v1-lz4.run"),
    ),
];

fn content() -> Vec<Owned> {
    let mut content = some_entries(60);
    content.insert(0, (vec![], 3, None));
    content.insert(0, (vec![], 9, Some(vec![])));
    content.push((
        b"key-\xff\x00big".to_vec(),
        u64::MAX,
        Some(b"0123456789".repeat(150)),
    ));
    content
}

#[test]
fn they_are_read() {
    for (compression, bytes) in GOLDEN {
        let vfs = memory();
        let info = write(&vfs, &content(), options(compression, 512))
            .unwrap()
            .unwrap();
        let checksum = bytes[bytes.len() - 4..].try_into().unwrap();
        let info = RunInfo {
            bytes: bytes.len() as u64,
            checksum: u32::from_le_bytes(checksum),
            ..info
        };
        let run = open(&disk_of(bytes), &info).unwrap();
        assert_eq!(all(&run).unwrap(), content());
        run.verify(&mut |_| {}).unwrap();
        for (key, position, _) in content() {
            assert!(run.get(&key, position).unwrap().is_some());
        }
    }
}

#[test]
fn the_same_bytes_are_written() {
    for (compression, bytes) in GOLDEN {
        let vfs = memory();
        write(&vfs, &content(), options(compression, 512)).unwrap();
        // To make those of a new format: BRAIDLOG_GOLDEN_RUNS=tests/compat/runs.
        if let Ok(dir) = std::env::var("BRAIDLOG_GOLDEN_RUNS") {
            let name = format!("v1-{}.run", format!("{compression:?}").to_lowercase());
            std::fs::write(Path::new(&dir).join(name), file(&vfs)).unwrap();
        } else if compression == Compression::None {
            assert!(file(&vfs) == bytes, "other bytes");
        }
    }
}
