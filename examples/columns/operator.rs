//! The operator: a stream of record batches in, a stream of what it selects of each out.

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use futures::{Stream, StreamExt as _};
use tokio::task::spawn_blocking;
use wakegraph::service::{ExecutablePool, PoolGuard};
use wakegraph::update::Applied;
use wakegraph::{BoxError, Device, FinalizeOptions, Graph, Result, Submission};

use crate::arrow_memory::{Columns, export, import, output_schema};
use crate::kernels::{self, Results};

/// Batches that the device has at a time: one is copied while another is computed.
const IN_FLIGHT: usize = 2;

/// The selected rows of a batch.
#[derive(Debug)]
pub struct Selected {
    /// `price` and `amount`, which is `price * (100 - discount)`, of the rows in their order. It holds memory
    /// for all rows of the input: copy what is to be kept for long.
    pub batch: RecordBatch,
    /// The sum of the amounts.
    pub sum: i64,
}

/// Selects the rows whose price is above `limit`, from batches with the columns `price` and `discount` of
/// `Int64`. Batches with nulls are refused. Arithmetic wraps around.
///
/// Results come in the order of the input, whose errors are passed on in their place. At most two batches are
/// in flight: the next is taken from the input when a result has been given. No poll waits for the device.
/// Dropping the stream cancels what is in flight.
///
/// Needs a runtime of tokio. The stream keeps the memory of the last two batches until it has others.
pub fn select(
    input: impl Stream<Item = Result<RecordBatch, ArrowError>>,
    device: &Device,
    limit: i64,
) -> impl Stream<Item = Result<Selected, ArrowError>> {
    let pool = ExecutablePool::builder().device(device, IN_FLIGHT).build(move |slot| {
        // Batches take its place, with the memory that it has on the device.
        let device = slot.device()?;
        let (graph, _) = graph(&device, limit, &Columns::one_row())?;
        Ok((graph.finalize_with(FinalizeOptions::new().updatable(true))?, device))
    });
    let select = move |batch: Result<RecordBatch, ArrowError>| {
        let pool = pool.clone();
        async move {
            let columns = Columns::of(&batch?)?;
            let outcome = select_in_slot(&pool, limit, columns).await;
            outcome.map_err(|error| ArrowError::ExternalError(Box::new(error)))
        }
    };
    input.map(select).buffered(IN_FLIGHT)
}

async fn select_in_slot(pool: &ExecutablePool<Device>, limit: i64, columns: Columns) -> Result<Selected> {
    if columns.rows() == 0 {
        return Ok(Selected { batch: RecordBatch::new_empty(output_schema()), sum: 0 });
    }
    let slot = pool.acquire().await?;
    // To pin memory, and to get some, may take milliseconds.
    let submitted = spawn_blocking(move || submit(&slot, limit, &columns)).await;
    let (update, run, results) = submitted.map_err(BoxError::from)??;
    update.await?;
    run.await?;
    let (rows, sum) = {
        let totals = results.totals.read().await;
        (totals[0] as usize, totals[1])
    };
    let columns = vec![export(results.price, rows).await, export(results.amount, rows).await];
    let batch = RecordBatch::try_new(output_schema(), columns).map_err(BoxError::from)?;
    Ok(Selected { batch, sum })
}

/// Has a slot work on a batch.
fn submit(slot: &PoolGuard<Device>, limit: i64, columns: &Columns) -> Result<(Applied, Submission, Results)> {
    let (graph, results) = graph(slot, limit, columns)?;
    Ok((slot.executable().update_from(&graph), slot.submit().cancel_on_drop(), results))
}

fn graph(device: &Device, limit: i64, columns: &Columns) -> Result<(Graph, Results)> {
    let (mut graph, rows) = (Graph::new(device), columns.rows());
    let price = import(&mut graph, device, &columns.price)?;
    let discount = import(&mut graph, device, &columns.discount)?;
    let results = Results {
        price: device.host_buffer(rows)?,
        amount: device.host_buffer(rows)?,
        totals: device.host_buffer(2)?,
    };
    kernels::add(&mut graph, limit, &price, &discount, &results)?;
    Ok((graph, results))
}
