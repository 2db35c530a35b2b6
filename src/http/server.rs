//! The listening server: starting, the way of one request, stopping.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::http::Method;
use actix_web::http::header::{AUTHORIZATION, COOKIE, HeaderName, ORIGIN};
use actix_web::{HttpRequest, HttpResponse, web};
use futures_util::StreamExt;
use settee_actors::coordinator::Coordinator;
use tokio::sync::{SetOnce, watch};
use tracing::Instrument;

use crate::config_server::ConfigHandle;

use super::authenticate::{self, Authentication, Identity};
use super::cors::{CorsPolicy, Preflight};
use super::dispatch;
use super::error::HttpError;
use super::live::Live;
use super::outside;
use super::params::Query;
use super::reply::{self, Handled, RequestId, X_COUCH_REQUEST_ID};
use super::request::{Request, Verb, header, known_header};
use super::router::{Segments, Target, route};
use super::stats::HttpCounters;
use super::uuids::UuidMaker;

/// How long requests in flight may take after a graceful stop was asked for, in seconds.
const SHUTDOWN_SECONDS: u64 = 30;
/// How long an idle connection is kept.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Most bytes of an unread body that are read and forgotten before a refusal.
const DRAIN_BYTES_MAX: u64 = 1024 * 1024;

const X_HTTP_METHOD_OVERRIDE: HeaderName = HeaderName::from_static("x-http-method-override");
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// What the server is started with.
pub struct HttpDeps {
    /// Everything about databases.
    pub coordinator: Coordinator,
    /// The configuration; read anew for each request.
    pub config: ConfigHandle,
    /// Worker threads; `None` for one per core.
    pub workers: Option<usize>,
    /// Requests that somebody may have to log in for wait until this is set; `None` when logging in is possible now.
    pub admins_ready: Option<Arc<SetOnce<()>>>,
}

/// What all requests of one server share.
pub struct App {
    /// Everything about databases.
    pub coordinator: Coordinator,
    /// The configuration.
    pub config: ConfigHandle,
    /// Verified credentials and lockouts.
    pub authentication: Authentication,
    /// Makes ids for documents that come without one.
    pub uuids: UuidMaker,
    /// What this layer counts.
    pub counters: Arc<HttpCounters>,
    admins_ready: Option<Arc<SetOnce<()>>>,
    stopping: watch::Sender<bool>,
}

impl App {
    /// Tells a waiting feed when the server is about to stop.
    pub fn stopping(&self) -> Stopping {
        Stopping(self.stopping.subscribe())
    }
}

/// Resolves when the server is about to stop.
#[derive(Debug)]
pub struct Stopping(watch::Receiver<bool>);

impl Stopping {
    /// Waits for the stop.
    pub async fn wait(&mut self) {
        // An error means that the server is gone, which is a stop as well.
        let _ = self.0.wait_for(|stopping| *stopping).await;
    }
}

/// Starts servers.
pub struct HttpServer;

impl HttpServer {
    /// Serves on a listener that is bound already, so that port 0 is possible.
    ///
    /// # Errors
    /// When the listener's address cannot be read, the server's thread cannot be started, or the operating system has no
    /// random numbers.
    pub fn start(deps: HttpDeps, listener: TcpListener) -> io::Result<HttpHandle> {
        let address = listener.local_addr()?;
        let (stopping, _) = watch::channel(false);
        let authentication = Authentication::new(&deps.config.settings()).map_err(io::Error::other)?;
        let workers = deps
            .workers
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(2, std::num::NonZero::get));
        let app = Arc::new(App {
            coordinator: deps.coordinator,
            config: deps.config,
            authentication,
            uuids: UuidMaker::default(),
            counters: Arc::new(HttpCounters::default()),
            admins_ready: deps.admins_ready,
            stopping,
        });
        let shared = app.clone();
        let (started, ready) = std::sync::mpsc::sync_channel::<io::Result<ServerHandle>>(1);
        let thread = std::thread::Builder::new()
            .name("settee-http".to_owned())
            .spawn(move || {
                actix_rt::System::new().block_on(run(shared, listener, workers, started));
            })?;
        let server = ready
            .recv()
            .map_err(|_| io::Error::other("the HTTP server did not start"))??;
        tracing::info!(%address, workers, "listening");
        Ok(HttpHandle {
            address,
            server,
            app,
            thread: Some(thread),
        })
    }
}

