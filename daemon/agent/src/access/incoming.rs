//! Connections that clients open, each admitted by the gate.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::AccessGate;
use super::peer::PeerConnection;

/// Pause before the next accept when file descriptors are short.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepted connections that may wait for the server.
const MAX_PENDING: usize = 16;

/// Stream of admitted connections; ends when its receiver is dropped.
pub(crate) fn incoming(
    gate: Arc<AccessGate>,
    listener: UnixListener,
) -> ReceiverStream<io::Result<PeerConnection>> {
    let (tell, told) = mpsc::channel(MAX_PENDING);
    tokio::spawn(async move {
        while let Ok(place) = tell.reserve().await {
            let connection = tokio::select! {
                connection = next(&gate, &listener) => connection,
                () = tell.closed() => return,
            };
            place.send(Ok(connection));
        }
    });
    ReceiverStream::new(told)
}

async fn next(gate: &AccessGate, listener: &UnixListener) -> PeerConnection {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match gate.admit(stream) {
                Some(connection) => return connection,
                None => continue,
            },
            Err(error) => {
                tracing::warn!(%error, "cannot take a call");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
