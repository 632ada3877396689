//! The state at the end of the log, as far as its frames can still be read.

use std::sync::Arc;

use super::fold::Fold;
use super::scan::{Found, Scan};
use super::survey::{Lap, Survey};
use crate::error::Result;
use crate::vfs::Vfs;
use crate::wal::format::frame::{FLAG_MORE, Kind};

/// The state at the end of the log, from the newest segment whose preamble is whole on.
pub fn newest_state(vfs: &Arc<dyn Vfs>, survey: &Survey, end: Option<u32>) -> Result<Fold> {
    let mut fold = Fold::new(survey.node);
    let from = survey
        .laps
        .iter()
        .rposition(|lap| has_preamble(&**vfs, survey, lap))
        .unwrap_or(0);
    for (at, lap) in survey.laps.iter().enumerate().skip(from) {
        let newest = at + 1 == survey.laps.len();
        let limit = end.filter(|_| newest).unwrap_or_else(|| survey.limit(lap));
        let Ok(file) = lap.open(&**vfs) else {
            continue;
        };
        let mut scan = Scan::new(file, lap.seed, limit);
        fold.begin();
        while let Some(found) = scan.next_found() {
            match found {
                Found::Bad(bad) => match &bad.frame {
                    Some(frame) => fold.lost(frame),
                    None => fold.damage(),
                },
                Found::Frame(frame) => fold.frame(&frame, scan.payload(&frame)),
            }
        }
    }
    Ok(fold)
}

fn has_preamble(vfs: &dyn Vfs, survey: &Survey, lap: &Lap) -> bool {
    let Ok(file) = lap.open(vfs) else {
        return false;
    };
    let mut scan = Scan::new(file, lap.seed, survey.limit(lap));
    while let Some(Found::Frame(frame)) = scan.next_found() {
        if frame.header.kind != Kind::Preamble {
            return false;
        }
        if frame.header.flags & FLAG_MORE == 0 {
            return true;
        }
    }
    false
}
