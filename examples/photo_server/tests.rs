//! The service from outside: right photos, and the right answers when something is wrong.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::future::Future;
use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use image::{DynamicImage, ImageFormat, RgbImage, imageops};
use imageproc::filter::filter;
use imageproc::kernel::Kernel;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tower::ServiceExt;
use wakegraph::testing::{FakeControl, FakeDevice, FakeOptions};
use wakegraph::{BoxError, Device};

use crate::app::{self, App, Options};
use crate::tones::Tones;

const HOUR: Duration = Duration::from_secs(3600);

/// No test reaches a limit unless it is about that limit.
fn options() -> Options {
    Options { slots: 1, queue: 1, deadline: HOUR, watchdog: HOUR }
}

fn router(device: Device, tones: Tones, options: Options) -> Router {
    app::router(app(device, tones, options))
}

fn app(device: Device, tones: Tones, options: Options) -> Arc<App> {
    App::new(device, tones, PrometheusBuilder::new().build_recorder().handle(), options)
}

/// A device whose work ends when the control says so.
fn held() -> (Device, FakeControl) {
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
    (Device::from_hal(device), control)
}

/// A service that should not be asked: it counts how often it is.
async fn counted_tones() -> (Tones, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tones = Tones::new(listener.local_addr().unwrap());
    let count = asked.clone();
    let broken = Router::new().fallback(async move || {
        count.fetch_add(1, Ordering::SeqCst);
        StatusCode::INTERNAL_SERVER_ERROR
    });
    tokio::spawn(async move { axum::serve(listener, broken).await });
    (tones, asked)
}

async fn ask(router: &Router, request: Request<Body>) -> (StatusCode, Bytes) {
    let answer = router.clone().oneshot(request).await.unwrap();
    (answer.status(), answer.into_body().collect().await.unwrap().to_bytes())
}

async fn post(router: &Router, photo: impl Into<Body>) -> (StatusCode, String) {
    let (status, body) = ask(router, Request::post("/photo").body(photo.into()).unwrap()).await;
    (status, String::from_utf8_lossy(&body).into_owned())
}

async fn get(router: &Router, path: &str) -> (StatusCode, String) {
    let (status, body) = ask(router, Request::get(path).body(Body::empty()).unwrap()).await;
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// Waits until the figures of the page say so.
async fn until(router: &Router, figure: &str, value: usize) {
    let wanted = format!("<dt>{figure}</dt><dd>{value}</dd>");
    while !get(router, "/figures").await.1.contains(&wanted) {
        tokio::task::yield_now().await;
    }
}

/// Waits until the device holds the kernels of a request. It holds the fill of the bins from the
/// start.
async fn until_held(control: &FakeControl) {
    while control.pending() < 2 {
        tokio::task::yield_now().await;
    }
}

fn file(picture: &RgbImage, format: ImageFormat) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    picture.write_to(&mut file, format).unwrap();
    file.into_inner()
}

fn small() -> Vec<u8> {
    file(&RgbImage::from_fn(7, 5, |x, y| image::Rgb([20 * x as u8, 30 * y as u8, 99])), ImageFormat::Png)
}

/// What the answer should be, by `image` and `imageproc`, and by the curves of the service itself.
async fn reference(picture: &RgbImage, tones: &str) -> RgbImage {
    let weights = Kernel::new(&[-1, -1, -1, -1, 16, -1, -1, -1, -1], 3, 3);
    let sharp: RgbImage = filter(picture, weights, |sum: i32| (sum / 8).clamp(0, 255) as u8);
    let mut counts = [0u32; 256];
    imageops::grayscale(&sharp).pixels().for_each(|pixel| counts[usize::from(pixel.0[0])] += 1);
    let body: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
    let client = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::post(format!("{tones}/tones")).body(Full::<Bytes>::from(body)).unwrap();
    let curves = client.request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let mut toned = sharp;
    for pixel in toned.pixels_mut() {
        pixel.0 = [0, 1, 2].map(|colour| curves[256 * colour + usize::from(pixel.0[colour])]);
    }
    toned
}

