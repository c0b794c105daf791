//! Real processes, real connections: deadlines and cancellation reach the device, and a worker that is
//! killed or loses its device costs no request.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::future::{Future, pending};
use std::path::Path;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use wakegraph::Device;
use wakegraph::testing::{FakeControl, FakeDevice, FakeOptions};
use wakegraph_cluster::processes::{Cluster, connect, kill_and_restart};
use wakegraph_cluster::protocol::smoother_client::SmootherClient;
use wakegraph_cluster::protocol::{SmoothRequest, StatusReply, StatusRequest};
use wakegraph_cluster::smoother::{HEIGHT, WIDTH, expected};
use wakegraph_cluster::{balance, front, worker};

/// More than a device does in a lifetime.
const FOR_EVER: u32 = u32::MAX;

/// A limit that only a hang reaches.
async fn in_time<F: Future>(what: F) -> F::Output {
    timeout(Duration::from_secs(100), what).await.expect("it hangs")
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_cluster"))
}

fn smooth(rounds: u32) -> Request<SmoothRequest> {
    Request::new(SmoothRequest { pixels: vec![7; WIDTH * HEIGHT], rounds })
}

async fn statuses(workers: &[Channel]) -> Vec<StatusReply> {
    let ask = async |channel: &Channel| {
        SmootherClient::new(channel.clone()).status(StatusRequest {}).await.unwrap().into_inner()
    };
    join_all(workers.iter().map(ask)).await
}

/// Waits until the figures of the workers, added up, are so.
async fn until(workers: &[Channel], mut is_so: impl FnMut(u64, u64) -> bool) -> Vec<StatusReply> {
    loop {
        let all = statuses(workers).await;
        let sum = |figure: fn(&StatusReply) -> u64| all.iter().map(figure).sum();
        if is_so(sum(|one| one.present), sum(|one| one.in_flight)) {
            return all;
        }
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_killed_worker_costs_no_request() {
    in_time(async {
        let mut cluster = Cluster::start(program(), "host:0", 3).await.unwrap();
        let figures = kill_and_restart(&mut cluster, 8, 3, 60).await.unwrap();
        println!("{figures}");
        assert_eq!(figures.failures, [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn deadlines_and_cancellation_reach_the_device() {
    in_time(async {
        let cluster = Cluster::start(program(), "host:0", 2).await.unwrap();
        let workers = cluster.workers.iter().map(|worker| connect(worker.address));
        let workers: Vec<_> = join_all(workers).await.into_iter().map(Result::unwrap).collect();
        let mut client = SmootherClient::new(connect(cluster.front.address).await.unwrap());
        assert_eq!(
            client.smooth(smooth(1)).await.unwrap().into_inner().pixels,
            expected(&[7; WIDTH * HEIGHT], 1)
        );

        let mut late = smooth(FOR_EVER);
        late.set_timeout(Duration::from_millis(300));
        let status = client.smooth(late).await.unwrap_err();
        assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status}");
        until(&workers, |present, in_flight| present == 0 && in_flight == 0).await;

        let mut caller = client.clone();
        let call = tokio::spawn(async move { caller.smooth(smooth(FOR_EVER)).await });
        until(&workers, |_, in_flight| in_flight == 1).await;
        call.abort();
        let figures = until(&workers, |present, in_flight| present == 0 && in_flight == 0).await;
        assert_eq!(
            figures
                .iter()
                .map(|one| (one.answered, one.given_up))
                .fold((0, 0), |sum, one| { (sum.0 + one.0, sum.1 + one.1) }),
            (1, 2)
        );
        // The slots are free again.
        for _ in 0..8 {
            client.smooth(smooth(2)).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn bad_requests_are_not_retried() {
    in_time(async {
        let cluster = Cluster::start(program(), "host:0", 1).await.unwrap();
        let mut client = SmootherClient::new(connect(cluster.front.address).await.unwrap());
        let status = client.smooth(SmoothRequest { pixels: vec![1], rounds: 1 }).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    })
    .await;
}

/// A worker in this process. Gives its address.
async fn serve(device: Device) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { worker::serve(device, 2, listener, pending()).await.unwrap() });
    address
}

fn fake() -> (Device, FakeControl) {
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
    (Device::from_hal(device), control)
}

#[tokio::test]
async fn a_health_client_hears_of_a_lost_device() {
    in_time(async {
        let (device, control) = fake();
        let channel = connect(serve(device).await).await.unwrap();
        let request = HealthCheckRequest { service: worker::SERVICE.to_owned() };
        let mut health = HealthClient::new(channel.clone()).watch(request).await.unwrap().into_inner();
        // Before the slots are made, the name may not be known yet.
        while health.message().await.unwrap().unwrap().status() != ServingStatus::Serving {}

        let mut client = SmootherClient::new(channel);
        let call = tokio::spawn(async move { client.smooth(smooth(1)).await });
        while control.pending() == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        let lost = Instant::now();
        control.lose_device();
        assert_eq!(health.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
        println!("NOT_SERVING after {:.1?}", lost.elapsed());
        assert_eq!(call.await.unwrap().unwrap_err().code(), Code::Unavailable);
    })
    .await;
}

#[tokio::test]
async fn requests_of_a_lost_device_go_to_another_worker() {
    in_time(async {
        let (device, control) = fake();
        let addresses = [serve(device).await, serve(Device::open("host:0").unwrap()).await];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(front::serve(balance::workers(addresses), listener));
        let client = SmootherClient::new(connect(address).await.unwrap());
        let mut calls = Vec::new();
        while control.pending() == 0 {
            let mut client = client.clone();
            calls.push(tokio::spawn(async move { client.smooth(smooth(3)).await }));
            sleep(Duration::from_millis(1)).await;
        }
        control.lose_device();
        for call in calls {
            let reply = call.await.unwrap().unwrap().into_inner();
            assert_eq!(reply.pixels, expected(&[7; WIDTH * HEIGHT], 3));
        }
    })
    .await;
}
