//! What the command prints: both of its streams in one file, of which the last part is kept.

use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::thread::{self, JoinHandle};

use nix::fcntl::{FallocateFlags, fallocate};

/// What is beyond what is kept is cut off when it is this part of that.
const SLACK: u64 = 8;

/// Where it goes.
pub(crate) struct Log {
    pub(crate) to: File,
    /// So much of its end is kept, in bytes.
    pub(crate) kept: u64,
}

/// Copies until nobody can write any more.
pub(crate) fn keep(from: PipeReader, log: Log) -> JoinHandle<()> {
    thread::spawn(move || {
        let _ = copy(from, log);
    })
}

fn copy(mut from: PipeReader, Log { mut to, kept }: Log) -> io::Result<()> {
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
        if size > kept_from + kept + kept / SLACK {
            kept_from = size.saturating_sub(kept);
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        const KEPT: u64 = 256 << 10;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        let (from, mut into) = io::pipe().unwrap();
        let copying = keep(from, Log { to: File::create(&path).unwrap(), kept: KEPT });
        into.write_all(&vec![b'x'; 4 << 20]).unwrap();
        drop(into);
        copying.join().unwrap();
        let file = path.metadata().unwrap();
        let on_disk = file.blocks() * 512;
        assert_eq!(file.len(), 4 << 20, "what stays keeps its place");
        assert!((KEPT..2 * KEPT).contains(&on_disk), "{on_disk}");
    }
}
