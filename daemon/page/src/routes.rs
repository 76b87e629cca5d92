//! Routes: the page, its script and style, its stream of events, and the overview in JSON.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::middleware::from_fn_with_state;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tranche_exposition::Questions;
use tranche_nodes::PATH;

use crate::board::{Board, Published};
use crate::guard::{AllowedHosts, guard, plain};

/// Maximum number of streams of events.
const MOST_STREAMS: usize = 32;
/// Time limit of a stream, after which the browser opens another one.
const LONGEST_STREAM: Duration = Duration::from_secs(600);
/// Longest time for which a viewer may leave a part in the stream.
const LONGEST_SEND: Duration = Duration::from_secs(20);

const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");
const ICON: &str = include_str!("../assets/icon.svg");
const HEAD: &str = include_str!("../assets/head.html");
const FOOT: &str = include_str!("../assets/foot.html");

/// All routes, behind the guard.
pub(crate) fn routes(board: Arc<Board>, hosts: AllowedHosts) -> Router {
    let fixed = |kind: &'static str, text: &'static str| get(move || async move { typed(kind, text) });
    Router::new()
        .route("/", get(page))
        .route("/events", get(events))
        .route(PATH, get(overview))
        .route("/page.css", fixed("text/css; charset=utf-8", STYLE))
        .route("/page.js", fixed("text/javascript; charset=utf-8", SCRIPT))
        .route("/icon.svg", fixed("image/svg+xml", ICON))
        .fallback(|| async { plain(StatusCode::NOT_FOUND, format!("there are /, /events and {PATH}\n")) })
        .layer(from_fn_with_state(hosts, guard))
        .with_state(board)
}

fn typed(kind: &'static str, text: impl Into<axum::body::Body>) -> Response {
    let mut answer = plain(StatusCode::OK, text);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

async fn page(State(board): State<Arc<Board>>) -> Response {
    let state = board.fresh().await;
    let parts: String = state.parts.iter().map(|part| &*part.html).collect();
    let parts = if state.number == 0 {
        "<section><p class=\"failure warn\">tranched has not answered yet. Reload this page.</p></section>"
            .into()
    } else {
        parts
    };
    typed("text/html; charset=utf-8", format!("{HEAD}{parts}{FOOT}"))
}

async fn overview(State(board): State<Arc<Board>>) -> Response {
    match &board.fresh().await.own {
        Ok(json) => typed("application/json", json.to_string()),
        Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

async fn events(State(board): State<Arc<Board>>, Extension(questions): Extension<Questions>) -> Response {
    let Some((viewer, newest)) = board.watch(MOST_STREAMS) else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, format!("{MOST_STREAMS} streams are open already\n"));
    };
    let (events, stream) = mpsc::channel(1);
    // A connection with a stream is in use, and makes no room for others.
    let question = questions.begin();
    tokio::spawn(async move {
        send(newest, events).await;
        drop((viewer, question));
    });
    Sse::new(ReceiverStream::new(stream)).into_response()
}

/// Sends each part that has changed, and what follows, until the viewer leaves or the time is over.
async fn send(mut newest: watch::Receiver<Arc<Published>>, events: mpsc::Sender<Result<Event, Infallible>>) {
    let end = Instant::now() + LONGEST_STREAM;
    let mut sent = 0;
    loop {
        let state = Arc::clone(&newest.borrow_and_update());
        for part in state.parts.iter().filter(|part| part.changed > sent) {
            let event = Event::default().event("part").data(&*part.json);
            let Ok(Ok(())) = timeout(LONGEST_SEND, events.send(Ok(event))).await else { return };
        }
        sent = state.number;
        tokio::select! {
            changed = timeout_at(end, newest.changed()) => {
                if !matches!(changed, Ok(Ok(()))) {
                    break;
                }
            }
            () = events.closed() => break,
        }
    }
}