/// Drivers for tests without hardware take all commands and carry out none.
async fn computes(device: &Device) -> bool {
    let (queue, word) = (device.queue().unwrap(), device.buffer::<u32>(1).unwrap());
    queue.fill(&word, 7).await.unwrap();
    word.to_vec().await.unwrap() == [7]
}

#[tokio::test]
async fn photos_come_out_as_they_should() {
    let (tones, address) = crate::start_tones().await.unwrap();
    let odd = RgbImage::from_fn(33, 17, |x, y| image::Rgb([x * 7, y * 13, x * y].map(|value| value as u8)));
    let astronaut = image::load_from_memory(include_bytes!("../data/astronaut.png")).unwrap().into_rgb8();
    let one = RgbImage::from_pixel(1, 1, image::Rgb([200, 3, 90]));
    let mut photos = Vec::new();
    for (picture, format) in [
        (odd, ImageFormat::Png),
        (astronaut, ImageFormat::Png),
        (one.clone(), ImageFormat::Png),
        (one, ImageFormat::Jpeg),
    ] {
        let upload = file(&picture, format);
        let decoded = image::load_from_memory(&upload).unwrap().into_rgb8();
        photos.push((upload, reference(&decoded, &format!("http://{address}")).await));
    }
    for device in Device::all().unwrap() {
        let (name, has_times) = (device.selector().to_owned(), device.capabilities().profiling);
        if !computes(&device).await {
            eprintln!("{name} is left out: its driver has no hardware, and computes nothing");
            continue;
        }
        let router = router(device, tones.clone(), options());
        for (upload, expected) in &photos {
            let request = Request::post("/photo").body(upload.clone().into()).unwrap();
            let (status, answer) = ask(&router, request).await;
            assert_eq!(status, StatusCode::OK, "{name}: {}", String::from_utf8_lossy(&answer));
            let answer = image::load_from_memory(&answer).unwrap();
            assert!(matches!(answer, DynamicImage::ImageRgb8(_)));
            assert!(answer.into_rgb8() == *expected, "{:?} on {name}", expected.dimensions());
        }
        let (_, figures) = get(&router, "/figures").await;
        assert!(figures.contains("<dt>answered</dt><dd>4</dd>"), "{figures}");
        assert_eq!(figures.contains("ask for tones"), has_times, "{figures}");
        assert_eq!(get(&router, "/readyz").await.0, StatusCode::OK);
    }
}

#[tokio::test]
async fn photos_that_are_too_large_are_scaled_down() {
    let (tones, _) = crate::start_tones().await.unwrap();
    let router = router(Device::open("host:0").unwrap(), tones, options());
    let upload = file(&RgbImage::new(4000, 1000), ImageFormat::Png);
    let (status, answer) = ask(&router, Request::post("/photo").body(upload.into()).unwrap()).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(image::load_from_memory(&answer).unwrap().into_rgb8().dimensions(), (2880, 720));
}

#[tokio::test]
async fn uploads_that_are_no_pictures_are_refused() {
    let (tones, asked) = counted_tones().await;
    let router = router(Device::open("host:0").unwrap(), tones, options());
    let mut half = small();
    half.truncate(half.len() / 2);
    for upload in [b"".to_vec(), b"not a picture".to_vec(), half] {
        let (status, message) = post(&router, upload).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{message}");
        assert!(message.starts_with("this is no picture: "), "{message}");
    }
    let (status, message) = post(&router, vec![0; 17 << 20]).await;
    assert_eq!((status, &*message), (StatusCode::PAYLOAD_TOO_LARGE, "the upload is larger than 16 MiB\n"));
    assert_eq!(asked.load(Ordering::SeqCst), 0);

    // The slot is as good as before; now the other service fails.
    let (status, message) = post(&router, small()).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert!(message.contains("ask for tones") && message.contains("500"), "{message}");
}

