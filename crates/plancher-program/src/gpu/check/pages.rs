//! Pages of keys and values: at every position each page of the past is read once, by a split that is awake, by the
//! worker that appended it, and has a place of its own in the worker's table; and the producer puts as many stages into
//! the ring as the consumers take out. Looked at where pages and splits begin and end, by the kernel's own way from page
//! to page.

use std::collections::BTreeSet;

use super::CheckError;
use crate::gpu::{PAGE, Plan, SPLIT_PAGES, STAGE_BYTES};

pub(super) fn check(plan: &Plan) -> Result<(), CheckError> {
    let shape = &plan.shape;
    let page_bytes = 2 * PAGE * shape.head_dim * 2;
    if page_bytes > STAGE_BYTES {
        return Err(CheckError::Bound { what: "bytes of a page", value: page_bytes, bound: STAGE_BYTES });
    }
    // The first unit of a head appends, all of them read.
    if plan.attention.kv_units != shape.n_kv_heads {
        let (value, bound) = (plan.attention.kv_units, shape.n_kv_heads);
        return Err(CheckError::Bound { what: "units of attention", value, bound });
    }
    for position in positions(plan) {
        // A window begins at any page.
        for first in BTreeSet::from([0, 1, SPLIT_PAGES + 3, (position / PAGE).saturating_sub(9)]) {
            if first == 0 || first * PAGE < position {
                pages(plan, position, first)?;
            }
        }
    }
    Ok(())
}

/// The first positions, those around the borders of pages and splits, and the last ones.
fn positions(plan: &Plan) -> BTreeSet<usize> {
    let (split, round) = (PAGE * SPLIT_PAGES, PAGE * SPLIT_PAGES * plan.attention.splits);
    let last = plan.target.positions - 1;
    let borders = [PAGE, 2 * PAGE, split, split + PAGE, 2 * split, round - PAGE, round, round + split, 3 * round, last];
    let around = borders.into_iter().flat_map(|border| border.saturating_sub(1)..border.saturating_add(2));
    around.chain([0]).filter(|position| *position <= last).collect()
}

/// The page from which on `split` has pages at or after `first`.
fn first_own_page(first: usize, split: usize, splits: usize) -> usize {
    let group = first / SPLIT_PAGES;
    let owner = group % splits;
    if owner == split { first } else { (group + (split + splits - owner) % splits) * SPLIT_PAGES }
}

fn next_own_page(page: usize, splits: usize) -> usize {
    if (page + 1).is_multiple_of(SPLIT_PAGES) { page + 1 + SPLIT_PAGES * (splits - 1) } else { page + 1 }
}

/// All splits' ways through the pages from `first` on that hold positions before `position`.
fn pages(plan: &Plan, position: usize, first: usize) -> Result<(), CheckError> {
    let (attention, splits) = (&plan.attention, plan.attention.splits);
    let active = attention.active_splits(position);
    let past = position.div_ceil(PAGE);
    let mut read = vec![false; past];
    for split in 0..splits {
        let error = |page: usize, problem: String| Err(CheckError::Page { position, page, split, problem });
        let mut kept = BTreeSet::new();
        let mut page = first_own_page(first, split, splits);
        while page < past {
            if attention.split_of_page(page) != split {
                return error(page, format!("belongs to split {}, which appends to it", attention.split_of_page(page)));
            }
            if split >= active {
                return error(page, format!("only {active} splits are awake"));
            }
            let place = page / SPLIT_PAGES / splits * SPLIT_PAGES + page % SPLIT_PAGES;
            if place >= plan.ring.table_pages || !kept.insert(place) {
                return error(page, format!("has no place in a table of {} pages", plan.ring.table_pages));
            }
            if std::mem::replace(&mut read[page], true) {
                return error(page, "is read twice".to_owned());
            }
            page = next_own_page(page, splits);
        }
    }
    let open = position / PAGE;
    let split = attention.split_of_page(open);
    if split >= active {
        let problem = format!("takes in the new position, but only {active} splits are awake");
        return Err(CheckError::Page { position, page: open, split, problem });
    }
    match (first..past).find(|&page| !read[page]) {
        None => Ok(()),
        Some(page) => {
            let split = attention.split_of_page(page);
            Err(CheckError::Page { position, page, split, problem: "is not read".to_owned() })
        }
    }
}
