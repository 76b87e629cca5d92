//! Files as an earlier daemon, a crash or a full disk left them: a slice's shares, and the history.

use std::cell::RefCell;
use std::fs;

use tempfile::TempDir;
use tranche_domain::event::{Event, EventKind, Severity};
use tranche_domain::sharing::Sharing;

use crate::change::{Change, Legacy, replay, whole};
use crate::event_file::Copy;

/// Reads the journal of shares as the daemon does; written down anew, it is read as the same.
pub fn shares(data: &[u8]) {
    let lines = data.split(|byte| *byte == b'\n');
    let (sharing, legacy) = read(lines.filter_map(|line| serde_json::from_slice(line).ok()));
    let written = whole(&sharing, &legacy.beyond).into_iter().map(|change| {
        let line = serde_json::to_vec(&change).expect("what was read can be written");
        serde_json::from_slice(&line).expect("what was written can be read")
    });
    let (again, legacy_again) = read(written);
    assert!(again.iter().eq(sharing.iter()), "{sharing:?} was written down as {again:?}");
    assert_eq!(legacy_again.beyond, legacy.beyond);
    assert_eq!(legacy_again.doubtful, None, "a new journal ends without doubt");
}

fn read(changes: impl Iterator<Item = Change>) -> (Sharing, Legacy) {
    let (mut sharing, mut legacy) = (Sharing::default(), Legacy::default());
    changes.for_each(|change| replay(&mut sharing, &mut legacy, change));
    (sharing, legacy)
}

thread_local! {
    static FOLDER: RefCell<Option<TempDir>> = const { RefCell::new(None) };
}

/// Opens the history's file: events that can be read stay readable after one more was written.
pub fn event_log(data: &[u8]) {
    FOLDER.with_borrow_mut(|folder| {
        let folder = folder.get_or_insert_with(|| tempfile::tempdir().expect("a folder can be made")).path();
        let _ = fs::remove_file(folder.join("events.jsonl.1"));
        fs::write(folder.join("events.jsonl"), data).expect("the folder can be written");
        let (mut copy, before) = Copy::open(folder);
        let next = event();
        copy.write(&next);
        copy.close();
        assert_eq!(copy.trouble(), None);
        let (_, after) = Copy::open(folder);
        let (last, earlier) = after.split_last().expect("what was written is there");
        assert_eq!((last, earlier), (&next, &before[..]));
    });
}

fn event() -> Event {
    Event {
        seq: 7,
        time_unix_ms: 8,
        severity: Severity::Info,
        kind: EventKind::SliceCreated,
        slice: None,
        gpu: None,
        pid: None,
        actor: None,
        cause: None,
        evidence: "written by a test".into(),
    }
}
