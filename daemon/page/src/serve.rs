//! Server: connections with limits of number, time and size, in front of the routes.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tranche_exposition::{ConnectionPlace, PeerSource, Places};

use crate::guard::LocalAddress;

/// Time limit for receiving a request.
const READING: Duration = Duration::from_secs(5);
/// Time limit of a connection, longer than that of a stream.
const STAY: Duration = Duration::from_secs(660);
/// Pause after a failure to accept, for example without free descriptors.
const RESPITE: Duration = Duration::from_millis(200);
/// Maximum size of a request's head in bytes.
const LONGEST_HEAD: usize = 16 * 1024;

/// Serves until the task is aborted.
pub(crate) async fn serve(listener: TcpListener, routes: Router) {
    let places = std::sync::Arc::<Places>::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if let (Some(place), Ok(local)) =
                    (places.take(PeerSource::of_address(peer.ip())), stream.local_addr())
                {
                    tokio::spawn(attend(stream, place, local, routes.clone()));
                }
            }
            Err(error) => cannot_accept(&error).await,
        }
    }
}

async fn cannot_accept(error: &io::Error) {
    eprintln!("tranche-page: a connection cannot be accepted: {error}");
    sleep(RESPITE).await;
}

/// Serves one connection until it ends, or makes room for another.
async fn attend(stream: TcpStream, mut place: ConnectionPlace, local: SocketAddr, routes: Router) {
    let ConnectionPlace { questions, evicted, .. } = &mut place;
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(|mut request: Request<Incoming>| {
        let question = questions.begin();
        request.extensions_mut().insert(LocalAddress(local));
        request.extensions_mut().insert(questions.clone());
        let answer = routes.call(request);
        async move {
            let answer = answer.await;
            drop(question);
            answer
        }
    });
    let mut http = Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(READING).max_buf_size(LONGEST_HEAD);
    let served = timeout(STAY, http.serve_connection(TokioIo::new(stream), service));
    // Failures of a connection are the viewer's affair: a journal of them would be theirs to fill.
    tokio::select! { _ = served => {}, _ = evicted => {} }
}
