//! HTTP server for `/metrics`, `/healthz` and `/readyz`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::time::{sleep, timeout};

use crate::figures::print;
use crate::format::MetricsFormat;
use crate::listener::Socket;
use crate::neighbours::{Neighbour, Neighbours};
use crate::places::{ConnectionPlace, PeerSource, Places, Questions};
use crate::shared::ResultCache;
use crate::{BoundListener, Figures};

/// Time limit for receiving a request.
const READING: Duration = Duration::from_secs(5);
/// Time limit of a connection.
const STAY: Duration = Duration::from_secs(60);
/// Pause after a failure to accept, for example without free descriptors.
const RESPITE: Duration = Duration::from_millis(200);

type Answer = Response<Full<Bytes>>;

/// Status of a probe's answer, then its text.
type Verdict = (StatusCode, Bytes);

/// The program and its cached responses.
#[derive(Debug)]
struct ServedProgram {
    figures: Arc<dyn Figures>,
    open: ResultCache<Result<Bytes, String>>,
    plain: ResultCache<Result<Bytes, String>>,
    alive: ResultCache<Verdict>,
    ready: ResultCache<Verdict>,
}

/// Serves until the task is aborted; returns at once without a listener, or if it cannot be served.
pub async fn serve(listener: Option<BoundListener>, figures: Arc<dyn Figures>) {
    let Some(listener) = listener else { return };
    if let Err(error) = serve_at(listener, figures).await {
        tracing::error!(%error, "metrics cannot be served");
    }
}

/// Fails if the socket cannot be registered with the runtime.
async fn serve_at(listener: BoundListener, figures: Arc<dyn Figures>) -> io::Result<()> {
    let program = Arc::new(ServedProgram {
        figures,
        open: ResultCache::default(),
        plain: ResultCache::default(),
        alive: ResultCache::default(),
        ready: ResultCache::default(),
    });
    let places = Arc::default();
    let own = nix::unistd::geteuid().as_raw();
    tracing::info!(address = %listener.address, "metrics are served");
    match listener.socket {
        Socket::Tcp(socket) => {
            let socket = TcpListener::from_std(socket)?;
            let mut neighbours = Neighbours::open()
                .inspect_err(|error| {
                    tracing::warn!(%error, "local users at this address share one budget of connections: netlink sockets are refused here");
                })
                .ok();
            loop {
                match socket.accept().await {
                    Ok((stream, peer)) => {
                        if let Some(source) = source_of(&stream, peer, own, neighbours.as_mut()) {
                            attend(stream, source, &places, &program);
                        }
                    }
                    Err(error) => cannot_accept(&error).await,
                }
            }
        }
        Socket::Unix(socket) => {
            let socket = UnixListener::from_std(socket)?;
            loop {
                match socket.accept().await {
                    // A peer without credentials cannot be attributed and is dropped.
                    Ok((stream, _)) => {
                        if let Ok(peer) = stream.peer_cred() {
                            attend(stream, PeerSource::of_user(peer.uid(), own), &places, &program);
                        }
                    }
                    Err(error) => cannot_accept(&error).await,
                }
            }
        }
    }
}

/// Source of a TCP connection; `None` if the peer has closed it already.
fn source_of(
    stream: &TcpStream,
    peer: SocketAddr,
    own: u32,
    neighbours: Option<&mut Neighbours>,
) -> Option<PeerSource> {
    let holder = neighbours.map(|neighbours| neighbours.holder(peer, stream.local_addr()?)).transpose();
    match holder {
        Ok(Some(Neighbour::User(uid))) => Some(PeerSource::of_user(uid, own)),
        Ok(Some(Neighbour::Gone)) => None,
        Ok(Some(Neighbour::Elsewhere)) if peer.ip().to_canonical().is_loopback() => None,
        Ok(Some(Neighbour::Elsewhere) | None) => Some(PeerSource::of_address(peer.ip())),
        Err(error) => {
            tracing::debug!(%error, %peer, "the kernel does not say whose a connection for metrics is");
            Some(PeerSource::of_address(peer.ip()))
        }
    }
}

async fn cannot_accept(error: &io::Error) {
    tracing::debug!(%error, "a connection for metrics cannot be taken");
    sleep(RESPITE).await;
}

/// Serves one connection in a task of its own, if it gets a permit, until it ends or is evicted.
fn attend<S>(stream: S, source: PeerSource, places: &Arc<Places>, program: &Arc<ServedProgram>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(mut place) = places.take(source) else { return };
    let program = Arc::clone(program);
    tokio::spawn(async move {
        let ConnectionPlace { questions, evicted, .. } = &mut place;
        let service = service_fn(|request| answer(request, Arc::clone(&program), questions.clone(), source));
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(READING).max_buf_size(16 * 1024);
        let served = timeout(STAY, http.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            served = served => {
                if let Ok(Err(error)) = served {
                    tracing::debug!(%error, "a connection for metrics broke off");
                }
            }
            _ = evicted => {}
        }
    });
}

async fn answer(
    request: Request<Incoming>,
    program: Arc<ServedProgram>,
    questions: Questions,
    source: PeerSource,
) -> Result<Answer, hyper::Error> {
    let _question = questions.begin();
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refused = said(StatusCode::METHOD_NOT_ALLOWED, "here things are only asked: GET\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(refused);
    }
    let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
    let (format, operator) = (MetricsFormat::wanted(accept), source == PeerSource::Operator);
    let figures = Arc::clone(&program.figures);
    // Reading the program's state may block, so it runs off the async threads.
    let answer = match request.uri().path() {
        "/metrics" => {
            let pages = match format {
                MetricsFormat::OpenMetrics => &program.open,
                MetricsFormat::Plain => &program.plain,
            };
            pages.get(operator, move || page(format, &figures)).await.map(|page| in_format(format, &page))
        }
        "/healthz" => {
            let look = move || verdict(figures.alive(), figures.remark());
            program.alive.get(operator, look).await.map(|verdict| said(verdict.0, verdict.1.clone()))
        }
        "/readyz" => {
            let look = move || verdict(figures.ready(), None);
            program.ready.get(operator, look).await.map(|verdict| said(verdict.0, verdict.1.clone()))
        }
        _ => Ok(said(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz\n")),
    };
    Ok(answer.unwrap_or_else(|error| said(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))))
}

fn page(format: MetricsFormat, figures: &Arc<dyn Figures>) -> Result<Bytes, String> {
    match print(figures) {
        Ok(text) => Ok(format.of(text).into()),
        Err(error) => Err(format!("the figures cannot be written: {error}\n")),
    }
}

fn in_format(format: MetricsFormat, page: &Result<Bytes, String>) -> Answer {
    match page {
        Ok(text) => {
            let mut answer = said(StatusCode::OK, text.clone());
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
            answer
        }
        Err(text) => said(StatusCode::INTERNAL_SERVER_ERROR, text.clone()),
    }
}

fn verdict(verdict: Result<(), String>, remark: Option<String>) -> Verdict {
    match (verdict, remark) {
        (Ok(()), None) => (StatusCode::OK, "ok\n".into()),
        (Ok(()), Some(remark)) => (StatusCode::OK, format!("ok, but {remark}\n").into()),
        (Err(why), _) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n").into()),
    }
}

fn said(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}
