//! Listening, with lines that can be cut: an incident may lose an answer. TLS listens through this too.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// The connection of a request.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    cut: CancellationToken,
}

impl Line {
    /// From now on nothing more is written: the peer sees the connection end without an answer.
    pub(crate) fn cut(&self) {
        self.cut.cancel();
    }
}

/// A listener whose connections can be cut.
pub(crate) struct CuttableListener {
    tcp: TcpListener,
}

impl CuttableListener {
    pub(crate) fn new(tcp: TcpListener) -> Self {
        Self { tcp }
    }
}

/// A connection that can be cut.
pub(crate) struct CuttableStream {
    stream: TcpStream,
    line: Line,
}

impl CuttableStream {
    /// The line that this connection belongs to.
    pub(crate) fn line(&self) -> Line {
        self.line.clone()
    }

    fn check(&self) -> io::Result<()> {
        if self.line.cut.is_cancelled() { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl AsyncRead for CuttableStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for CuttableStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Listener for CuttableListener {
    type Io = CuttableStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, addr) = Listener::accept(&mut self.tcp).await;
        // Small answers must not wait for more to send.
        let _ = stream.set_nodelay(true);
        let line = Line { cut: CancellationToken::new() };
        (CuttableStream { stream, line }, addr)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}

impl Connected<IncomingStream<'_, CuttableListener>> for Line {
    fn connect_info(stream: IncomingStream<'_, CuttableListener>) -> Self {
        stream.io().line()
    }
}

/// Serves until `stop`.
///
/// # Errors
///
/// Never before `stop`; the type is that of the server it builds on.
pub(crate) async fn serve(tcp: TcpListener, router: Router, stop: CancellationToken) -> io::Result<()> {
    let service = router.into_make_service_with_connect_info::<Line>();
    axum::serve(CuttableListener::new(tcp), service).with_graceful_shutdown(stop.cancelled_owned()).await
}
