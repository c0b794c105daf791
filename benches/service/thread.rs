//! A thread that owns the device, a channel, and a oneshot for each request. It takes what waits, up to a
//! batch.

use axum::body::Bytes;
use axum::http::StatusCode;
use tokio::sync::{mpsc, oneshot};

use crate::by_hand::ByHand;
use crate::shape::{Answer, ITEMS, QUEUE, Shape};

pub(crate) type Request = (Bytes, oneshot::Sender<Answer>);

/// Starts the thread, which ends when the last sender is dropped.
pub(crate) fn start(device: &ByHand, shape: Shape) -> mpsc::Sender<Request> {
    let (sender, mut requests) = mpsc::channel::<Request>(QUEUE);
    let mut worker = device.worker(shape, ITEMS);
    std::thread::spawn(move || {
        let mut batch = Vec::new();
        while requests.blocking_recv_many(&mut batch, ITEMS) > 0 {
            let jobs = batch.drain(..).map(|(body, caller)| (body, move |answer| drop(caller.send(answer))));
            worker.run(jobs.collect());
        }
    });
    sender
}

pub(crate) async fn call(thread: &mpsc::Sender<Request>, body: Bytes) -> Answer {
    let (caller, answer) = oneshot::channel();
    thread.try_send((body, caller)).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    answer.await.unwrap_or(Err(StatusCode::INTERNAL_SERVER_ERROR))
}
