//! `tranche-page`, and what a browser does with it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bench::node::Node;
use bench::{Result, interrupt};

/// Files that a browser loads.
const FILES: [&str; 4] = ["/", "/page.css", "/page.js", "/icon.svg"];
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running `tranche-page` of a node. Dropping this ends it.
pub(crate) struct Page {
    program: Child,
    port: u16,
}

/// A stream of the page's changes.
pub(crate) struct Stream(Arc<AtomicUsize>);

impl Stream {
    /// Number of parts that came so far.
    pub(crate) fn events(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Page {
    /// Serves a node's page at a port that the kernel chooses.
    pub(crate) fn serve(node: &Node) -> Result<Self> {
        let mut command = node.bare(node.stage().programs.join("tranche-page"));
        command.args(["--listen", "127.0.0.1:0", "--socket"]).arg(node.socket());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut program = interrupt::start(&mut command).map_err(|error| format!("{command:?}: {error}"))?;
        let mut lines = BufReader::new(program.stderr.take().ok_or("no pipe")?);
        let mut page = Self { program, port: 0 };
        let mut line = String::new();
        lines.read_line(&mut line).map_err(|error| error.to_string())?;
        let port = line.trim().trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
        page.port = port.ok_or_else(|| format!("tranche-page names no port: {line:?}"))?;
        // Its further messages belong to the bench's.
        thread::spawn(move || std::io::copy(&mut lines, &mut std::io::stderr()));
        Ok(page)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.program.id()
    }

    /// Opens the page and follows its changes, as its script does.
    pub(crate) fn follow(&self) -> Result<Stream> {
        self.loaded_bytes()?;
        let stream = self.request("/events").map_err(|error| error.to_string())?;
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(std::io::Result::ok) {
                counted.fetch_add(usize::from(line.starts_with("data:")), Ordering::Relaxed);
            }
        });
        Ok(Stream(count))
    }

    /// Bytes of all files that a browser loads for the page.
    pub(crate) fn loaded_bytes(&self) -> Result<f64> {
        FILES.iter().map(|path| self.get(path).map(|text| text.len() as f64)).sum()
    }

    fn request(&self, path: &str) -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
        Ok(stream)
    }

    fn get(&self, path: &str) -> Result<String> {
        let mut answer = String::new();
        let read = self.request(path).and_then(|mut stream| stream.read_to_string(&mut answer));
        read.map_err(|error| format!("{path}: {error}"))?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
            _ => Err(format!("{path}: {answer}")),
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
