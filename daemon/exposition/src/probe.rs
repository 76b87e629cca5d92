//! Client for probes and scripts: one request, one response.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::Address;

/// Time limit of each step of an exchange.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of attempts. The pause starts at the constant below and grows by it each time.
const ATTEMPTS: u32 = 6;
const PAUSE: Duration = Duration::from_millis(20);
/// Maximum size of a response; more than the metrics of any node.
const LARGEST: u64 = 64 << 20;

/// Failure of a probe.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum ProbeError {
    #[error("the configuration's `metrics` is off, so that there is no address to ask")]
    Off,
    #[error("nothing answers at {address}: {cause}")]
    Silent { address: Address, cause: io::Error },
    #[error("{0}")]
    No(String),
}

/// Requests a path, such as `/readyz`, and returns the text of the response.
///
/// # Errors
/// If there is no response, or its status is not 200; the message is then its text.
pub fn ask(address: &Address, path: &str) -> Result<String, ProbeError> {
    let mut attempts = 0;
    let answer = loop {
        attempts += 1;
        match ask_once(address, path) {
            // The accept queue may be full for an instant, or the connection evicted in favour of another.
            Ok(answer) if answer.is_empty() && attempts < ATTEMPTS => {}
            Err(Some(cause)) if may_pass(&cause) && attempts < ATTEMPTS => {}
            Ok(answer) => break answer,
            Err(Some(cause)) => return Err(ProbeError::Silent { address: address.clone(), cause }),
            Err(None) => return Err(ProbeError::Off),
        }
        std::thread::sleep(PAUSE * attempts);
    };
    let (head, text) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.split(' ').nth(1) == Some("200") {
        Ok(text.to_owned())
    } else {
        Err(ProbeError::No(text.trim().to_owned()))
    }
}

fn may_pass(cause: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, WouldBlock};
    [BrokenPipe, ConnectionAborted, ConnectionReset, WouldBlock].contains(&cause.kind())
}

/// The complete response; the error is `None` if there was none.
fn ask_once(address: &Address, path: &str) -> Result<String, Option<io::Error>> {
    match address {
        Address::Off => return Err(None),
        Address::Unix(socket) => UnixStream::connect(socket).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            exchange(stream, path)
        }),
        Address::Tcp(address) => {
            TcpStream::connect_timeout(&to_here(*address), PATIENCE).and_then(|stream| {
                stream.set_read_timeout(Some(PATIENCE))?;
                exchange(stream, path)
            })
        }
    }
    .map_err(Some)
}

/// Replaces an unspecified address by the loopback address.
fn to_here(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(any) if any.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(any) if any.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

/// HTTP/1.0, in which the response ends with the connection.
fn exchange(mut stream: impl Read + Write, path: &str) -> io::Result<String> {
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(LARGEST).read_to_string(&mut answer)?;
    Ok(answer)
}
