//! Users behind local TCP connections, from the kernel's socket diagnostics.
//!
//! All programs of a machine share its addresses, and the kubelet's probes come from the same one as a
//! tenant's connections. The kernel knows the user of each socket in this network namespace, see
//! `sock_diag(7)`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST` and `NLMSG_ERROR` of `linux/netlink.h`.
const REQUEST: u16 = 1;
const ERROR: u16 = 2;
/// `AF_INET`, `AF_INET6` and `IPPROTO_TCP`.
const INET: u8 = 2;
const INET6: u8 = 10;
const TCP: u8 = 6;
/// Lengths of `struct nlmsghdr` and `struct inet_diag_req_v2`.
const HEADER: usize = 16;
const QUESTION: usize = 56;
/// Offsets of `nlmsg_type` and `nlmsg_seq`, then of fields of a message's body.
///
/// These are the error of `struct nlmsgerr`, and `idiag_uid` and `idiag_inode` of `struct inet_diag_msg`.
const KIND: usize = 4;
const NUMBER: usize = 8;
const CAUSE: usize = HEADER;
const UID: usize = HEADER + 64;
const INODE: usize = HEADER + 68;

/// Maximum wait for the kernel in seconds; it normally answers before the request returns.
const PATIENCE_S: i64 = 1;

/// Peer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Neighbour {
    /// A socket of this network namespace held by a process of this user.
    User(u32),
    /// A socket of this network namespace without a process; the kernel reports root for it.
    Gone,
    /// No socket of this network namespace.
    Elsewhere,
}

/// A netlink socket for socket diagnostics.
#[derive(Debug)]
pub(crate) struct Neighbours {
    line: OwnedFd,
    asked: u32,
}

impl Neighbours {
    /// Opens the socket.
    /// If netlink sockets are not allowed here, such as by `RestrictAddressFamilies=` of a unit.
    pub(crate) fn open() -> io::Result<Self> {
        let protocol = SockProtocol::NetlinkSockDiag;
        let line = socket(AddressFamily::Netlink, SockType::Datagram, SockFlag::SOCK_CLOEXEC, protocol)?;
        setsockopt(&line, sockopt::ReceiveTimeout, &TimeVal::new(PATIENCE_S, 0))?;
        Ok(Self { line, asked: 0 })
    }

    /// Owner of the socket at `peer` that is connected to `own`.
    ///
    /// # Errors
    /// If the kernel's answer is neither a socket nor its absence.
    pub(crate) fn holder(&mut self, peer: SocketAddr, own: SocketAddr) -> io::Result<Neighbour> {
        self.asked = self.asked.wrapping_add(1);
        send(self.line.as_raw_fd(), &question(self.asked, peer, own), MsgFlags::empty())?;
        let mut answer = [0; 512];
        loop {
            let length = recv(self.line.as_raw_fd(), &mut answer, MsgFlags::empty())?;
            let answer = answer.get(..length).unwrap_or_default();
            // Otherwise it answers an earlier request that timed out.
            if word(answer, NUMBER) == Some(self.asked) {
                return read(answer);
            }
        }
    }
}

fn question(number: u32, peer: SocketAddr, own: SocketAddr) -> [u8; HEADER + QUESTION] {
    let (of_peer, of_own) = (peer.ip().to_canonical(), own.ip().to_canonical());
    let mut bytes = [0; HEADER + QUESTION];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(0, &((HEADER + QUESTION) as u32).to_ne_bytes());
    put(KIND, &BY_FAMILY.to_ne_bytes());
    put(6, &REQUEST.to_ne_bytes());
    put(NUMBER, &number.to_ne_bytes());
    put(HEADER, &[if of_peer.is_ipv4() { INET } else { INET6 }, TCP]);
    put(HEADER + 4, &u32::MAX.to_ne_bytes()); // in any state
    put(HEADER + 8, &peer.port().to_be_bytes());
    put(HEADER + 10, &own.port().to_be_bytes());
    put(HEADER + 12, &octets(of_peer));
    put(HEADER + 28, &octets(of_own));
    put(HEADER + 48, &u64::MAX.to_ne_bytes()); // of any cookie
    bytes
}

fn octets(address: IpAddr) -> [u8; 16] {
    let mut octets = [0; 16];
    match address {
        IpAddr::V4(address) => octets[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => octets = address.octets(),
    }
    octets
}

fn read(answer: &[u8]) -> io::Result<Neighbour> {
    let broken = || io::Error::other("the kernel's socket diagnostics gave an answer that is too short");
    let kind = word(answer, KIND).ok_or_else(broken)? as u16;
    if kind == ERROR {
        let cause = word(answer, CAUSE).ok_or_else(broken)? as i32;
        return match Errno::from_raw(cause.wrapping_neg()) {
            Errno::ENOENT => Ok(Neighbour::Elsewhere),
            cause => Err(cause.into()),
        };
    }
    if kind != BY_FAMILY {
        return Err(io::Error::other(format!(
            "the kernel's socket diagnostics gave a message of kind {kind}"
        )));
    }
    let (uid, inode) = (word(answer, UID).ok_or_else(broken)?, word(answer, INODE).ok_or_else(broken)?);
    Ok(if inode == 0 { Neighbour::Gone } else { Neighbour::User(uid) })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use proptest::prelude::*;

    use super::*;

    fn between(address: &str, asked: &str) -> (Neighbour, Neighbour) {
        let listener = TcpListener::bind(address).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect((asked, port)).unwrap();
        let (taken, peer) = listener.accept().unwrap();
        let own = taken.local_addr().unwrap();
        let mut neighbours = Neighbours::open().unwrap();
        let held = neighbours.holder(peer, own).unwrap();
        drop(client);
        (held, neighbours.holder(peer, own).unwrap())
    }

    #[test]
    fn local_peer_has_its_user_until_closed() {
        let own = nix::unistd::geteuid().as_raw();
        for (address, asked) in [("127.0.0.1:0", "127.0.0.1"), ("[::]:0", "127.0.0.1"), ("[::]:0", "::1")] {
            let (held, closed) = between(address, asked);
            assert_eq!((held, closed), (Neighbour::User(own), Neighbour::Gone), "{asked} at {address}");
        }
    }

    #[test]
    fn unknown_peer_is_elsewhere() {
        let mut neighbours = Neighbours::open().unwrap();
        let [peer, own] = ["192.0.2.1:7".parse().unwrap(), "192.0.2.2:9".parse().unwrap()];
        assert_eq!(neighbours.holder(peer, own).unwrap(), Neighbour::Elsewhere);
    }

    proptest! {
        #[test]
        fn arbitrary_answers_never_panic(answer in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&answer);
        }
    }
}
