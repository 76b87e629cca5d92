//! Clients that name the socket's path as their authority, as those of gRPC in Go, Python and C++ do.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use e2e::Node;

/// Types of frames: headers, and the reset of a stream.
const HEADERS: u8 = 1;
const RESET: u8 = 3;

/// A frame of the first stream.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

/// A call of `Snapshot` by a client with this authority.
fn call(authority: &str) -> Vec<u8> {
    // Indexed POST and http, then literals: the path, the authority, the content's type and `te`.
    let literal = |name: u8, value: &str| {
        [&[name, u8::try_from(value.len()).expect("a short value")], value.as_bytes()].concat()
    };
    let te = [&[0, 2], &b"te"[..], &[8], b"trailers"].concat();
    let fields = [
        vec![0x83, 0x86],
        literal(0x44, "/tranche.v1.Node/Snapshot"),
        literal(0x41, authority),
        literal(0x5f, "application/grpc"),
        te,
    ];
    let message = frame(0, 1, 1, &[0; 5]);
    let parts = [frame(4, 0, 0, b""), frame(HEADERS, 4, 1, &fields.concat()), message];
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), parts.concat()].concat()
}

/// Type of the first frame of the answer, and its payload.
fn answer(stream: &mut UnixStream) -> (u8, Vec<u8>) {
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).expect("the daemon answers");
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; usize::try_from(length).expect("24 bits")];
        stream.read_exact(&mut payload).expect("the daemon answers whole frames");
        if header[8] == 1 && [HEADERS, RESET].contains(&header[3]) {
            return (header[3], payload);
        }
    }
}

#[test]
fn client_that_names_the_sockets_path_is_served() {
    let node = Node::simulated("v100x8");
    let path = node.socket().display().to_string();
    for authority in ["localhost", &path, &path.replace('/', "%2F")] {
        let mut stream = UnixStream::connect(node.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(&call(authority)).unwrap();
        let (kind, payload) = answer(&mut stream);
        // The first field is the indexed status 200.
        assert_eq!((kind, payload.first()), (HEADERS, Some(&0x88)), "authority {authority}");
    }
}
