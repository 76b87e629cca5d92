//! How long a thread had to wait for a processor.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// As the kernel counts it, of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Delays(Option<File>);

impl Delays {
    pub(crate) fn open() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    pub(crate) fn ns(&self) -> u64 {
        let mut text = [0; 96];
        let read = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or_default();
        let text = std::str::from_utf8(&text[..read]).unwrap_or_default();
        text.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or_default()
    }
}
