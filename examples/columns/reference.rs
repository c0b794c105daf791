//! The same operator on Arrow's own kernels, and batches to compare with.

use std::sync::Arc;

use arrow_arith::aggregate::sum;
use arrow_arith::numeric::{mul_wrapping, sub_wrapping};
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, Int64Array, RecordBatch};
use arrow_ord::cmp::gt;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use arrow_select::filter::filter_record_batch;

use crate::Selected;
use crate::arrow_memory::output_schema;

/// The limit below which so many of a hundred prices of [`batch`] are.
pub const fn percentile(percent: i64) -> i64 {
    percent * 1000
}

/// A batch of pseudorandom numbers: prices from 1 to 100,000, discounts from 0 to 99.
pub fn batch(seed: u64, rows: usize) -> RecordBatch {
    let mut state = seed;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % limit) as i64
    };
    let price: Int64Array = (0..rows).map(|_| 1 + below(100_000)).collect();
    let discount: Int64Array = (0..rows).map(|_| below(100)).collect();
    of_columns(price, discount)
}

/// A batch as the operator takes it.
///
/// # Panics
/// When the columns have different lengths.
pub fn of_columns(price: Int64Array, discount: Int64Array) -> RecordBatch {
    let field = |name, column: &Int64Array| Field::new(name, DataType::Int64, column.null_count() > 0);
    let schema = Schema::new(vec![field("price", &price), field("discount", &discount)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(price), Arc::new(discount)])
        .expect("columns of one length")
}

/// The right result for a batch.
///
/// # Errors
/// The errors of Arrow's kernels, for columns that the operator does not take.
pub fn select(batch: &RecordBatch, limit: i64) -> Result<Selected, ArrowError> {
    let is_kept = gt(&batch.column(0), &Int64Array::new_scalar(limit))?;
    let kept = filter_record_batch(batch, &is_kept)?;
    let rest = sub_wrapping(&Int64Array::new_scalar(100), kept.column(1))?;
    let amount = mul_wrapping(kept.column(0), &rest)?;
    let sum = sum(amount.as_primitive::<Int64Type>()).unwrap_or(0);
    let batch = RecordBatch::try_new(output_schema(), vec![kept.column(0).clone(), amount])?;
    Ok(Selected { batch, sum })
}