#[tokio::test]
async fn overload_is_answered_at_once() {
    let ((device, control), (tones, _)) = (held(), counted_tones().await);
    let router = router(device, tones, options());
    let [first, second] = [(); 2].map(|()| {
        let router = router.clone();
        async move { post(&router, small()).await }
    });
    let first = tokio::spawn(first);
    until_held(&control).await;
    let second = tokio::spawn(second);
    until(&router, "waiting", 1).await;
    let (status, message) = post(&router, small()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(message.contains("no slot of the pool 'photos' is free"), "{message}");
    // The other two get their turn; they fail for another reason.
    for request in [first, second] {
        until_held(&control).await;
        control.complete_all();
        assert_eq!(request.await.unwrap().0, StatusCode::BAD_GATEWAY);
    }
}

#[tokio::test]
async fn a_request_whose_client_has_gone_is_cancelled() {
    let ((device, control), (tones, asked)) = (held(), counted_tones().await);
    let router = router(device, tones, options());
    let gone = {
        let router = router.clone();
        tokio::spawn(async move { post(&router, small()).await })
    };
    until_held(&control).await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    control.complete_all();
    until(&router, "in flight", 0).await;
    assert_eq!(asked.load(Ordering::SeqCst), 0, "what had not started never did");
}

/// The clock is tokio's, and paused once a thread has made the slot: it moves when nothing else can happen.
#[tokio::test]
async fn a_kernel_that_spins_stalls_nothing_else() {
    let ((device, control), (tones, _)) = (held(), counted_tones().await);
    let router = router(device, tones, Options { watchdog: Duration::from_secs(10), ..options() });
    let request = {
        let router = router.clone();
        tokio::spawn(async move { post(&router, small()).await })
    };
    until_held(&control).await;
    tokio::time::pause();
    for second in 0..30 {
        assert_eq!(get(&router, "/livez").await.0, StatusCode::OK);
        assert_eq!(get(&router, "/metrics").await.0, StatusCode::OK);
        let (status, health) = get(&router, "/readyz").await;
        let expected = if second <= 10 { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        assert!(second == 10 || status == expected, "{second}: {health}");
        sleep(Duration::from_secs(1)).await;
        assert_eq!(control.pending(), 2, "the kernels are held");
    }
    let (status, message) = request.await.unwrap();
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    assert!(message.contains("sharpen"), "the error names the node: {message}");
    assert!(get(&router, "/readyz").await.1.contains("stalled"));

    // It was slow, not dead.
    control.complete_all();
    while get(&router, "/readyz").await.0 != StatusCode::OK {
        tokio::task::yield_now().await;
    }
}

/// A service that listens, with a request whose kernels its device holds, and the word that stops it.
struct Stopping {
    control: FakeControl,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), BoxError>>,
    request: JoinHandle<StatusCode>,
}

impl Stopping {
    async fn new() -> Self {
        let (stop, stopped) = oneshot::channel();
        let (control, served, request) = serve_held(async move { _ = stopped.await }, crate::GRACE).await;
        Self { control, stop, served, request }
    }
}

/// A service that listens, with a request whose kernels its device holds.
async fn serve_held(
    stop: impl Future<Output = ()> + Send + 'static,
    grace: Duration,
) -> (FakeControl, JoinHandle<Result<(), BoxError>>, JoinHandle<StatusCode>) {
    let ((device, control), (tones, _)) = (held(), counted_tones().await);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(crate::serve_until(listener, app(device, tones, options()), stop, grace));
    let request = tokio::spawn(async move {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let request = Request::post(format!("http://{address}/photo"));
        let request = request.body(Full::<Bytes>::from(small())).unwrap();
        client.request(request).await.unwrap().status()
    });
    until_held(&control).await;
    (control, served, request)
}

#[tokio::test]
async fn what_was_accepted_is_answered_before_it_ends() {
    let Stopping { control, stop, served, request } = Stopping::new().await;
    stop.send(()).unwrap();
    tokio::task::yield_now().await;
    assert!(!served.is_finished());
    control.complete_all();
    // It has its answer, which is that the other service fails.
    assert_eq!(request.await.unwrap(), StatusCode::BAD_GATEWAY);
    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_device_that_hangs_makes_the_end_fail() {
    let Stopping { control: _control, stop, served, request } = Stopping::new().await;
    tokio::time::pause();
    stop.send(()).unwrap();
    let error = served.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("connections were open"), "{error}");
    request.abort();
}

/// Word of a process whose device holds a request.
#[cfg(unix)]
const HOLDS: &str = "the device holds a request";

#[test]
#[cfg(unix)]
#[ignore = "runs in a process that the next test starts"]
fn a_process_whose_device_hangs() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let outcome = runtime.block_on(async {
        let stop = crate::signal::stop().unwrap();
        let (_control, served, _request) = serve_held(stop, Duration::from_millis(100)).await;
        println!("{HOLDS}");
        served.await.unwrap()
    });
    drop(runtime);
    std::process::exit(crate::exit_code(outcome).into());
}

