//! Leaves out of a failing script what it does not need to fail.

use super::{
    run::run,
    script::{Timed, World},
};

/// How many runs a search may take.
const RUNS: usize = 250;

/// The steps that still violate this invariant: halves, quarters and so on are left out as long as it goes on failing.
pub(super) fn shrink(world: &World, steps: &[Timed], invariant: &str) -> Vec<Timed> {
    let fails = |steps: &[Timed]| run(world, steps).violation.is_some_and(|violation| violation.invariant == invariant);
    let mut kept = steps.to_vec();
    let mut size = kept.len().div_ceil(2);
    let mut runs = 0;
    while size > 0 {
        let mut at = 0;
        while at < kept.len() && runs < RUNS {
            let mut fewer = kept.clone();
            // The time that passes stays, or what comes after would meet another moment.
            let gone: std::time::Duration = fewer.drain(at..(at + size).min(kept.len())).map(|(pause, _)| pause).sum();
            if let Some((pause, _)) = fewer.get_mut(at) {
                *pause += gone;
            }
            runs += 1;
            if fails(&fewer) {
                kept = fewer;
            } else {
                at += size;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    kept
}
