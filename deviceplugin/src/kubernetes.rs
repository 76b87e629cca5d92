//! The API server, as far as the plugin needs it: to post an event of its node, with its pod's service account.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs, io};

use serde_json::json;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::news::News;

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is read of an answer.
const ANSWER: u64 = 16 * 1024;
/// Who says so.
const COMPONENT: &str = "tranche-deviceplugin";

/// Where the API server is, and who we are there.
#[derive(Debug)]
pub(crate) struct Account {
    server: String,
    node: String,
    /// The token and the authority's certificate; both are replaced from time to time.
    directory: PathBuf,
}

/// Why there is no account.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAccount {
    #[error("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, as they are in a pod")]
    Server,
    #[error("there is no service account at {}", .0.display())]
    Token(PathBuf),
    #[error("NODE_NAME is not set, and the host has no name")]
    Node,
}

/// Why an event is not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostError {
    #[error("cannot read {}: {cause}", .path.display())]
    Read { path: PathBuf, cause: io::Error },
    #[error("{server} cannot be asked: {cause}")]
    Away { server: String, cause: Box<ureq::Error> },
    #[error("{server} answers {status}: {message}{}", advice(*.status))]
    Refused { server: String, status: u16, message: String },
}

/// What can be done about a status.
const fn advice(status: u16) -> &'static str {
    match status {
        401 | 403 => {
            "; may the service account create events in the namespace default? The chart's role says so"
        }
        _ => "",
    }
}

impl PostError {
    /// Whether another attempt may succeed.
    pub(crate) const fn may_pass(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Away { .. } => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
        }
    }
}

impl Account {
    /// The account of this pod, if it has one.
    pub(crate) fn find(directory: &Path) -> Result<Self, NoAccount> {
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let host = set("KUBERNETES_SERVICE_HOST").ok_or(NoAccount::Server)?;
        let port = set("KUBERNETES_SERVICE_PORT").ok_or(NoAccount::Server)?;
        if !directory.join("token").exists() {
            return Err(NoAccount::Token(directory.to_owned()));
        }
        // A kubelet that is told no name takes the host's, in small letters.
        let of_host = || nix::unistd::gethostname().ok()?.into_string().ok().map(|name| name.to_lowercase());
        let node = set("NODE_NAME").or_else(of_host).ok_or(NoAccount::Node)?;
        Ok(Self { server: server(&host, &port), node, directory: directory.to_owned() })
    }

    /// Posts one event.
    pub(crate) fn post(&self, news: &News, at: SystemTime) -> Result<(), PostError> {
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
        // There already: an earlier attempt arrived though its answer did not.
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

/// One that trusts the cluster's authority alone, and goes through nobody.
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

/// The API server explains itself in a document of its own; others in between may not.
fn message(text: String) -> String {
    let document: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    let said = document.as_ref().and_then(|document| document.get("message")?.as_str());
    said.map_or(text.trim(), |said| said).chars().take(300).collect()
}

/// As the kubelet writes its own events of the node, so that `kubectl describe node` shows them together.
fn event(node: &str, news: &News, at: SystemTime) -> serde_json::Value {
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
    fn an_event_is_of_the_node_as_the_kubelets_are() {
        let news = News { reason: "GpuBroken", is_warning: true, message: "GPU-1 is \"broken\"".into() };
        let event = event("n1", &news, UNIX_EPOCH + Duration::from_secs(1));
        assert_eq!(event["metadata"]["name"], "n1.3b9aca00");
        assert_eq!((&event["involvedObject"]["uid"], &event["source"]["host"]), (&json!("n1"), &json!("n1")));
        assert_eq!(event["lastTimestamp"], "1970-01-01T00:00:01Z");
        assert_eq!((&event["type"], &event["message"]), (&json!("Warning"), &json!("GPU-1 is \"broken\"")));
    }

    #[test]
    fn an_address_of_either_kind_is_a_server() {
        assert_eq!(server("10.0.0.1", "443"), "https://10.0.0.1:443");
        assert_eq!(server("fd00::1", "6443"), "https://[fd00::1]:6443");
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let refused = |status| PostError::Refused { server: "s".into(), status, message: "m".into() };
        assert!([429, 500, 503].map(refused).iter().all(PostError::may_pass));
        assert!(![401, 403, 404, 409, 422].map(refused).iter().any(PostError::may_pass));
        assert!(refused(403).to_string().contains("create events"), "{}", refused(403));
        assert_eq!(message("{\"message\": \"no\"}".into()), "no");
        assert_eq!(message(" gone\n".into()), "gone");
    }
}
