//! Log of the command: stdout and stderr in one file, of which the last part is kept.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::thread::{self, JoinHandle};

use nix::fcntl::{FallocateFlags, fallocate};
use tranche_jobs::reserve::room_for_logs;

/// Fraction of the kept size by which a log may exceed it before it is cut.
const SLACK: u64 = 8;

/// Free space in bytes required to resume a log that was stopped by a full disk.
const AHEAD: usize = 1 << 20;
/// Marker for output lost to a full disk.
const FULL: &[u8] =
    b"\n[tranche: the disk is nearly full; what is printed from here on is not kept until there is room]\n";

/// Destination of the output.
pub(crate) struct Log {
    pub(crate) to: File,
    /// Number of bytes to keep of its end.
    pub(crate) kept: u64,
}

/// Copies the output until all writers have closed the pipe.
pub(crate) fn keep(from: PipeReader, log: Log) -> JoinHandle<()> {
    thread::spawn(move || {
        let _ = copy(from, log);
    })
}

/// Number of bytes of podman's messages to keep for a reason.
const TAIL: usize = 4 << 10;

/// Copies what is written to stderr into the log, and keeps the last part for the reason of a failure.
pub(crate) fn last_words(mut from: PipeReader, mut into: PipeWriter) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let (mut buffer, mut tail) = (vec![0; 16 << 10], Vec::new());
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let _ = into.write_all(&buffer[..count]);
            tail.extend_from_slice(&buffer[..count]);
            let surplus = tail.len().saturating_sub(TAIL);
            tail.drain(..surplus);
        }
        tail
    })
}

fn copy(mut from: PipeReader, log: Log) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let mut file = LogFile { size: log.to.metadata()?.len(), kept_from: 0, log, silent: false };
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => file.take(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The open log file and its size.
struct LogFile {
    log: Log,
    size: u64,
    kept_from: u64,
    /// True if output is currently dropped because the disk is full.
    silent: bool,
}

impl LogFile {
    /// Appends output, or drops it: the program never blocks on a full disk or log.
    fn take(&mut self, printed: &[u8]) {
        let kept = self.log.kept;
        if self.is_crowded(printed.len()) && !self.silent {
            // Space is first freed in the log itself.
            self.forget_before(self.size.saturating_sub(kept / SLACK));
            if self.is_crowded(printed.len()) {
                self.silent = true;
                self.write(FULL);
            }
        }
        // The log resumes with space to spare, so that it does not stop again at once.
        if self.silent && !self.is_crowded(AHEAD) {
            self.silent = false;
        }
        if !self.silent {
            self.write(printed);
        }
        if self.size > self.kept_from + kept + kept / SLACK {
            self.forget_before(self.size.saturating_sub(kept));
        }
    }

    /// Tests if this many more bytes would cut into the space reserved for the state.
    fn is_crowded(&self, bytes: usize) -> bool {
        room_for_logs(&self.log.to).is_some_and(|room| room < bytes as u64)
    }

    fn write(&mut self, text: &[u8]) {
        if self.log.to.write_all(text).is_ok() {
            self.size += text.len() as u64;
        }
    }

    /// Punches a hole up to `offset`; later offsets stay valid.
    fn forget_before(&mut self, offset: u64) {
        self.kept_from = offset;
        let whole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        if let Some(length) = i64::try_from(offset).ok().filter(|length| *length > 0) {
            // A file system without holes keeps everything.
            let _ = fallocate(&self.log.to, whole, 0, length);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn log_keeps_no_more_than_its_limit() {
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
