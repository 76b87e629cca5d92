//! Check of a service's health, from the node on which it runs.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tranche_domain::jobs::{HealthCheck, HealthTarget};

/// Result of the checks so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HealthVerdict {
    /// A check has passed for the first time.
    Healthy,
    /// The service has to be ended, for this reason.
    Unhealthy(String),
}

/// Verdicts of the checks of a service that has just started.
pub(crate) struct Verdicts(Option<mpsc::Receiver<HealthVerdict>>);

impl Verdicts {
    /// Begins with the checks, which end with the receiver.
    pub(crate) fn of(check: Option<HealthCheck>) -> Self {
        Self(check.map(|check| {
            let (sender, verdicts) = mpsc::channel(1);
            tokio::spawn(watch(check, sender));
            verdicts
        }))
    }

    /// The next verdict; pending if there is none any more.
    pub(crate) async fn next(&mut self) -> HealthVerdict {
        let next = match &mut self.0 {
            Some(verdicts) => verdicts.recv().await,
            None => None,
        };
        match next {
            Some(verdict) => verdict,
            None => std::future::pending().await,
        }
    }
}

async fn watch(check: HealthCheck, verdicts: mpsc::Sender<HealthVerdict>) {
    let begin = Instant::now();
    let mut progress = HealthProgress::default();
    while !verdicts.is_closed() {
        let probed = timeout(HealthCheck::TIMEOUT, probe(&check.target)).await;
        let late = || format!("it took more than {} s", HealthCheck::TIMEOUT.as_secs());
        let result = probed.unwrap_or_else(|_| Err(late()));
        if let Some(verdict) = progress.judge(&check, result, begin.elapsed()) {
            let _ = verdicts.send(verdict).await;
        }
        sleep(check.interval).await;
    }
}

/// Outcome of the checks so far.
#[derive(Debug, Default)]
struct HealthProgress {
    /// True once one has passed.
    healthy: bool,
    /// Number of consecutive failures.
    failures: u32,
}

impl HealthProgress {
    /// Enters the result of a check, this long after the start; returns a verdict if there is a new one.
    fn judge(
        &mut self,
        check: &HealthCheck,
        result: Result<(), String>,
        elapsed: Duration,
    ) -> Option<HealthVerdict> {
        let Err(why) = result else {
            let is_first = !self.healthy;
            *self = Self { healthy: true, failures: 0 };
            return is_first.then_some(HealthVerdict::Healthy);
        };
        self.failures = self.failures.saturating_add(1);
        let HealthCheck { target, start, .. } = check;
        match self {
            Self { healthy: true, failures } if *failures >= HealthCheck::FAILURES => {
                Some(HealthVerdict::Unhealthy(format!(
                    "the check at port {target} failed {failures} times in a row, at last because {why}"
                )))
            }
            Self { healthy: false, .. } if elapsed >= *start => Some(HealthVerdict::Unhealthy(format!(
                "the check at port {target} did not pass within {} s, at last because {why}",
                start.as_secs()
            ))),
            _ => None,
        }
    }
}

/// One check.
///
/// # Errors
/// If the port refuses the connection, or the reply is no HTTP or has another status than 200 to 399.
async fn probe(target: &HealthTarget) -> Result<(), String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, target.port()));
    let stream = TcpStream::connect(address).await;
    let stream = stream.map_err(|error| format!("no connection was possible: {error}"))?;
    let Some(path) = target.path() else { return Ok(()) };
    let status =
        get(stream, address, path).await.map_err(|error| format!("the reply was no HTTP: {error}"))?;
    if status.is_success() || status.is_redirection() {
        Ok(())
    } else {
        Err(format!("the reply was {status}"))
    }
}

async fn get(stream: TcpStream, address: SocketAddr, path: &str) -> io::Result<StatusCode> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let request = Request::get(path)
        .header(HOST, address.to_string())
        .header(USER_AGENT, "tranche-health")
        .header(CONNECTION, "close")
        .body(String::new())
        .map_err(io::Error::other)?;
    let serving = tokio::spawn(connection);
    let reply = sender.send_request(request).await;
    serving.abort();
    reply.map(|reply| reply.status()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn check(start: u64) -> HealthCheck {
        HealthCheck::new("80/x".parse().unwrap(), None, Some(Duration::from_secs(start))).unwrap()
    }

    fn failed() -> Result<(), String> {
        Err("the reply was 500".into())
    }

    #[test]
    fn healthy_service_is_ended_after_three_failures_in_a_row() {
        let mut progress = HealthProgress::default();
        let mut judge = |result| progress.judge(&check(1), result, Duration::from_millis(900));
        assert_eq!(
            [judge(failed()), judge(Ok(())), judge(Ok(()))],
            [None, Some(HealthVerdict::Healthy), None]
        );
        assert_eq!(
            [judge(failed()), judge(failed()), judge(Ok(())), judge(failed()), judge(failed())],
            [const { None }; 5]
        );
        let Some(HealthVerdict::Unhealthy(why)) = judge(failed()) else { panic!("three in a row") };
        assert!(why.contains("80/x") && why.contains("3 times") && why.contains("500"), "{why}");
    }

    #[test]
    fn service_that_never_becomes_healthy_is_ended_after_its_start_time() {
        let mut progress = HealthProgress::default();
        let mut judge = |seconds| progress.judge(&check(60), failed(), Duration::from_secs(seconds));
        assert_eq!([judge(1), judge(30), judge(59)], [const { None }; 3]);
        assert!(matches!(judge(60), Some(HealthVerdict::Unhealthy(why)) if why.contains("60 s")));
    }

    /// Serves one connection with these bytes, and returns the check's result with what it sent.
    async fn served(path: &str, reply: &'static [u8]) -> (Result<(), String>, String) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let target = format!("{}{path}", listener.local_addr().unwrap().port()).parse().unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut sent = vec![0; 1024];
            let length = if reply.is_empty() { 0 } else { stream.read(&mut sent).await.unwrap() };
            let _ = stream.write_all(reply).await;
            sent.truncate(length);
            String::from_utf8(sent).unwrap()
        };
        tokio::join!(probe(&target), server)
    }

    #[tokio::test]
    async fn reply_decides() {
        let (result, sent) = served("/health?a=1", b"HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(result, Ok(()));
        assert!(sent.starts_with("GET /health?a=1 HTTP/1.1\r\n"), "{sent}");
        assert_eq!(served("/", b"HTTP/1.0 302 Found\r\n\r\n").await.0, Ok(()));
        let unavailable =
            served("/", b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 9\r\n\r\n").await.0;
        assert!(unavailable.unwrap_err().contains("503"));
        for reply in [&b"SSH-2.0-x\r\n"[..], b""] {
            assert!(served("/", reply).await.0.unwrap_err().contains("no HTTP"));
        }
        assert_eq!(served("", b"").await.0, Ok(()), "a connection suffices without a path");
    }

    #[tokio::test]
    async fn closed_port_fails() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let target = listener.local_addr().unwrap().port().to_string().parse().unwrap();
        drop(listener);
        assert!(probe(&target).await.unwrap_err().contains("no connection"));
    }
}
