//! The mark of an event that several processes have.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use simgpu::{Node, Ticket};

use crate::memory::backing::Backing;
use crate::memory::heap::BLOCK;
use crate::status::{Outcome, Status};

/// Words of a mark, and behind them one that shows that they belong together.
const WORDS: usize = 6;

/// A file that holds the last mark, empty until there is one.
pub(crate) struct SharedMark(File);

impl SharedMark {
    /// A file of this process, in which nothing is recorded.
    pub(crate) fn new() -> Outcome<Self> {
        Ok(Self(Backing::sparse(BLOCK).file()?))
    }

    /// That of another process's event, by its pid and descriptor.
    pub(crate) fn open(process: u64, descriptor: u64) -> Outcome<Self> {
        let path = format!("/proc/{process}/fd/{descriptor}");
        OpenOptions::new().read(true).write(true).open(path).map(Self).map_err(|_| Status::InvalidValue)
    }

    /// The descriptor by which another process can open it while this one has the event.
    pub(crate) fn descriptor(&self) -> u64 {
        self.0.as_raw_fd() as u64
    }

    /// Replaces the mark for all processes that have the file.
    pub(crate) fn set(&self, mark: Ticket) {
        // A file of memory can always be written.
        let _ = self.0.write_all_at(&packed(mark.words()), 0);
    }

    /// The last mark, if there is one.
    pub(crate) fn get(&self, node: &Node) -> Option<Ticket> {
        // A mark that is being replaced is read again; one that a dead process left half written is none.
        (0..100).find_map(|_| self.read(node))
    }

    fn read(&self, node: &Node) -> Option<Ticket> {
        let mut bytes = [0; WORDS * 8];
        self.0.read_exact_at(&mut bytes, 0).ok()?;
        node.ticket(unpacked(bytes)?)
    }
}

const fn sum(words: [u64; WORDS - 1]) -> u64 {
    let [a, b, c, d, e] = words;
    !(a ^ b.rotate_left(8) ^ c.rotate_left(16) ^ d.rotate_left(24) ^ e.rotate_left(32))
}

fn packed(words: [u64; WORDS - 1]) -> Vec<u8> {
    words.into_iter().chain([sum(words)]).flat_map(u64::to_ne_bytes).collect()
}

fn unpacked(bytes: [u8; WORDS * 8]) -> Option<[u64; WORDS - 1]> {
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte]));
    let words = std::array::from_fn(word);
    (word(WORDS - 1) == sum(words)).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::{WORDS, packed, unpacked};

    #[test]
    fn words_that_do_not_belong_together_are_no_mark() {
        let words = [1, 2, 3, 4, 5];
        let bytes: [u8; WORDS * 8] = packed(words).try_into().unwrap();
        assert_eq!(unpacked(bytes), Some(words));
        let mut torn = bytes;
        torn[24] = 9;
        assert_eq!((unpacked(torn), unpacked([0; WORDS * 8])), (None, None));
    }
}
