//! Other nodes, read through the JSON of their pages.
//!
//! Law: a read has a limit of time and of length, so that a node that is slow, silent or hostile takes nothing else down.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tranche_domain::text::{is_visible, visible_within};
use ureq::http::Uri;

/// Path of the overview in JSON.
pub const PATH: &str = "/api/v1/overview";
/// Time limit of a node's answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum size of an answer in bytes.
const LONGEST_ANSWER: u64 = 1 << 20;

/// Name and address of another node, as `NAME=URL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// Name under which it is shown.
    pub name: String,
    /// Address of the overview, with its path.
    url: String,
}

/// Text that names no node with an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNode {
    /// No `=`.
    #[error("there is no =: write NAME=URL, such as gpu2=http://gpu2:9465")]
    Form,
    /// An empty, long or invisible name.
    #[error("the name has to have 1 to {longest} visible characters", longest = NodeAddress::LONGEST_NAME)]
    Name,
    /// An address of another scheme than HTTP, or without a host.
    #[error("the URL has to begin with http:// or https:// and a host, such as http://gpu2:9465")]
    Url,
    /// Credentials in the address.
    #[error("the URL contains credentials, which every user could read in the list of processes")]
    Credentials,
    /// A path or a query in the address.
    #[error("the URL has a path or a query: {PATH} is appended to it")]
    Path,
}

impl FromStr for NodeAddress {
    type Err = BadNode;

    fn from_str(text: &str) -> Result<Self, BadNode> {
        let (name, url) = text.split_once('=').ok_or(BadNode::Form)?;
        if name.is_empty() || name.chars().count() > Self::LONGEST_NAME || !name.chars().all(is_visible) {
            return Err(BadNode::Name);
        }
        let uri: Uri = url.parse().map_err(|_| BadNode::Url)?;
        let (Some("http" | "https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(BadNode::Url);
        };
        if authority.as_str().contains('@') {
            return Err(BadNode::Credentials);
        }
        if uri.path() != "/" || uri.query().is_some() {
            return Err(BadNode::Path);
        }
        Ok(Self { name: name.to_owned(), url: format!("{}{PATH}", url.trim_end_matches('/')) })
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl NodeAddress {
    /// Maximum length of a name in characters.
    pub const LONGEST_NAME: usize = 64;
    /// Maximum length of a failure in characters.
    const LONGEST_FAILURE: usize = 200;

    /// Reads the node's overview once; blocks for at most two seconds.
    ///
    /// # Errors
    /// If the node does not answer in time, or with something else. The text contains no part of the answer and not the
    /// address.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        fetch(&self.url).map_err(|failure| visible_within(&failure.to_string(), Self::LONGEST_FAILURE))
    }
}

/// Sums over a node, which are part of its overview.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeFigures {
    /// GPUs of the node.
    pub gpus: u32,
    /// GPUs in slices, in thousandths of one.
    pub allocated_milligpus: u32,
    /// Those of them in slices that count as idle.
    pub idle_milligpus: u32,
    /// Number of running jobs.
    pub running: u32,
    /// Number of pending jobs and of requests for slices that wait.
    pub pending: u32,
}

/// Failure to read another node.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("{0}")]
    Http(#[from] Box<ureq::Error>),
    #[error("its page has no answer of its daemon")]
    NoDaemon,
    #[error("it answers with status {0}")]
    Status(u16),
    #[error("its answer is no overview")]
    Content,
}

fn fetch<T: DeserializeOwned>(url: &str) -> Result<T, FetchError> {
    let config = ureq::Agent::config_builder()
        .proxy(None)
        .max_redirects(0)
        .http_status_as_error(false)
        .timeout_global(Some(PATIENCE))
        .build();
    let mut answer = config.new_agent().get(url).call().map_err(Box::new)?;
    match answer.status().as_u16() {
        200 => {}
        503 => return Err(FetchError::NoDaemon),
        status => return Err(FetchError::Status(status)),
    }
    let body = answer.body_mut().with_config().limit(LONGEST_ANSWER).read_to_vec().map_err(Box::new)?;
    serde_json::from_slice(&body).map_err(|_| FetchError::Content)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn address_gets_the_path_of_the_overview() {
        let node: NodeAddress = "gpu2=http://gpu2:9465/".parse().unwrap();
        assert_eq!((node.name.as_str(), node.url.as_str()), ("gpu2", "http://gpu2:9465/api/v1/overview"));
        assert!("a=https://[::1]:9465".parse::<NodeAddress>().is_ok());
    }

    #[test]
    fn invalid_nodes_are_refused_with_the_reason() {
        let cases = [
            ("gpu2", BadNode::Form),
            ("=http://a", BadNode::Name),
            ("a\u{202e}=http://a", BadNode::Name),
            ("a=ftp://a", BadNode::Url),
            ("a=file:///etc/passwd", BadNode::Url),
            ("a=/x", BadNode::Url),
            ("a=http://me:secret@a", BadNode::Credentials),
            ("a=http://a/x", BadNode::Path),
            ("a=http://a/?x", BadNode::Path),
        ];
        for (text, reason) in cases {
            assert_eq!(text.parse::<NodeAddress>(), Err(reason), "{text}");
        }
    }

    /// Reads a node that answers with this text.
    fn read(answer: &'static str) -> Result<NodeFigures, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("a=http://{}", listener.local_addr().unwrap()).parse::<NodeAddress>().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let length = stream.read(&mut [0; 4096]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            length
        });
        let read = address.read();
        assert!(server.join().unwrap() > 0);
        read
    }

    #[test]
    fn answer_is_read_or_named_without_its_content() {
        let figures =
            read("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"gpus\": 8, \"later\": 1}").unwrap();
        assert_eq!(figures, NodeFigures { gpus: 8, ..NodeFigures::default() });
        for (answer, why) in [
            ("HTTP/1.1 503 No\r\ncontent-length: 6\r\n\r\nsecret", "of its daemon"),
            ("HTTP/1.1 404 No\r\ncontent-length: 6\r\n\r\nsecret", "status 404"),
            ("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nsecret", "no overview"),
            ("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", ""),
            ("secret", ""),
        ] {
            let failure = read(answer).unwrap_err();
            assert!(failure.contains(why) && !failure.contains("secret"), "{failure}");
        }
    }
}
