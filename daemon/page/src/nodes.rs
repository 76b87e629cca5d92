//! Other nodes, read through the JSON of their pages.
//!
//! Law: each node is read in a thread of its own with a limit of time and length, so that one that is slow, silent or
//! hostile takes nothing else down.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tranche_domain::text::{is_visible, visible_within};
use ureq::http::Uri;

use crate::limits::{LONGEST_NAME, LONGEST_REASON};
use crate::overview::Overview;

/// Path of the overview in JSON.
pub(crate) const PATH: &str = "/api/v1/overview";
/// Time limit of a node's answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum size of an answer in bytes.
const LONGEST_ANSWER: u64 = 1 << 20;

/// Name and address of another node, as `NAME=URL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeAddress {
    pub(crate) name: String,
    /// Address of the overview, with its path.
    url: String,
}

/// Text that names no node with an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadNode {
    #[error("there is no =: write NAME=URL, such as gpu2=http://gpu2:9465")]
    Form,
    #[error("the name has to have 1 to {LONGEST_NAME} visible characters")]
    Name,
    #[error("the URL has to begin with http:// or https:// and a host, such as http://gpu2:9465")]
    Url,
    #[error("the URL contains credentials, which every user could read in the list of processes")]
    Credentials,
    #[error("the URL has a path or a query: {PATH} is appended to it")]
    Path,
}

impl FromStr for NodeAddress {
    type Err = BadNode;

    fn from_str(text: &str) -> Result<Self, BadNode> {
        let (name, url) = text.split_once('=').ok_or(BadNode::Form)?;
        if name.is_empty() || name.chars().count() > LONGEST_NAME || !name.chars().all(is_visible) {
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

/// Last known state of another node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeState {
    /// The overview and the time of its arrival.
    pub(crate) last: Option<(Arc<Overview>, Instant)>,
    /// Failure of the last attempt.
    pub(crate) failure: Option<String>,
}

/// Another node with its last known state.
#[derive(Debug)]
pub(crate) struct OtherNode {
    pub(crate) address: NodeAddress,
    state: Mutex<NodeState>,
}

impl OtherNode {
    /// A node that has not been read yet.
    pub(crate) fn new(address: NodeAddress) -> Self {
        Self { address, state: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, NodeState> {
        self.state.lock().expect("nothing panics while it holds the state")
    }

    /// Last known state, or an empty one before the first attempt.
    pub(crate) fn state(&self) -> NodeState {
        self.held().clone()
    }

    /// Reads the node once; blocks for at most two seconds.
    pub(crate) fn read(&self) {
        let read = fetch(&self.address.url);
        let mut state = self.held();
        match read {
            Ok(overview) => {
                *state = NodeState { last: Some((Arc::new(overview), Instant::now())), failure: None }
            }
            Err(failure) => state.failure = Some(visible_within(&failure.to_string(), LONGEST_REASON)),
        }
    }
}

/// Failure to read another node. Its text contains no part of the answer and not the address.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("{0}")]
    Http(Box<ureq::Error>),
    #[error("it answers with status {0}")]
    Status(u16),
    #[error("its answer is no overview")]
    Content,
}

impl From<ureq::Error> for FetchError {
    fn from(error: ureq::Error) -> Self {
        Self::Http(Box::new(error))
    }
}

fn fetch(url: &str) -> Result<Overview, FetchError> {
    let config = ureq::Agent::config_builder()
        .proxy(None)
        .max_redirects(0)
        .http_status_as_error(false)
        .timeout_global(Some(PATIENCE))
        .build();
    let mut answer = config.new_agent().get(url).call()?;
    if answer.status() != 200 {
        return Err(FetchError::Status(answer.status().as_u16()));
    }
    let body = answer.body_mut().with_config().limit(LONGEST_ANSWER).read_to_vec()?;
    let overview: Overview = serde_json::from_slice(&body).map_err(|_| FetchError::Content)?;
    Ok(overview.bounded())
}

#[cfg(test)]
mod tests {
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
}