#[test]
#[cfg(unix)]
fn sigterm_ends_a_process_whose_device_hangs() {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::a_process_whose_device_hangs", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(HOLDS)));
    let id = process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert_eq!(process.wait().unwrap().code(), Some(1));
}

#[tokio::test]
async fn a_lost_device_takes_the_service_out_of_rotation() {
    let ((device, control), (tones, _)) = (held(), counted_tones().await);
    let router = router(device, tones, options());
    let request = {
        let router = router.clone();
        tokio::spawn(async move { post(&router, small()).await })
    };
    until_held(&control).await;
    assert_eq!(get(&router, "/readyz").await.0, StatusCode::OK);
    control.lose_device();
    assert_eq!(request.await.unwrap().0, StatusCode::SERVICE_UNAVAILABLE);
    let (status, health) = get(&router, "/readyz").await;
    assert!(status == StatusCode::SERVICE_UNAVAILABLE && health.contains("lost"), "{health}");
    assert_eq!(post(&router, small()).await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(get(&router, "/livez").await.0, StatusCode::OK);
}

/// The loops that the example `photo` compares its results with.
#[path = "../photo/reference.rs"]
mod reference;

#[test]
fn the_references_of_the_example_photo_are_right() {
    use image::GrayImage;
    use imageproc::contrast::{self, ThresholdType};
    use imageproc::filter::horizontal_filter;
    use imageproc::{filter::vertical_filter, gradients, stats};

    let picture = image::load_from_memory(include_bytes!("../data/astronaut.png")).unwrap().into_rgb8();
    let (width, height) = picture.dimensions();
    let columns = width as usize;
    let image = |pixels| GrayImage::from_raw(width, height, pixels).unwrap();
    let largest_difference = |ours: &[u8], theirs: &[u8]| {
        assert_eq!(ours.len(), theirs.len());
        ours.iter().zip(theirs).map(|(ours, theirs)| ours.abs_diff(*theirs)).max().unwrap()
    };

    let gray = image(reference::grayscale(&picture));
    assert_eq!(gray, imageops::grayscale(&picture));
    let taps = [0.25, 0.5, 0.25];
    let rows = reference::blur_rows(&gray, columns, &taps);
    assert!(largest_difference(&rows, &horizontal_filter(&gray, &taps)) <= 1);
    let blurred = image(reference::blur_columns(&gray, columns, &taps));
    assert!(largest_difference(&blurred, &vertical_filter(&gray, &taps)) <= 1);
    let gradient = image(reference::sobel(&blurred, columns));
    let sobel: Vec<u8> =
        gradients::sobel_gradients(&blurred).iter().map(|&slope| slope.min(255) as u8).collect();
    assert!(largest_difference(&gradient, &sobel) <= 1);
    assert_eq!(reference::histogram(&gradient), stats::histogram(&gradient).channels[0]);
    let level = reference::otsu_level(&gradient);
    assert_eq!(level, contrast::otsu_level(&gradient));
    let white = contrast::threshold(&gradient, level, ThresholdType::Binary);
    assert_eq!(image(reference::threshold(&gradient, level)), white);
}
