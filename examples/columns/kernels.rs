//! Filter, projection and sum, in three kernels.
//!
//! Rows stay in their order: each work-group counts the rows that it keeps (`tally`), a prefix sum over the
//! counts says where they go (`scan`), and there the group puts them (`compact`). All numbers are integers,
//! so a sum is the same in every order.
#![expect(unsafe_code, reason = "declares device code")]

use rayon::prelude::*;
use wakegraph::{Buffer, Graph, HostBuffer, Range, Result};

/// Rows of a work-group; as in `kernels.c`.
const GROUP: usize = 256;
/// Work-groups whose rows a thread of the CPU compacts at a time.
const BATCH: usize = 256;

const SOURCE: &str = include_str!("kernels.c");

wakegraph::kernel! {
    /// The rows with a price above the limit, and the sum of their amounts, for each work-group.
    fn tally(limit: i64, price: &[i64], discount: &[i64], tallies: &mut [i64]) {
        range: |_limit, price, _discount, _tallies| [price.len().next_multiple_of(GROUP)],
        group: |group, limit, price, discount, tallies| {
            let first = group.offset()[0];
            let rows = first..price.len().min(first + GROUP);
            let (mut count, mut sum) = (0, 0i64);
            for (&price, &discount) in price[rows.clone()].iter().zip(&discount[rows]) {
                let is_kept = price > limit;
                count += i64::from(is_kept);
                sum = sum.wrapping_add(if is_kept { amount(price, discount) } else { 0 });
            }
            (tallies[0], tallies[1]) = (count, sum); // a group owns two elements
        },
        // SAFETY: the code compares the size of the group with that of its local memory, with the same
        // outcome for all work-items of a group, and indices with the lengths of slices. A work-item reads
        // what others have written behind a barrier.
        c: unsafe { SOURCE },
    }

    /// Where the rows of each work-group begin, and the totals: rows, and the sum of amounts. One work-group.
    fn scan(tallies: &[i64], starts: &mut [i64], totals: &mut [i64]) {
        range: |_tallies, _starts, _totals| [GROUP],
        group: |_group, tallies, starts, totals| {
            let (mut rows, mut sum) = (0, 0i64);
            for (group, tally) in tallies.chunks_exact(2).enumerate() {
                starts[group] = rows;
                rows += tally[0];
                sum = sum.wrapping_add(tally[1]);
            }
            totals[0] = rows;
            totals[1] = sum;
        },
        // SAFETY: as for `tally`.
        c: unsafe { SOURCE },
    }

    /// Prices above the limit, and their amounts, without gaps. The starts are those of `scan`.
    fn compact(limit: i64, price: &[i64], discount: &[i64], starts: &[i64], kept: &mut [i64], amounts: &mut [i64]) {
        range: |_limit, price, _discount, _starts, _kept, _amounts| [price.len().next_multiple_of(GROUP)],
        host: |_range, limit, price, discount, starts, kept, amounts| {
            let rows = price.par_chunks(BATCH * GROUP).zip(discount.par_chunks(BATCH * GROUP));
            let parts = parts(starts, kept).into_par_iter().zip(parts(starts, amounts));
            rows.zip(parts).for_each(|((price, discount), (kept, amounts))| {
                let rows = price.iter().zip(discount).filter(|&(&price, _)| price > limit);
                for ((&price, &discount), (kept, amounts)) in rows.zip(kept.iter_mut().zip(amounts)) {
                    (*kept, *amounts) = (price, amount(price, discount));
                }
            });
        },
        // SAFETY: as for `tally`. No two work-items write one element, as the starts are those of `scan`: the
        // kernel is private, and `add` puts it behind the scan.
        c: unsafe { SOURCE },
    }
}

/// Memory of the host for the results of as many rows as there are at most.
pub(crate) struct Results {
    pub(crate) price: HostBuffer<i64>,
    pub(crate) amount: HostBuffer<i64>,
    /// The number of rows that are kept, and the sum of their amounts.
    pub(crate) totals: HostBuffer<i64>,
}

/// Adds the commands that keep the rows whose price is above the limit.
pub(crate) fn add(
    graph: &mut Graph,
    limit: i64,
    price: &Buffer<i64>,
    discount: &Buffer<i64>,
    results: &Results,
) -> Result<()> {
    let groups = price.len().div_ceil(GROUP);
    let (tallies, starts) = (graph.scratch(2 * groups)?, graph.scratch(groups)?);
    let rows = Range::linear(groups * GROUP).local([GROUP]);
    graph.launch(tally(limit, price, discount, &tallies), rows);
    graph.launch(scan(&tallies, &starts, &results.totals), Range::linear(GROUP).local([GROUP]));
    graph.launch(compact(limit, price, discount, &starts, &results.price, &results.amount), rows);
    Ok(())
}

/// The amount to pay, in hundredths of the price's unit: the discount is in percent. Wraps around.
fn amount(price: i64, discount: i64) -> i64 {
    price.wrapping_mul(100i64.wrapping_sub(discount))
}

/// Cuts what is written to where the rows of every [`BATCH`] work-groups go.
fn parts<'a>(starts: &[i64], mut rest: &'a mut [i64]) -> Vec<&'a mut [i64]> {
    let mut parts = Vec::new();
    for batch in starts.windows(BATCH + 1).step_by(BATCH) {
        let (part, behind) = rest.split_at_mut((batch[BATCH] - batch[0]) as usize);
        parts.push(part);
        rest = behind;
    }
    parts.push(rest);
    parts
}
