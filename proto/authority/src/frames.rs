//! Division of a client's bytes into HTTP/2 frames (RFC 9113, sections 3.4, 4.1 and 6.2).

use tokio::io::ReadBuf;

use crate::hpack;

/// Length of the connection preface, and of a frame's header.
const PREFACE: usize = 24;
const HEADER: usize = 9;
/// Type of a frame with a header block.
const HEADERS: u8 = 1;
/// Flags of such a frame.
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Longest header block that is held until it is whole, in bytes.
///
/// It is that of the largest frame, unless a server allows larger ones.
const LONGEST_BLOCK: usize = 16 * 1024;

/// A client's bytes on their way to the server.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Bytes for the server, and how many of them it has.
    ready: Vec<u8>,
    taken: usize,
    /// Bytes of a frame's header, or of a whole frame, that are held back.
    held: Vec<u8>,
    expected: Expected,
}

/// Content of the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Bytes that are passed on as they are, by their number.
    Plain(usize),
    /// A frame's header, of which a part is held.
    Header,
    /// A frame with a header block of this length, header included, of which a part is held.
    Block(usize),
}

impl Default for Frames {
    fn default() -> Self {
        Self { ready: Vec::new(), taken: 0, held: Vec::new(), expected: Expected::Plain(PREFACE) }
    }
}

impl Frames {
    /// Moves ready bytes into `into`. Returns false if there are none.
    pub(crate) fn take(&mut self, into: &mut ReadBuf<'_>) -> bool {
        let rest = &self.ready[self.taken..];
        let count = rest.len().min(into.remaining());
        into.put_slice(&rest[..count]);
        self.taken += count;
        if self.taken == self.ready.len() {
            self.ready.clear();
            self.taken = 0;
        }
        count > 0
    }

    /// Releases what is held at the client's end. Returns false if nothing is.
    pub(crate) fn end(&mut self) -> bool {
        self.ready.append(&mut self.held);
        !self.ready.is_empty()
    }

    /// Takes bytes of the client.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let wanted = match self.expected {
                Expected::Plain(left) => left,
                Expected::Header => HEADER - self.held.len(),
                Expected::Block(length) => length - self.held.len(),
            };
            let (now, later) = bytes.split_at(wanted.min(bytes.len()));
            bytes = later;
            match self.expected {
                Expected::Plain(_) => self.ready.extend_from_slice(now),
                Expected::Header | Expected::Block(_) => self.held.extend_from_slice(now),
            }
            if now.len() == wanted {
                self.complete();
            } else if let Expected::Plain(left) = &mut self.expected {
                *left -= now.len();
            }
        }
    }

    /// Interprets the expected bytes, and sets what follows them.
    fn complete(&mut self) {
        self.expected = match self.expected {
            Expected::Plain(_) => Expected::Header,
            Expected::Header => {
                let length = usize::from(self.held[0]) << 16
                    | usize::from(self.held[1]) << 8
                    | usize::from(self.held[2]);
                if self.held[3] == HEADERS && (1..=LONGEST_BLOCK).contains(&length) {
                    Expected::Block(HEADER + length)
                } else {
                    self.ready.append(&mut self.held);
                    if length == 0 { Expected::Header } else { Expected::Plain(length) }
                }
            }
            Expected::Block(_) => {
                if let Some(block) = block(&mut self.held) {
                    hpack::mend(block);
                }
                self.ready.append(&mut self.held);
                Expected::Header
            }
        };
    }
}

/// The header block of a frame. `None` if the frame is malformed, which the server will find.
fn block(frame: &mut [u8]) -> Option<&mut [u8]> {
    let (header, payload) = frame.split_at_mut_checked(HEADER)?;
    let flags = header[4];
    let has = |flag: u8| flags & flag != 0;
    let padding = if has(PADDED) { usize::from(*payload.first()?) } else { 0 };
    let begin = usize::from(has(PADDED)) + if has(PRIORITY) { 5 } else { 0 };
    let end = payload.len().checked_sub(padding)?;
    payload.get_mut(begin..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame of a type with flags.
    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn passed(chunks: &[&[u8]]) -> Vec<u8> {
        let (mut frames, mut all) = (Frames::default(), Vec::new());
        let mut drain = |frames: &mut Frames| {
            let mut buffer = [0; 7];
            let mut read = ReadBuf::new(&mut buffer);
            while frames.take(&mut read) {
                all.extend_from_slice(read.filled());
                read.clear();
            }
        };
        for chunk in chunks {
            frames.feed(chunk);
            drain(&mut frames);
        }
        if frames.end() {
            drain(&mut frames);
        }
        all
    }

    /// A connection with a request for "/x" whose authority is this.
    fn connection(authority: &[u8], flags: u8) -> Vec<u8> {
        let length = u8::try_from(authority.len()).unwrap();
        let fields = [&[0x83, 0x41, length], authority, &[0x04, 2, b'/', b'x']].concat();
        let block = match flags {
            0 => fields,
            PADDED => [&[3], &fields[..], &[0; 3]].concat(),
            _ => [&[0; 5], &fields[..]].concat(),
        };
        [vec![b'P'; PREFACE], frame(4, 0, b""), frame(HEADERS, flags, &block), frame(0, 1, b"\x01/%")]
            .concat()
    }

    #[test]
    fn path_becomes_an_authority_of_its_length() {
        for flags in [0, PADDED, PRIORITY] {
            let expected = connection(b"-2Frun-2Fx.sock", flags);
            assert_eq!(passed(&[&connection(b"%2Frun%2Fx.sock", flags)]), expected);
            assert_eq!(passed(&[&connection(b"-run-x.sock", flags)]), connection(b"-run-x.sock", flags));
            assert_eq!(passed(&[&connection(b"/run/x.sock", flags)]), connection(b"-run-x.sock", flags));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_keep_their_number_and_order(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..8)) {
            let all = chunks.concat();
            let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            let whole = passed(&[&all]);
            prop_assert_eq!(whole.len(), all.len());
            prop_assert_eq!(passed(&chunks), whole);
        }

        #[test]
        fn cuts_do_not_matter(authority in "[%/a-z0-9]{0,40}", cuts in proptest::collection::vec(0..100usize, 0..5)) {
            let bytes = connection(authority.as_bytes(), 0);
            let mended = connection(authority.replace(['%', '/'], "-").as_bytes(), 0);
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(passed(&chunks), mended);
        }
    }
}
