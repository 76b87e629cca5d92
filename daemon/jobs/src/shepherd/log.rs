//! What the command prints: both of its streams in one file, of which the last part is kept.

use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::thread::{self, JoinHandle};

use nix::fcntl::{FallocateFlags, fallocate};

/// So much of the end is kept, in bytes.
const KEPT: u64 = 64 << 20;
/// And is cut at so many beyond it.
const SLACK: u64 = 8 << 20;

/// Copies until nobody can write any more.
pub(crate) fn keep(from: PipeReader, to: File) -> JoinHandle<()> {
    thread::spawn(move || {
        let _ = copy(from, to);
    })
}

fn copy(mut from: PipeReader, mut to: File) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let mut size = to.metadata()?.len();
    let mut kept_from = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        // A full disk must not stop the program: what cannot be kept is lost.
        if to.write_all(&buffer[..count]).is_ok() {
            size += count as u64;
        }
        if size > kept_from + KEPT + SLACK {
            kept_from = size - KEPT;
            forget_before(&to, kept_from);
        }
    }
}

/// Gives back the disk under the beginning of a file; what stays keeps its place in it.
fn forget_before(file: &File, offset: u64) {
    let whole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    if let Ok(length) = i64::try_from(offset) {
        // A file system that cannot do that keeps everything.
        let _ = fallocate(file, whole, 0, length);
    }
}
