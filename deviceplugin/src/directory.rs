//! Change notifications for the kubelet's directory.
//!
//! The receiver inspects the directory itself: notifications may be merged, late, or for a directory that was
//! replaced.

use std::io;
use std::path::Path;
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::sync::watch;

/// Pause before a directory that cannot be watched is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Notifications of changes from now on. The thread ends at the first change after the receiver is dropped.
pub(crate) fn changes(directory: &Path) -> io::Result<watch::Receiver<()>> {
    let (sender, receiver) = watch::channel(());
    let directory = directory.to_owned();
    std::thread::Builder::new().name("directory".into()).spawn(move || tell(&directory, &sender))?;
    Ok(receiver)
}

fn tell(directory: &Path, sender: &watch::Sender<()>) {
    while !sender.is_closed() {
        if let Err(error) = watch_once(directory, sender) {
            tracing::debug!(directory = %directory.display(), %error, "cannot be watched");
        }
        std::thread::sleep(PAUSE);
        sender.send_replace(());
    }
}

/// Watches until the directory disappears.
fn watch_once(directory: &Path, sender: &watch::Sender<()>) -> nix::Result<()> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC)?;
    let within = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_DELETE;
    inotify.add_watch(directory, within | AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF)?;
    sender.send_replace(()); // of what happened before the watch
    let gone = AddWatchFlags::IN_IGNORED | AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_DELETE_SELF;
    loop {
        let events = match inotify.read_events() {
            Err(nix::errno::Errno::EINTR) => continue,
            events => events?,
        };
        sender.send_replace(());
        if sender.is_closed() || events.iter().any(|event| event.mask.intersects(gone)) {
            return Ok(());
        }
    }
}
