//! Check of each request before it reaches a route, and the headers of each answer.
//!
//! A page of a stranger that is open in a viewer's browser can send requests here. It cannot read answers, unless its
//! own name resolves to this address (DNS rebinding): that name is then the request's `Host`, and is refused.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::Response;

/// Content comes from here alone, and no page may frame it.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
/// Site of the page that made a browser send a request.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Names of the page, beside loopback names and the address of the connection itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllowedHosts(pub(crate) Arc<[String]>);

/// Own address of the connection of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalAddress(pub(crate) SocketAddr);

impl AllowedHosts {
    /// Tests if a request with this host came to where it wanted.
    fn allows(&self, host: &str, local: IpAddr) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let Ok(address) = host.parse::<IpAddr>() else {
            return host == "localhost" || self.0.contains(&host);
        };
        // An address cannot be made to mean another one, as a name can.
        address.to_canonical().is_loopback() || address.to_canonical() == local.to_canonical()
    }
}

/// Refuses what is not for this server, and sets the headers of all answers.
pub(crate) async fn guard(State(hosts): State<AllowedHosts>, request: Request, next: Next) -> Response {
    let local = request.extensions().get::<LocalAddress>().copied();
    let refusal = match local {
        None => Some((StatusCode::INTERNAL_SERVER_ERROR, "the address of the connection is not known\n")),
        Some(LocalAddress(local)) => {
            refusal(&hosts, request.method(), request.uri(), request.headers(), local.ip())
        }
    };
    let mut answer = match refusal {
        Some((status, text)) => plain(status, text),
        None => next.run(request).await,
    };
    let fixed = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (RESOURCE_POLICY, "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ];
    let headers = answer.headers_mut();
    headers.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
    answer
}

fn refusal(
    hosts: &AllowedHosts,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    local: IpAddr,
) -> Option<(StatusCode, &'static str)> {
    if ![Method::GET, Method::HEAD].contains(method) {
        return Some((StatusCode::METHOD_NOT_ALLOWED, "this server only shows: GET\n"));
    }
    let mut named = headers.get_all(HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else {
        return Some((StatusCode::BAD_REQUEST, "exactly one Host is needed\n"));
    };
    let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    let both = [host.as_ref(), uri.authority()];
    let is_allowed = |authority: &Authority| hosts.allows(authority.host(), local);
    if host.is_none() || !both.into_iter().flatten().all(is_allowed) {
        let text = "this server is not known under that name; `--host NAME` of tranche-page adds one\n";
        return Some((StatusCode::FORBIDDEN, text));
    }
    // Links from elsewhere open the page; nothing else of it is for other sites.
    let is_foreign = headers.get(SITE).is_some_and(|site| site == "cross-site");
    (is_foreign && uri.path() != "/")
        .then_some((StatusCode::FORBIDDEN, "another site's page may not read this\n"))
}

/// Answer in plain text.
pub(crate) fn plain(status: StatusCode, text: impl Into<Body>) -> Response {
    let mut answer = Response::new(text.into());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(hosts: &[&str], uri: &str, site: Option<&'static str>) -> Option<u16> {
        let allowed = AllowedHosts(["gpu2.example".to_owned()].into());
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, host.parse().unwrap());
        }
        site.map(|site| headers.insert(SITE, HeaderValue::from_static(site)));
        let local = "192.0.2.7".parse().unwrap();
        let refusal = refusal(&allowed, &Method::GET, &uri.parse().unwrap(), &headers, local);
        refusal.map(|(status, _)| status.as_u16())
    }

    #[test]
    fn loopback_names_own_address_and_configured_names_are_served() {
        for host in
            ["localhost", "LOCALHOST:9465", "127.0.0.1:1", "[::1]:9465", "192.0.2.7:9465", "gpu2.example"]
        {
            assert_eq!(status(&[host], "/", None), None, "{host}");
        }
    }

    #[test]
    fn other_names_are_refused() {
        let others = [
            "evil.example",
            "localhost.evil.example",
            "192.0.2.8",
            "127.0.0.1.evil.example",
            "",
            "a b",
            "x@localhost:1",
        ];
        for host in others {
            let status = status(&[host], "/", None);
            // A user name before a host is no part of it.
            assert_eq!(status, if host.contains('@') { None } else { Some(403) }, "{host}");
        }
        assert_eq!(status(&[], "/", None), Some(400));
        assert_eq!(status(&["localhost", "evil.example"], "/", None), Some(400));
        assert_eq!(status(&["localhost"], "http://evil.example/", None), Some(403));
    }

    #[test]
    fn other_sites_may_link_and_not_read() {
        assert_eq!(status(&["localhost"], "/", Some("cross-site")), None);
        assert_eq!(status(&["localhost"], "/events", Some("cross-site")), Some(403));
        assert_eq!(status(&["localhost"], "/events", Some("same-origin")), None);
    }

    #[test]
    fn changing_methods_are_refused() {
        let hosts = AllowedHosts::default();
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
            let local = "127.0.0.1".parse().unwrap();
            let refused = refusal(&hosts, &method, &Uri::from_static("/"), &HeaderMap::new(), local);
            assert_eq!(refused.map(|(status, _)| status), Some(StatusCode::METHOD_NOT_ALLOWED), "{method}");
        }
    }
}
