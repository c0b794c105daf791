//! Arrow's memory in graphs, and the device's results as memory of Arrow: without a copy on the host.
#![expect(unsafe_code, reason = "kernels of the CPU read Arrow's memory in place")]

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, ArrayRef, Int64Array, RecordBatch};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use wakegraph::{Buffer, Device, Graph, HostBuffer, Result};

/// The columns of a batch that the operator reads.
pub(crate) struct Columns {
    pub(crate) price: ScalarBuffer<i64>,
    pub(crate) discount: ScalarBuffer<i64>,
}

impl Columns {
    /// # Errors
    /// When a column is missing, of another type than `Int64`, or has nulls.
    pub(crate) fn of(batch: &RecordBatch) -> Result<Self, ArrowError> {
        Ok(Self { price: column(batch, "price")?, discount: column(batch, "discount")? })
    }

    /// A row of zeroes.
    pub(crate) fn one_row() -> Self {
        let zero = || ScalarBuffer::from(vec![0]);
        Self { price: zero(), discount: zero() }
    }

    pub(crate) fn rows(&self) -> usize {
        self.price.len()
    }
}

fn column(batch: &RecordBatch, name: &str) -> Result<ScalarBuffer<i64>, ArrowError> {
    let column = batch
        .column_by_name(name)
        .ok_or_else(|| ArrowError::SchemaError(format!("the batch has no column '{name}'")))?;
    let numbers = column.as_primitive_opt::<Int64Type>().ok_or_else(|| {
        ArrowError::SchemaError(format!("column '{name}' is of {}, not of Int64", column.data_type()))
    })?;
    match numbers.null_count() {
        0 => Ok(numbers.values().clone()),
        nulls => Err(ArrowError::ComputeError(format!(
            "column '{name}' has {nulls} nulls, which the operator does not take"
        ))),
    }
}

/// The schema of what the operator gives.
pub(crate) fn output_schema() -> SchemaRef {
    let field = |name| Field::new(name, DataType::Int64, false);
    Arc::new(Schema::new(vec![field("price"), field("amount")]))
}

/// The values where kernels read them: on the CPU in place, elsewhere in memory of the device, to which the
/// graph copies them from where they are.
pub(crate) fn import(graph: &mut Graph, device: &Device, values: &ScalarBuffer<i64>) -> Result<Buffer<i64>> {
    if device.info().backend == "host" {
        let address = values.as_ptr().expose_provenance();
        // SAFETY: the clone keeps the values, which nobody writes: neither Arrow nor one of our kernels.
        return unsafe { device.import(address, values.len(), values.clone()) };
    }
    let on_device = graph.scratch(values.len())?;
    match device.register_source(values.clone()) {
        Ok(source) => graph.copy(&source, &on_device),
        // The input repeats a batch, or a part of one, that is registered for as long as a slot has it.
        Err(_) => graph.copy(&device.host_buffer_from(values)?, &on_device),
    };
    Ok(on_device)
}

/// The first elements of a result, which become a column where they are.
pub(crate) async fn export(results: HostBuffer<i64>, rows: usize) -> ArrayRef {
    let bytes = Bytes::from_owner(results.read().await.into_bytes());
    Arc::new(Int64Array::new(ScalarBuffer::new(bytes.into(), 0, rows), None))
}
