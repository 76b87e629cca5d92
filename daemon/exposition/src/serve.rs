//! Answers to three questions: `/metrics`, `/healthz`, `/readyz`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::format::Format;
use crate::listener::Socket;
use crate::page::print;
use crate::{Figures, Listener};

/// How many may ask at the same time; others wait in the kernel's queue.
const MOST_AT_A_TIME: usize = 16;
/// How long a question may take to arrive.
const READING: Duration = Duration::from_secs(5);
/// How long a connection may stay, questions and answers.
const STAY: Duration = Duration::from_secs(60);
/// How long to wait when no connection can be accepted, for want of descriptors for example.
const RESPITE: Duration = Duration::from_millis(200);

type Answer = Response<Full<Bytes>>;

/// Answers whoever asks, until the task is ended.
///
/// # Errors
/// If the socket is not one that the runtime can wait for.
pub async fn serve(listener: Listener, figures: Arc<dyn Figures>) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(MOST_AT_A_TIME));
    tracing::info!(address = %listener.address, "metrics are served");
    match listener.socket {
        Socket::Tcp(socket) => {
            let socket = TcpListener::from_std(socket)?;
            loop {
                let place = place(&room).await;
                match socket.accept().await {
                    Ok((stream, _)) => attend(stream, place, &figures),
                    Err(error) => cannot_accept(&error).await,
                }
            }
        }
        Socket::Unix(socket) => {
            let socket = UnixListener::from_std(socket)?;
            loop {
                let place = place(&room).await;
                match socket.accept().await {
                    Ok((stream, _)) => attend(stream, place, &figures),
                    Err(error) => cannot_accept(&error).await,
                }
            }
        }
    }
}

async fn place(room: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(room).acquire_owned().await.expect("nobody closes the room")
}

async fn cannot_accept(error: &io::Error) {
    tracing::debug!(%error, "somebody who asks for metrics cannot be let in");
    sleep(RESPITE).await;
}

/// Answers one connection in a task of its own.
fn attend<S>(stream: S, place: OwnedSemaphorePermit, figures: &Arc<dyn Figures>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let figures = Arc::clone(figures);
    tokio::spawn(async move {
        let service = service_fn(move |request| answer(request, Arc::clone(&figures)));
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(READING).max_buf_size(16 * 1024);
        let served = timeout(STAY, http.serve_connection(TokioIo::new(stream), service)).await;
        if let Ok(Err(error)) = served {
            tracing::debug!(%error, "somebody who asked for metrics went away");
        }
        drop(place);
    });
}

async fn answer(request: Request<Incoming>, figures: Arc<dyn Figures>) -> Result<Answer, hyper::Error> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refused = said(StatusCode::METHOD_NOT_ALLOWED, "here things are only asked: GET\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(refused);
    }
    let path = request.uri().path().to_owned();
    let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).map(str::to_owned);
    // A look at the program may block, and must keep no other task from running.
    let look = tokio::task::spawn_blocking(move || look(&path, accept.as_deref(), &figures));
    Ok(look.await.unwrap_or_else(|error| said(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))))
}

fn look(path: &str, accept: Option<&str>, figures: &Arc<dyn Figures>) -> Answer {
    match path {
        "/metrics" => page(Format::wanted(accept), figures),
        "/healthz" => verdict(figures.alive(), figures.remark()),
        "/readyz" => verdict(figures.ready(), None),
        _ => said(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz\n"),
    }
}

fn page(format: Format, figures: &Arc<dyn Figures>) -> Answer {
    match print(figures) {
        Ok(text) => {
            let mut answer = said(StatusCode::OK, format.of(text));
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
            answer
        }
        Err(error) => {
            said(StatusCode::INTERNAL_SERVER_ERROR, format!("the figures cannot be written: {error}\n"))
        }
    }
}

fn verdict(verdict: Result<(), String>, remark: Option<String>) -> Answer {
    match (verdict, remark) {
        (Ok(()), None) => said(StatusCode::OK, "ok\n"),
        (Ok(()), Some(remark)) => said(StatusCode::OK, format!("ok, but {remark}\n")),
        (Err(why), _) => said(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

fn said(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}
