//! Tests of trees.
//!
//! `world` has a tree in memory beside the log that it follows, and checks what it answers against
//! the log alone.

mod coalescing;
mod crash;
mod dividing;
mod faults;
mod following;
mod golden;
mod model;
mod picking;
mod races;
mod recovery;
mod refusals;
mod speed;
mod stretches;
mod versions;
mod world;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::batch::Compression;
use crate::error::{Error, Result};
use crate::manifest::{self, Identity, Version};
use crate::table::entry::{Direction, Entries, Entry};
use crate::table::memory::Piece;
use crate::table::run::{RunCache, RunInfo, RunOptions, parse_file_name};
use crate::vfs::{MemoryVfs, Vfs};
use world::{Change, World, check_answers, visible};

const DIR: &str = "/tables/7/9";
const ID: Identity = Identity {
    object: 9 << 90,
    node: 5 << 70,
};

/// Options under which a few dozen entries make several ranges and files.
const TINY: TreeOptions = TreeOptions {
    run: RunOptions {
        compression: Compression::None,
        page_bytes: 48,
        filter_bits_per_key: 10,
    },
    shape: ShapeOptions {
        ratio_percent: 350,
        slices_per_level: 2,
        slices_max: 8,
        range_bytes: 240,
    },
    memory_bytes_max: 1 << 20,
    manifest: manifest::Options {
        rotate_bytes: 1 << 20,
        rotate_edits: 5,
        snapshot_edit_bytes: 100,
    },
};

fn cache() -> Arc<RunCache> {
    Arc::new(RunCache::new(1 << 20, 64))
}
