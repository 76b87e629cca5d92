//! API server client that posts events of the node with the pod's service account.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs, io};

use serde_json::json;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::node_events::NodeEvent;

/// Time limit of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of bytes read of an answer.
const ANSWER: u64 = 16 * 1024;
/// Component name in the events.
const COMPONENT: &str = "tranche-deviceplugin";

/// Address and credentials for the API server.
#[derive(Debug)]
pub(crate) struct Account {
    server: String,
    node: String,
    /// Directory of the token and the CA certificate, which are rotated.
    directory: PathBuf,
}

/// Reason for which there is no account.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAccount {
    #[error("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, as they are in a pod")]
    Server,
    #[error("there is no service account at {}", .0.display())]
    Token(PathBuf),
    #[error("NODE_NAME is not set, and the host has no name")]
    Node,
}

/// Reason for which an event could not be posted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostError {
    #[error("cannot read {}: {cause}", .path.display())]
    Read { path: PathBuf, cause: io::Error },
    #[error("{server} cannot be asked: {cause}")]
    Away { server: String, cause: Box<ureq::Error> },
    #[error("{server} answers {status}: {message}{}", advice(*.status))]
    Refused { server: String, status: u16, message: String },
}

/// Advice for an HTTP status.
const fn advice(status: u16) -> &'static str {
    match status {
        401 | 403 => {
            "; may the service account create events in the namespace default? The chart's role says so"
        }
        _ => "",
    }
}

impl PostError {
    /// Tests if another attempt may succeed.
    pub(crate) const fn may_pass(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Away { .. } => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
        }
    }
}

impl Account {
    /// The service account of this pod, if it has one.
    pub(crate) fn find(directory: &Path) -> Result<Self, NoAccount> {
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let host = set("KUBERNETES_SERVICE_HOST").ok_or(NoAccount::Server)?;
        let port = set("KUBERNETES_SERVICE_PORT").ok_or(NoAccount::Server)?;
        if !directory.join("token").exists() {
            return Err(NoAccount::Token(directory.to_owned()));
        }
        // Without a configured name the kubelet uses the host name in lower case.
        let node = tranche_adapter::node_name().ok_or(NoAccount::Node)?;
        Ok(Self { server: server(&host, &port), node, directory: directory.to_owned() })
    }

    /// Posts an event of the node that happened at that time.
    pub(crate) fn post(&self, news: &NodeEvent, at: SystemTime) -> Result<(), PostError> {
        let token = String::from_utf8_lossy(&self.read("token")?).trim().to_owned();
        let authority = self.read("ca.crt")?;
        let away = |cause| PostError::Away { server: self.server.clone(), cause: Box::new(cause) };
        let answer = agent(&authority)
            .post(format!("{}/api/v1/namespaces/default/events", self.server))
            .header("Authorization", format!("Bearer {token}"))
            .header("Content-Type", "application/json")
            .send(event(&self.node, news, at).to_string());
        let mut answer = answer.map_err(away)?;
        let status = answer.status().as_u16();
        // 409: an earlier attempt arrived although its answer did not.
        if answer.status().is_success() || status == 409 {
            return Ok(());
        }
        let text = answer.body_mut().with_config().limit(ANSWER).read_to_string().unwrap_or_default();
        Err(PostError::Refused { server: self.server.clone(), status, message: message(text) })
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, PostError> {
        let path = self.directory.join(name);
        fs::read(&path).map_err(|cause| PostError::Read { path, cause })
    }
}

fn server(host: &str, port: &str) -> String {
    if host.contains(':') { format!("https://[{host}]:{port}") } else { format!("https://{host}:{port}") }
}

/// An HTTP agent that trusts the cluster's CA only and uses no proxy.
fn agent(authority: &[u8]) -> ureq::Agent {
    let certificates = parse_pem(authority).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let trusted: Vec<Certificate<'static>> = certificates.collect();
    let tls = TlsConfig::builder().root_certs(RootCerts::from(trusted)).build();
    let config = ureq::Agent::config_builder()
        .tls_config(tls)
        .https_only(true)
        .proxy(None)
        .max_redirects(0)
        .http_status_as_error(false)
        .timeout_global(Some(PATIENCE));
    config.build().new_agent()
}

/// Message of the API server's status document, or the text itself if it is none.
fn message(text: String) -> String {
    let document: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    let said = document.as_ref().and_then(|document| document.get("message")?.as_str());
    said.map_or(text.trim(), |said| said).chars().take(300).collect()
}

/// Event in the form of the kubelet's node events, so that `kubectl describe node` lists them together.
fn event(node: &str, news: &NodeEvent, at: SystemTime) -> serde_json::Value {
    let (time, nanos) =
        (humantime::format_rfc3339_seconds(at), at.duration_since(UNIX_EPOCH).unwrap_or_default());
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": format!("{node}.{:x}", nanos.as_nanos()), "namespace": "default" },
        "involvedObject": { "apiVersion": "v1", "kind": "Node", "name": node, "uid": node },
        "reason": news.reason,
        "message": news.message,
        "type": if news.is_warning { "Warning" } else { "Normal" },
        "source": { "component": COMPONENT, "host": node },
        "reportingComponent": COMPONENT,
        "reportingInstance": node,
        "firstTimestamp": time.to_string(),
        "lastTimestamp": time.to_string(),
        "count": 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_has_the_form_of_kubelet_events() {
        let news = NodeEvent { reason: "GpuBroken", is_warning: true, message: "GPU-1 is \"broken\"".into() };
        let event = event("n1", &news, UNIX_EPOCH + Duration::from_secs(1));
        assert_eq!(event["metadata"]["name"], "n1.3b9aca00");
        assert_eq!((&event["involvedObject"]["uid"], &event["source"]["host"]), (&json!("n1"), &json!("n1")));
        assert_eq!(event["lastTimestamp"], "1970-01-01T00:00:01Z");
        assert_eq!((&event["type"], &event["message"]), (&json!("Warning"), &json!("GPU-1 is \"broken\"")));
    }

    #[test]
    fn server_url_supports_ipv4_and_ipv6() {
        assert_eq!(server("10.0.0.1", "443"), "https://10.0.0.1:443");
        assert_eq!(server("fd00::1", "6443"), "https://[fd00::1]:6443");
    }

    #[test]
    fn only_transient_errors_are_retried() {
        let refused = |status| PostError::Refused { server: "s".into(), status, message: "m".into() };
        assert!([429, 500, 503].map(refused).iter().all(PostError::may_pass));
        assert!(![401, 403, 404, 409, 422].map(refused).iter().any(PostError::may_pass));
        assert!(refused(403).to_string().contains("create events"), "{}", refused(403));
        assert_eq!(message("{\"message\": \"no\"}".into()), "no");
        assert_eq!(message(" gone\n".into()), "gone");
    }
}
