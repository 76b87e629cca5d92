//! A connection to the gRPC socket, with the identity of its peer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use crate::access::{Caller, Gate, Place};

/// Pause before the next accept when file descriptors are short.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepted connections that may wait for the server.
const MAX_PENDING: usize = 16;

/// The connection; dropping it frees its permit.
#[derive(Debug)]
pub(crate) struct PeerConnection {
    stream: UnixStream,
    caller: Caller,
    /// Resolves when the permit is given to another connection.
    evicted: oneshot::Receiver<()>,
    _place: Place,
}

impl PeerConnection {
    pub(crate) const fn new(
        stream: UnixStream,
        caller: Caller,
        place: Place,
        evicted: oneshot::Receiver<()>,
    ) -> Self {
        Self { stream, caller, evicted, _place: place }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut UnixStream> {
        Pin::new(&mut self.get_mut().stream)
    }
}

/// Stream of admitted connections; ends when its receiver is dropped.
pub(crate) fn incoming(
    gate: Arc<Gate>,
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

async fn next(gate: &Gate, listener: &UnixListener) -> PeerConnection {
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

impl Connected for PeerConnection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller.clone()
    }
}

impl AsyncRead for PeerConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Poll::Ready(Ok(())) = Pin::new(&mut this.evicted).poll(context) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut this.stream).poll_read(context, into)
    }
}

impl AsyncWrite for PeerConnection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(context, from)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}
