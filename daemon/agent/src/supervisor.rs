//! The service supervisor, as systemd is one: it listens at our socket before we are there and while we are not, it is
//! told when calls are answered, and it ends a daemon that gets nothing done.
//!
//! Without one, all of this does nothing.

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

/// The first descriptor that is handed over.
const FIRST: RawFd = 3;

/// The socket at `path`, if the supervisor listens there for us.
///
/// # Errors
/// If it hands over something that is no such socket.
pub(crate) fn door(path: &Path) -> io::Result<Option<UnixListener>> {
    for number in handed_over(variable) {
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

/// Calls are answered from now on.
pub(crate) fn ready(slices: usize, gpus: usize) {
    tell(&format!("READY=1\nSTATUS=serves {gpus} GPU(s), {slices} slice(s) taken over"));
}

/// We end because we were told to.
pub(crate) fn stopping() {
    tell("STOPPING=1\nSTATUS=stops; slices and their processes stay as they are");
}

/// We get things done.
pub(crate) fn alive() {
    tell("WATCHDOG=1");
}

/// How long we may be silent until the supervisor takes us for stuck; nothing where it does not care.
pub(crate) fn patience() -> Option<Duration> {
    patience_by(variable)
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

fn patience_by(variable: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let ours = variable("WATCHDOG_PID").is_none_or(|pid| is_ours(&pid));
    let patience: u64 = variable("WATCHDOG_USEC")?.parse().ok()?;
    (ours && patience > 0).then_some(Duration::from_micros(patience))
}

/// Children have these variables from us, and are not meant.
fn handed_over(variable: impl Fn(&str) -> Option<String>) -> std::ops::Range<RawFd> {
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

/// The supervisor's socket: a path, or with a leading `@` a name without one.
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
    fn only_what_was_handed_to_this_process_is_taken() {
        let me = std::process::id().to_string();
        let count = |pairs: &[(&'static str, &str)]| handed_over(said(pairs)).len();
        assert_eq!(count(&[("LISTEN_PID", &me), ("LISTEN_FDS", "2")]), 2);
        assert_eq!(count(&[("LISTEN_PID", "1"), ("LISTEN_FDS", "2")]), 0);
        assert_eq!(count(&[("LISTEN_FDS", "2")]), 0);
        assert_eq!(count(&[("LISTEN_PID", &me), ("LISTEN_FDS", "-1")]), 0);
        assert_eq!(count(&[("LISTEN_PID", &me)]), 0);
    }

    #[test]
    fn the_patience_meant_for_another_process_is_not_ours() {
        let me = std::process::id().to_string();
        let patience = |pairs: &[(&'static str, &str)]| patience_by(said(pairs));
        assert_eq!(patience(&[("WATCHDOG_USEC", "1500000")]), Some(Duration::from_millis(1500)));
        assert_eq!(
            patience(&[("WATCHDOG_USEC", "2"), ("WATCHDOG_PID", &me)]),
            Some(Duration::from_micros(2))
        );
        assert_eq!(patience(&[("WATCHDOG_USEC", "2"), ("WATCHDOG_PID", "1")]), None);
        assert_eq!(patience(&[("WATCHDOG_USEC", "0")]), None);
        assert_eq!(patience(&[("WATCHDOG_USEC", "soon")]), None);
    }

    #[test]
    fn a_socket_has_a_path_or_a_name() {
        assert_eq!(address(OsStr::new("@x")).unwrap().as_abstract_name(), Some(&b"x"[..]));
        assert_eq!(address(OsStr::new("/run/x")).unwrap().as_pathname(), Some(Path::new("/run/x")));
    }
}
