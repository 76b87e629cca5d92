//! HTTP/2 connections whose clients name a socket's path as their authority.
//!
//! gRPC clients in Go, Python and C++ send the path of a unix socket as `:authority`, percent-encoded or as it is. The
//! server's library resets such streams, since neither `%` nor `/` is part of an authority. Nothing here reads an
//! authority, so these characters are replaced on their way in, and every length stays as it was.
#![forbid(unsafe_code)]

mod frames;
mod hpack;
mod huffman;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use crate::frames::Frames;

/// Most bytes of one read.
const CHUNK: usize = 8 * 1024;

/// Connection of a client that may name a path as its authority.
#[derive(Debug)]
pub struct LenientAuthority<S> {
    inner: S,
    frames: Frames,
}

impl<S> LenientAuthority<S> {
    /// Wraps a connection of which nothing was read.
    pub fn new(inner: S) -> Self {
        Self { inner, frames: Frames::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LenientAuthority<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.frames.take(into) || into.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let mut chunk = [0; CHUNK];
            let mut read = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut read))?;
            if read.filled().is_empty() && !this.frames.end() {
                return Poll::Ready(Ok(()));
            }
            this.frames.feed(read.filled());
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LenientAuthority<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<S: Connected> Connected for LenientAuthority<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.inner.connect_info()
    }
}