async fn run(
    app: Arc<App>,
    listener: TcpListener,
    workers: usize,
    started: std::sync::mpsc::SyncSender<io::Result<ServerHandle>>,
) {
    let server = actix_web::HttpServer::new(move || {
        actix_web::App::new()
            .app_data(web::Data::from(app.clone()))
            .default_service(web::to(entry))
    })
    .workers(workers)
    .keep_alive(KEEP_ALIVE)
    .client_request_timeout(HEAD_TIMEOUT)
    .h1_allow_half_closed(false)
    .tcp_nodelay(true)
    .shutdown_timeout(SHUTDOWN_SECONDS)
    .disable_signals()
    .listen(listener)
    .map(actix_web::HttpServer::run);
    match server {
        Ok(server) => {
            // The receiver waits in `start`; when it is gone there is nobody to serve for.
            if started.send(Ok(server.handle())).is_ok()
                && let Err(error) = server.await
            {
                tracing::error!(%error, "the HTTP server failed");
            }
        }
        Err(error) => {
            let _ = started.send(Err(error));
        }
    }
}

/// A running server.
pub struct HttpHandle {
    address: SocketAddr,
    server: ServerHandle,
    app: Arc<App>,
    thread: Option<JoinHandle<()>>,
}

impl HttpHandle {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops listening and ends waiting feeds. Requests in flight are finished when `graceful`, otherwise cut off.
    pub async fn stop(mut self, graceful: bool) {
        self.app.stopping.send_replace(true);
        self.server.stop(graceful).await;
        if let Some(thread) = self.thread.take() {
            // The server has ended, so the thread is about to; joining it is a matter of microseconds.
            if thread.join().is_err() {
                tracing::error!("the HTTP server's thread panicked");
            }
        }
        tracing::info!(address = %self.address, "stopped listening");
    }
}

impl Drop for HttpHandle {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.app.stopping.send_replace(true);
            drop(self.server.stop(false));
        }
    }
}

/// One request, with a span of its own. The query is left out of it on purpose: it may carry what must not be in a log.
async fn entry(http: HttpRequest, payload: web::Payload) -> HttpResponse {
    let Some(app) = http
        .app_data::<web::Data<App>>()
        .map(|data| data.clone().into_inner())
    else {
        return reply::error(&HttpError::internal("the server has no state"));
    };
    let id = RequestId::choose(http.headers().get(X_COUCH_REQUEST_ID));
    let span =
        tracing::info_span!("request", id = id.as_str(), method = %http.method(), path = http.uri().path());
    respond(&app, &http, payload, id).instrument(span).await
}

/// The way of one request.
async fn respond(app: &Arc<App>, http: &HttpRequest, payload: web::Payload, id: RequestId) -> HttpResponse {
    let started = outside::now();
    if let Some(ready) = &app.admins_ready
        && ready.get().is_none()
        && may_log_in(http)
    {
        ready.wait().await;
    }
    let live = Live::now(&app.config);
    let verb = Verb::of(http.method(), known_header(http, X_HTTP_METHOD_OVERRIDE));
    let body_time = Rc::new(Cell::new(Duration::ZERO));
    let mut user = None;
    let way = Way {
        app,
        live: &live,
        http,
        verb,
        id: &id,
        body_time: &body_time,
        user: &mut user,
    };
    let mut payload = Some(payload);
    let mut outcome = way.go(&mut payload).await;
    if let (Err(error), Some(payload)) = (&mut outcome, payload) {
        // What follows a CONNECT has no end.
        error.close |= http.method() == Method::CONNECT || !Box::pin(drain(http, payload)).await;
    }
    let mut response = outcome.unwrap_or_else(|error| refuse(error, http, &live));
    if verb == Verb::Head {
        response = reply::for_head(response);
    }
    let legacy = matches!(http.uri().path(), "/_session" | "/_uuids");
    let versions = live.settings.chttpd.server_header_versions;
    reply::finish(&mut response, (!legacy).then_some(&id), body_time.get(), versions);
    add_cors(http, &live, &mut response);
    if known_header(http, PREFER).is_some_and(|prefer| prefer.trim() == "return=minimal") {
        reply::minimize(&mut response);
    }
    let status = response.status().as_u16();
    let elapsed = started.elapsed();
    app.counters.request(
        verb,
        status,
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
    );
    let peer = || http.peer_addr().map(|peer| tracing::field::display(peer.ip()));
    tracing::info!(
        peer = peer(),
        user = user.as_deref(),
        status,
        ms = elapsed.as_secs_f64() * 1000.0,
        "answered"
    );
    response
}

/// Whether a request brings credentials, or may bring them in its body.
fn may_log_in(http: &HttpRequest) -> bool {
    !http.method().is_safe()
        || [AUTHORIZATION, COOKIE]
            .iter()
            .any(|name| http.headers().contains_key(name))
}

/// The reply to a refused request. What is the server's own fault is logged with its cause.
fn refuse(mut error: HttpError, http: &HttpRequest, live: &Live) -> HttpResponse {
    authenticate::challenge(&mut error, http, live);
    if error.status >= 500 && error.status != 501 {
        let reason = error.reason.as_deref().unwrap_or_default();
        tracing::error!(error = %error.error, reason, "request failed");
    }
    reply::error(&error)
}

