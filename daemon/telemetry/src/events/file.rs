//! Copy of the event history on disk: one line of JSON for each event, in two files of bounded size.
//!
//! A thread of its own writes it, so that a slow disk delays no other work. Events that cannot be written are missing
//! from the file only; the failure is reported once, until writing succeeds again.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tranche_domain::event::Event;
use tranche_shm::crash::point;

const FILE: &str = "events.jsonl";
const OLD_FILE: &str = "events.jsonl.1";
/// Length in bytes at which the file is rotated.
const FULL: u64 = 1 << 20;
/// Longest line that is read, in bytes; longer than any that is written.
const LONGEST_LINE: u64 = 8192;
/// Capacity of the queue of events to write.
const WAITING: usize = 1024;
/// Time granted to the remaining writes when the copy is closed.
const LAST_WORK: Duration = Duration::from_secs(1);

/// Handle of the copy; dropping it writes the remaining events.
#[derive(Debug)]
pub(super) struct Copy {
    lines: Option<SyncSender<String>>,
    trouble: Arc<Mutex<FileTrouble>>,
    writer: Option<JoinHandle<()>>,
}

/// Failure of the file, and if it has been reported.
#[derive(Debug, Default)]
struct FileTrouble {
    news: Option<String>,
    told: bool,
}

impl Copy {
    /// Opens the copy in a directory, and reads its events. Unreadable parts are skipped.
    pub(super) fn open(directory: &Path) -> (Self, Vec<Event>) {
        let earlier = [OLD_FILE, FILE].map(|name| read(&directory.join(name))).concat();
        let trouble = Arc::<Mutex<FileTrouble>>::default();
        let (lines, told) = sync_channel(WAITING);
        let mut writer = Writer { directory: directory.to_owned(), file: None };
        let saying = Arc::clone(&trouble);
        let thread = thread::Builder::new()
            .name("events".into())
            .spawn(move || write_all(&told, &mut writer, &saying));
        let copy = match thread {
            Ok(writer) => Self { lines: Some(lines), trouble, writer: Some(writer) },
            Err(error) => {
                say(
                    &trouble,
                    format!("events are not written to the disk: there is no thread for it ({error})"),
                );
                Self { lines: None, trouble, writer: None }
            }
        };
        (copy, earlier)
    }

    /// Queues an event for writing; drops it if the queue is full.
    pub(super) fn write(&self, event: &Event) {
        let Some(lines) = &self.lines else { return };
        let Ok(mut line) = serde_json::to_string(event) else { return };
        line.push('\n');
        if let Err(TrySendError::Full(_)) = lines.try_send(line) {
            say(
                &self.trouble,
                "events happen faster than the disk takes them; some are missing there".into(),
            );
        }
    }

    /// The failure, unless it has been reported already.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().ok()?.news.take()
    }

    /// Writes the remaining events, for a limited time. A hanging disk must not keep the daemon from ending.
    pub(super) fn close(&mut self) {
        drop(self.lines.take());
        let (Some(writer), deadline) = (self.writer.take(), Instant::now() + LAST_WORK) else { return };
        while !writer.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        self.close();
    }
}

fn say(trouble: &Mutex<FileTrouble>, what: String) {
    if let Ok(mut trouble) = trouble.lock()
        && !trouble.told
    {
        *trouble = FileTrouble { news: Some(what), told: true };
    }
}

fn write_all(lines: &Receiver<String>, writer: &mut Writer, trouble: &Mutex<FileTrouble>) {
    for line in lines {
        match writer.write(&line) {
            Ok(()) => drop(trouble.lock().map(|mut trouble| trouble.told = false)),
            Err(error) => say(
                trouble,
                format!(
                    "cannot write events to {}: {error}; free some space there or fix its permissions",
                    writer.directory.join(FILE).display()
                ),
            ),
        }
    }
}

/// Writer at the end of the file.
#[derive(Debug)]
struct Writer {
    directory: PathBuf,
    file: Option<File>,
}

impl Writer {
    fn write(&mut self, line: &str) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.open()?,
        };
        // In one call. A partial line is completed by a newline when the file is next opened.
        file.write_all(line.as_bytes())?;
        point("history: written");
        if file.stream_position()? < FULL {
            self.file = Some(file);
            return Ok(());
        }
        point("history: full");
        fs::rename(self.directory.join(FILE), self.directory.join(OLD_FILE))?;
        point("history: put aside");
        Ok(())
    }

    /// Opens the file for appending, after completing a partial line.
    fn open(&self) -> io::Result<File> {
        let mut options = File::options();
        let path = self.directory.join(FILE);
        let mut file = options.create(true).read(true).append(true).mode(0o600).open(path)?;
        let length = file.seek(SeekFrom::End(0))?;
        if length > 0 && !ends_a_line(&mut file)? {
            file.write_all(b"\n")?;
        }
        Ok(file)
    }
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Events in a file. Invalid lines, such as a partial one after a power cut, are skipped, as is an unreadable file.
fn read(path: &Path) -> Vec<Event> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let mut lines = BufReader::new(file.take(2 * FULL));
    let mut events = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        match lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return events,
            Ok(_) => events.extend(serde_json::from_slice::<Event>(&line)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tranche_domain::event::{EventKind, Severity};

    fn event(seq: u64) -> Event {
        let evidence = format!("number {seq}");
        let (severity, kind) = (Severity::Info, EventKind::SliceCreated);
        Event {
            seq,
            time_unix_ms: seq,
            severity,
            kind,
            slice: None,
            gpu: None,
            pid: None,
            actor: None,
            cause: None,
            evidence,
        }
    }

    fn write(directory: &Path, events: std::ops::Range<u64>) {
        let mut writer = Writer { directory: directory.to_owned(), file: None };
        for seq in events {
            writer.write(&(serde_json::to_string(&event(seq)).unwrap() + "\n")).unwrap();
        }
    }

    fn seqs(directory: &Path) -> Vec<u64> {
        Copy::open(directory).1.iter().map(|event| event.seq).collect()
    }

    #[test]
    fn files_are_bounded_and_hold_the_newest() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), 0..40_000);
        let length = |name: &str| fs::metadata(directory.path().join(name)).unwrap().len();
        assert!(length(FILE) <= FULL + LONGEST_LINE && length(OLD_FILE) <= FULL + LONGEST_LINE);
        let kept = seqs(directory.path());
        assert_eq!(kept.last(), Some(&39_999));
        assert!(kept.len() > 5_000 && kept.windows(2).all(|two| two[1] == two[0] + 1));
    }

    #[test]
    fn file_is_readable_by_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), 0..1);
        let mode = fs::metadata(directory.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn torn_file_is_read_and_continued() {
        let whole = tempfile::tempdir().unwrap();
        write(whole.path(), 0..3);
        let text = fs::read(whole.path().join(FILE)).unwrap();
        for length in 0..text.len() {
            let torn = tempfile::tempdir().unwrap();
            fs::write(torn.path().join(FILE), &text[..length]).unwrap();
            let complete = text[..length].iter().filter(|byte| **byte == b'\n').count() as u64;
            // A line that lacks only its newline is complete.
            let whole_but_for_its_end = u64::from(text[length] == b'\n');
            write(torn.path(), 9..10);
            let expected: Vec<u64> = (0..complete + whole_but_for_its_end).chain([9]).collect();
            assert_eq!(seqs(torn.path()), expected, "at {length}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_in_the_file_reading_it_does_no_harm(text: Vec<u8>) {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join(FILE), text).unwrap();
            write(directory.path(), 5..6);
            prop_assert_eq!(seqs(directory.path()).last().copied(), Some(5));
        }
    }
}
