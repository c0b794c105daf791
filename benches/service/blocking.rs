//! Threads of tokio's blocking pool behind a semaphore, with a stream or queue for each permit.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::by_hand::{ByHand, Worker};
use crate::shape::{Answer, Shape};

pub(crate) struct Blocking {
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Worker>>>,
}

/// As many permits as there are cores.
pub(crate) fn start(device: &ByHand, shape: Shape) -> Blocking {
    let permits = std::thread::available_parallelism().map_or(1, usize::from);
    let idle = (0..permits).map(|_| device.worker(shape, 1)).collect();
    Blocking { permits: Arc::new(Semaphore::new(permits)), idle: Arc::new(Mutex::new(idle)) }
}

pub(crate) async fn call(blocking: &Blocking, body: Bytes) -> Answer {
    const FAILED: Answer = Err(StatusCode::INTERNAL_SERVER_ERROR);
    let Ok(permit) = blocking.permits.clone().acquire_owned().await else { return FAILED };
    let idle = blocking.idle.clone();
    let run = move || {
        let mut worker = idle.lock().pop().expect("a worker for each permit");
        let mut answer = FAILED;
        worker.run(vec![(body, |result| answer = result)]);
        idle.lock().push(worker);
        // Not before, as the caller may leave.
        drop(permit);
        answer
    };
    tokio::task::spawn_blocking(run).await.unwrap_or(FAILED)
}