/// Reads and forgets a small body that nobody has read, so that the refusal reaches a client that is still sending and
/// the connection can go on. Tells whether the whole body was read.
async fn drain(http: &HttpRequest, mut payload: web::Payload) -> bool {
    let length = header(http, "content-length").and_then(|text| text.trim().parse::<u64>().ok());
    if length.is_some_and(|length| length > DRAIN_BYTES_MAX) {
        return false;
    }
    let mut drained = 0u64;
    while let Some(chunk) = payload.next().await {
        let Ok(chunk) = chunk else { return false };
        drained += chunk.len() as u64;
        if drained > DRAIN_BYTES_MAX {
            return false;
        }
    }
    true
}

/// What `entry` hands on.
struct Way<'a> {
    app: &'a Arc<App>,
    live: &'a Live,
    http: &'a HttpRequest,
    verb: Verb,
    id: &'a RequestId,
    body_time: &'a Rc<Cell<Duration>>,
    /// Name of the user, for the log.
    user: &'a mut Option<String>,
}

impl Way<'_> {
    async fn go(self, payload: &mut Option<web::Payload>) -> Handled {
        let settings = &self.live.settings;
        let uri = self.http.uri();
        let target_length = uri.path_and_query().map_or(0, |target| target.as_str().len());
        if target_length as u64 > settings.chttpd.max_uri_length.get() {
            return Err(HttpError::new(414, "too_long", "URI is too long"));
        }
        let segments = Segments::parse(uri.path(), settings.chttpd.decode_plus_to_space)?;
        let query = Query::parse(uri.query().unwrap_or_default())?;
        if let Some(response) = preflight(self.http, self.live, self.verb) {
            return Ok(response);
        }
        let target = route(&segments);
        let Identity {
            user,
            handler,
            cookie,
        } = authenticate::identify(self.app, self.live, self.http).await?;
        self.user.clone_from(&user.name);
        let open = match &target {
            Target::Server("_up") => settings.chttpd.require_valid_user_except_for_up,
            Target::Server("_session") => self.verb == Verb::Post,
            _ => false,
        };
        if settings.chttpd.require_valid_user && user.name.is_none() && !open {
            return Err(HttpError::unauthorized("Authentication required."));
        }
        let request = Request {
            app: self.app.clone(),
            settings: settings.clone(),
            http: self.http.clone(),
            verb: self.verb,
            query,
            user,
            handler,
            id: self.id.clone(),
            payload: RefCell::new(payload.take()),
            body_time: self.body_time.clone(),
        };
        let mut outcome = dispatch::dispatch(&request, target, &segments).await;
        *payload = request.take_payload();
        if let Some(cookie) = cookie {
            match &mut outcome {
                Ok(response) if !response.headers().contains_key("set-cookie") => {
                    reply::set(response.headers_mut(), "set-cookie", &cookie);
                }
                Ok(_) => {}
                Err(error) => error.headers.push(("Set-Cookie", cookie)),
            }
        }
        outcome
    }
}

fn policy(live: &Live) -> CorsPolicy {
    let cors = &live.settings.cors;
    CorsPolicy {
        enabled: live.settings.chttpd.enable_cors,
        origins: cors.origins.clone(),
        credentials: cors.credentials,
        headers: cors
            .headers
            .iter()
            .map(|name| name.to_ascii_lowercase())
            .collect(),
        methods: cors.methods.clone(),
        exposed_headers: cors
            .exposed_headers
            .iter()
            .map(|name| name.to_ascii_lowercase())
            .collect(),
        max_age: cors.max_age,
    }
}

/// Answers a preflight, before anybody is asked who they are.
fn preflight(http: &HttpRequest, live: &Live, verb: Verb) -> Option<HttpResponse> {
    if verb != Verb::Options || !live.settings.chttpd.enable_cors {
        return None;
    }
    let origin = known_header(http, ORIGIN)?;
    let method = header(http, "access-control-request-method")?;
    let mut response = reply::bare(204, bytes::Bytes::new());
    match policy(live).preflight(origin, method, header(http, "access-control-request-headers")) {
        Preflight::Granted(headers) => {
            for (name, value) in headers {
                reply::set(response.headers_mut(), name, &value);
            }
        }
        Preflight::Refused(cause) => tracing::warn!(%cause, "cross-origin preflight refused"),
    }
    Some(response)
}

fn add_cors(http: &HttpRequest, live: &Live, response: &mut HttpResponse) {
    if !live.settings.chttpd.enable_cors || response.headers().contains_key("access-control-allow-origin") {
        return;
    }
    let Some(origin) = known_header(http, ORIGIN) else {
        return;
    };
    if response.status().as_u16() == 204 && http.method().as_str() == "OPTIONS" {
        // A refused preflight must not look like a granted one.
        return;
    }
    let has = |name: &str| HeaderName::try_from(name).is_ok_and(|name| response.headers().contains_key(name));
    for (name, value) in policy(live).reply_headers(origin, has) {
        reply::set(response.headers_mut(), name, &value);
    }
}
