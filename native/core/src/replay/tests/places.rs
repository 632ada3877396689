//! What an error says of where records are.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::vfs::Access;

#[test]
fn copies_that_differ_stop_with_both_places() {
    // Read in passing, and through the index.
    for budget in [1 << 20, 16] {
        let mut world = World::default();
        for value in [0, 1] {
            let mut node = Node::new(budget);
            node.create(1, 0);
            node.place(1, 1, &batch(1, 1, 2, 10 + value));
            let runs = BTreeMap::from([(1, (1, 1, 2))]);
            let high_watermark = 2;
            node.apply(
                1,
                &[Cut {
                    runs,
                    high_watermark,
                }],
            );
            node.stop();
            world.nodes.push(node);
        }
        let sources = [0, 1].map(|at| world.nodes[at].directory(None));
        let mut merge = Merge::new(&sources, None, None, OnHole::Stop).unwrap();
        let error = drain(&mut merge).unwrap_err();
        let late = merge.figures().sources[1].late_bytes > 0;
        assert_eq!(late, budget == 16);
        let Error::Differs {
            position,
            path,
            offset,
            other_path,
            other_offset,
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(*position, 1);
        for (path, offset) in [(path, *offset), (other_path, *other_offset)] {
            assert!(path.ends_with("wal/slot-000001.wal"), "{error}");
            // Where a frame with the batch begins.
            let file = world.nodes[0].vfs.open(path, Access::Read).unwrap();
            let mut bytes = vec![0; 256];
            file.read_exact_at(&mut bytes, offset).unwrap();
            assert!(bytes.windows(4).any(|found| found == b"1/1/"), "{error}");
        }
    }
}
