//! Interface to the service supervisor, such as systemd. Socket activation, readiness and watchdog messages.
//!
//! Without a supervisor, all functions do nothing.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::fd::RawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;
use std::time::Duration;

use crate::sys;

/// First descriptor of socket activation.
const FIRST: RawFd = 3;

/// The listening socket at `path`, if the supervisor passed one.
///
/// # Errors
/// A descriptor that was passed is no such socket.
pub fn door(path: &Path) -> io::Result<Option<UnixListener>> {
    for number in passed_descriptors(variable) {
        let listener = sys::inherited_listener(number)?;
        let address = listener.local_addr()?;
        if address.as_pathname() == Some(path) {
            listener.set_nonblocking(true)?;
            return Ok(Some(listener));
        }
        tracing::warn!(?address, "the supervisor listens there for us, where we serve nothing");
    }
    Ok(None)
}

/// Reports that calls are served.
pub fn ready(slices: usize, gpus: usize) {
    tell(&format!("READY=1\nSTATUS=serves {gpus} GPU(s), {slices} slice(s) taken over"));
}

/// Reports that the daemon is ending on request.
pub fn stopping() {
    tell("STOPPING=1\nSTATUS=stops; slices and their processes stay as they are");
}

/// Sends a watchdog message.
pub fn alive() {
    tell("WATCHDOG=1");
}

/// Watchdog timeout of the supervisor; `None` if it has none.
pub fn watchdog_timeout() -> Option<Duration> {
    patience_by(variable)
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

fn patience_by(variable: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let ours = variable("WATCHDOG_PID").is_none_or(|pid| is_ours(&pid));
    let watchdog_timeout: u64 = variable("WATCHDOG_USEC")?.parse().ok()?;
    (ours && watchdog_timeout > 0).then_some(Duration::from_micros(watchdog_timeout))
}

/// Descriptors passed to this process. Child processes inherit the variables, so the pid in them is checked.
fn passed_descriptors(variable: impl Fn(&str) -> Option<String>) -> std::ops::Range<RawFd> {
    let ours = variable("LISTEN_PID").is_some_and(|pid| is_ours(&pid));
    let count = variable("LISTEN_FDS").and_then(|count| count.parse::<u16>().ok());
    let count = count.filter(|_| ours).unwrap_or_default();
    FIRST..FIRST + RawFd::from(count)
}

fn is_ours(pid: &str) -> bool {
    pid.parse() == Ok(std::process::id())
}

fn tell(words: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return };
    let told = UnixDatagram::unbound()
        .and_then(|datagram| datagram.send_to_addr(words.as_bytes(), &address(&socket)?));
    if let Err(error) = told {
        tracing::warn!(%error, "cannot tell the service supervisor {words:?}");
    }
}

/// Address of the supervisor's socket: a path, or with a leading `@` an abstract name.
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(socket),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pairs: &[(&'static str, &str)]) -> impl Fn(&str) -> Option<String> {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        move |name| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn descriptors_of_another_process_are_ignored() {
        let me = std::process::id().to_string();
        let count = |pairs: &[(&'static str, &str)]| passed_descriptors(said(pairs)).len();
        assert_eq!(count(&[("LISTEN_PID", &me), ("LISTEN_FDS", "2")]), 2);
        assert_eq!(count(&[("LISTEN_PID", "1"), ("LISTEN_FDS", "2")]), 0);
        assert_eq!(count(&[("LISTEN_FDS", "2")]), 0);
        assert_eq!(count(&[("LISTEN_PID", &me), ("LISTEN_FDS", "-1")]), 0);
        assert_eq!(count(&[("LISTEN_PID", &me)]), 0);
    }

    #[test]
    fn watchdog_timeout_of_another_process_is_ignored() {
        let me = std::process::id().to_string();
        let watchdog_timeout = |pairs: &[(&'static str, &str)]| patience_by(said(pairs));
        assert_eq!(watchdog_timeout(&[("WATCHDOG_USEC", "1500000")]), Some(Duration::from_millis(1500)));
        assert_eq!(
            watchdog_timeout(&[("WATCHDOG_USEC", "2"), ("WATCHDOG_PID", &me)]),
            Some(Duration::from_micros(2))
        );
        assert_eq!(watchdog_timeout(&[("WATCHDOG_USEC", "2"), ("WATCHDOG_PID", "1")]), None);
        assert_eq!(watchdog_timeout(&[("WATCHDOG_USEC", "0")]), None);
        assert_eq!(watchdog_timeout(&[("WATCHDOG_USEC", "soon")]), None);
    }

    #[test]
    fn socket_address_is_a_path_or_abstract_name() {
        assert_eq!(address(OsStr::new("@x")).unwrap().as_abstract_name(), Some(&b"x"[..]));
        assert_eq!(address(OsStr::new("/run/x")).unwrap().as_pathname(), Some(Path::new("/run/x")));
    }
}
