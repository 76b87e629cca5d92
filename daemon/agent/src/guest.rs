//! A connection to the gRPC socket, with who is at its other end.

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

/// How long until it is tried again to let somebody in, when descriptors are short.
const PAUSE: Duration = Duration::from_millis(50);

/// Connections that may be on their way from the socket to the server.
const ON_THEIR_WAY: usize = 16;

/// The connection. Its place among its user's goes with it.
#[derive(Debug)]
pub(crate) struct Guest {
    stream: UnixStream,
    caller: Caller,
    /// Resolves when the place is given to another connection.
    evicted: oneshot::Receiver<()>,
    _place: Place,
}

impl Guest {
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

/// Those who knock, as far as the gate lets them in, until nobody listens to that any more.
pub(crate) fn arriving(gate: Arc<Gate>, listener: UnixListener) -> ReceiverStream<io::Result<Guest>> {
    let (tell, told) = mpsc::channel(ON_THEIR_WAY);
    tokio::spawn(async move {
        while let Ok(place) = tell.reserve().await {
            let guest = tokio::select! {
                guest = next(&gate, &listener) => guest,
                () = tell.closed() => return,
            };
            place.send(Ok(guest));
        }
    });
    ReceiverStream::new(told)
}

async fn next(gate: &Gate, listener: &UnixListener) -> Guest {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match gate.admit(stream) {
                Some(guest) => return guest,
                None => continue,
            },
            Err(error) => {
                tracing::warn!(%error, "cannot take a call");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

impl Connected for Guest {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller.clone()
    }
}

impl AsyncRead for Guest {
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

impl AsyncWrite for Guest {
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
