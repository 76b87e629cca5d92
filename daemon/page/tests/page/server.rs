//! The program under test, and a client of its server that sends exactly what a test wants.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// A running `tranche-page`, which ends with this value.
pub(crate) struct Page {
    process: Child,
    pub(crate) port: u16,
}

impl Page {
    /// Starts it for a daemon's socket, at a port that the kernel chooses.
    pub(crate) fn start(socket: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranche-page"));
        command.args(["--listen", "127.0.0.1:0", "--name", "gpu1", "--socket"]).arg(socket).args(arguments);
        let mut process = command.env_remove("TRANCHE_SOCKET").stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let port = line.trim().trim_end_matches('/').rsplit(':').next().unwrap();
        let port = port.parse().unwrap_or_else(|_| panic!("no port in {line:?}"));
        // Its further messages belong to the test's output.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::stderr()));
        Self { process, port }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// A connection that fails where an answer takes 20 s.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Answer to a request with this head, of which the last line end is missing.
    pub(crate) fn ask(&self, head: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}", self.port))
    }

    /// The overview in JSON.
    pub(crate) fn overview(&self) -> Value {
        let answer = self.get("/api/v1/overview");
        assert_eq!(answer.status, 200, "{answer:?}");
        serde_json::from_str(&answer.body).unwrap()
    }

    /// Lines of a stream of events, as they come.
    pub(crate) fn events(&self) -> impl Iterator<Item = String> {
        let mut stream = self.connect();
        stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        BufReader::new(stream).lines().map_while(Result::ok)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Status, head in lower case, and body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}
