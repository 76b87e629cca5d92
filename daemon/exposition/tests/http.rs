//! Requests to a program over real sockets.
#![allow(clippy::unwrap_used)]

use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tranche_exposition::{Address, BoundListener, Figures, Labels, MetricsPage, ask, serve};

/// A program that counts its probes, and is ready from the third on.
#[derive(Debug, Default)]
struct Program(AtomicU64);

impl Figures for Program {
    fn write(&self, page: &mut MetricsPage<'_>) -> fmt::Result {
        let looks = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        page.counter("looks", "Looks at it", looks)?;
        page.gauges("colour_ratio", "How much of each", [(vec![("name", "a \"b\"\\\n".into())], 0.5)])?;
        page.gauges("none", "Nothing", Vec::<(Labels, u64)>::new())?;
        page.infos("build", "Which it is", [vec![("version", "1".into())]])
    }

    fn alive(&self) -> Result<(), String> {
        Ok(())
    }

    fn ready(&self) -> Result<(), String> {
        if self.0.load(Ordering::Relaxed) < 3 { Err("not yet looked at".into()) } else { Ok(()) }
    }
}

fn start(address: &str) -> Address {
    let listener = BoundListener::open(&address.parse().unwrap()).unwrap();
    let address = listener.as_ref().unwrap().address().clone();
    tokio::spawn(serve(listener, Arc::new(Program::default())));
    address
}

async fn asked(address: &Address, path: &'static str) -> Result<String, String> {
    let address = address.clone();
    tokio::task::spawn_blocking(move || ask(&address, path).map_err(|error| error.to_string())).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_health_and_readiness_are_told_at_a_port_and_at_a_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.sock");
    for address in [start("127.0.0.1:0"), start(path.to_str().unwrap())] {
        assert_eq!(asked(&address, "/healthz").await.unwrap(), "ok\n");
        assert_eq!(asked(&address, "/readyz").await.unwrap_err(), "not yet looked at");
        for look in 1..=3 {
            let page = asked(&address, "/metrics").await.unwrap();
            assert!(page.contains(&format!("# TYPE looks_total counter\nlooks_total {look}\n")), "{page}");
            assert!(page.contains("colour_ratio{name=\"a \\\"b\\\"\\\\\\n\"} 0.5\n"), "{page}");
            assert!(page.contains("build_info{version=\"1\"} 1\n"), "{page}");
        }
        assert_eq!(asked(&address, "/readyz").await.unwrap(), "ok\n");
        assert!(asked(&address, "/").await.unwrap_err().contains("/metrics"));
    }
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o660);
}

/// Answer of a program to the bytes of a request.
async fn sent(address: &Address, text: &'static str) -> String {
    let Address::Tcp(address) = *address else { panic!("a port") };
    let talk = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    tokio::task::spawn_blocking(talk).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_openmetrics_gets_it_to_its_end() {
    let address = start("127.0.0.1:0");
    let said = sent(
        &address,
        "GET /metrics HTTP/1.0\r\nAccept: application/openmetrics-text; version=1.0.0\r\n\r\n",
    );
    let said = said.await;
    assert!(
        said.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"),
        "{said}"
    );
    assert!(said.contains("# TYPE looks counter\nlooks_total 1\n") && said.ends_with("# EOF\n"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_can_be_changed_here() {
    let address = start("127.0.0.1:0");
    let said = sent(&address, "POST /metrics HTTP/1.0\r\nContent-Length: 0\r\n\r\n").await;
    assert!(said.starts_with("HTTP/1.0 405") && said.contains("allow: GET, HEAD"), "{said}");
    let said = sent(&address, "nonsense\r\n\r\n").await;
    assert!(said.starts_with("HTTP/1.1 400"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_keep_no_question_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.sock");
    let port = start("127.0.0.1:0");
    let Address::Tcp(at) = port else { panic!("a port") };
    let silent: Vec<_> = (0..400).map(|_| TcpStream::connect(at).unwrap()).collect();
    let half: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(at).unwrap();
            stream.write_all(b"GET /healthz HT").unwrap();
            stream
        })
        .collect();
    for path in ["/healthz", "/metrics"] {
        asked(&port, path).await.unwrap();
    }
    drop((silent, half));
    let socket = start(path.to_str().unwrap());
    let silent: Vec<_> = (0..400).map(|_| UnixStream::connect(&path).unwrap()).collect();
    assert_eq!(asked(&socket, "/healthz").await.unwrap(), "ok\n");
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_is_taken_is_refused_and_one_that_was_left_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.sock");
    let here: Address = path.to_str().unwrap().parse().unwrap();
    drop(BoundListener::open(&here).unwrap());
    assert!(path.exists(), "whoever is killed leaves its socket");
    let taken = BoundListener::open(&here).unwrap().unwrap();
    let refused = BoundListener::open(&here).unwrap_err().to_string();
    assert!(refused.contains("metrics.sock") && refused.contains("another program"), "{refused}");
    drop(taken);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "kept").unwrap();
    let refused = BoundListener::open(&here).unwrap_err().to_string();
    assert!(refused.contains("no socket; remove it"), "{refused}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept");
    let first = BoundListener::open(&"127.0.0.1:0".parse().unwrap()).unwrap().unwrap();
    let refused = BoundListener::open(first.address()).unwrap_err().to_string();
    assert!(refused.contains(&first.address().to_string()), "{refused}");
    assert!(BoundListener::open(&Address::Off).unwrap().is_none());
}
