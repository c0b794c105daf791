//! The service: its routes, and what each answers.

use std::error::Error as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use image::ImageError;
use metrics_exporter_prometheus::PrometheusHandle;
use parking_lot::Mutex;
use wakegraph::service::ExecutablePool;
use wakegraph::{Device, Error, ErrorKind};

use crate::figures::Figures;
use crate::pipeline::{self, Desk};
use crate::tones::Tones;

/// The largest upload, in bytes.
const UPLOAD: usize = 16 << 20;

pub(crate) struct Options {
    /// Requests that run at a time.
    pub(crate) slots: usize,
    /// Requests that wait. More are refused.
    pub(crate) queue: usize,
    /// From when on a request is not worth starting any more work for.
    pub(crate) deadline: Duration,
    /// From when on a run counts as hanging.
    pub(crate) watchdog: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let [deadline, watchdog] = [5, 10].map(Duration::from_secs);
        Self { slots: 2, queue: 32, deadline, watchdog }
    }
}

pub(crate) struct App {
    device: Device,
    pool: ExecutablePool<Arc<Desk>>,
    figures: Mutex<Figures>,
    metrics: PrometheusHandle,
    options: Options,
}

type Shared = State<Arc<App>>;

impl App {
    pub(crate) fn new(
        device: Device,
        tones: Tones,
        metrics: PrometheusHandle,
        options: Options,
    ) -> Arc<Self> {
        let builder =
            ExecutablePool::builder().name("photos").device(&device, options.slots).queue(options.queue);
        let pool = builder.build(move |slot| pipeline::slot(&slot.device()?, &tones));
        Arc::new(Self { device, pool, figures: Mutex::default(), metrics, options })
    }

    /// Makes the executables of all slots, with their kernels.
    pub(crate) async fn warm_up(&self) -> wakegraph::Result<()> {
        self.pool.warm_up().await
    }

    /// Ends in an orderly way: takes no more requests, and waits until those that it has taken have their
    /// answers and the device has nothing left to do.
    pub(crate) async fn end(&self, limit: Duration) -> wakegraph::Result<()> {
        let start = Instant::now();
        self.pool.drain(limit).await?;
        self.device.shutdown(limit.saturating_sub(start.elapsed())).await
    }
}

pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(async || Html(include_str!("page.html"))))
        .route("/sample", get(async || include_bytes!("../data/astronaut.png").as_slice()))
        .route("/photo", post(develop).layer(DefaultBodyLimit::max(UPLOAD)))
        .route("/figures", get(figures))
        .route("/metrics", get(async |State(app): Shared| app.metrics.render()))
        .route("/livez", get(async || "alive"))
        .route("/readyz", get(ready))
        .with_state(app)
}

/// Develops a photo. When the client goes away, axum drops this future, and what has not started
/// never does.
async fn develop(State(app): Shared, upload: Result<Bytes, BytesRejection>) -> Result<Response, Failure> {
    let start = Instant::now();
    let deadline = start + app.options.deadline;
    let upload = upload.map_err(|error| match error.status() {
        status @ StatusCode::PAYLOAD_TOO_LARGE => Failure(status, "the upload is larger than 16 MiB".into()),
        status => Failure(status, error.body_text()),
    })?;

    let slot = app.pool.prepare().deadline(deadline).acquire().await?;
    *slot.upload.lock() = upload;
    let submit = slot.submit_with(|submit| submit.watchdog(app.options.watchdog));
    let mut run = submit.cancel_on_drop();
    (&mut run).await?;
    let png = std::mem::take(&mut *slot.answer.lock());

    let profile = run.profile().unwrap_or_default();
    app.figures.lock().record(start.elapsed(), profile);
    Ok(([(header::CONTENT_TYPE, "image/png")], png).into_response())
}

async fn figures(State(app): Shared) -> Html<String> {
    Html(app.figures.lock().html(app.pool.status()))
}

async fn ready(State(app): Shared) -> (StatusCode, String) {
    let health = app.device.health().borrow().clone();
    let status = if health.is_healthy() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, format!("{}: {health}", app.device.selector()))
}

/// An answer that is not a photo: its status, and what went wrong.
struct Failure(StatusCode, String);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let is_bad_image = error.source().is_some_and(|source| source.is::<ImageError>());
        let status = match error.kind() {
            ErrorKind::HostTaskFailed if is_bad_image => StatusCode::BAD_REQUEST,
            ErrorKind::HostTaskFailed => StatusCode::BAD_GATEWAY,
            kind => StatusCode::from_u16(kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        };
        match error.source() {
            Some(source) if is_bad_image => Self(status, format!("this is no picture: {source}")),
            _ => Self(status, error.to_string()),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self(status, message) = self;
        (status, format!("{message}\n")).into_response()
    }
}
