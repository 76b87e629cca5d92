//! A connection to the gRPC socket, with the identity of its peer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tonic::transport::server::Connected;
use tranche_authority::LenientAuthority;

use super::caller::Caller;
use super::connections::ConnectionPermit;

/// The connection; dropping it frees its permit.
#[derive(Debug)]
pub(crate) struct PeerConnection {
    stream: LenientAuthority<UnixStream>,
    caller: Caller,
    /// Resolves when the permit is given to another connection.
    evicted: oneshot::Receiver<()>,
    _place: ConnectionPermit,
}

impl PeerConnection {
    pub(super) fn new(
        stream: UnixStream,
        caller: Caller,
        place: ConnectionPermit,
        evicted: oneshot::Receiver<()>,
    ) -> Self {
        Self { stream: LenientAuthority::new(stream), caller, evicted, _place: place }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut LenientAuthority<UnixStream>> {
        Pin::new(&mut self.get_mut().stream)
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
