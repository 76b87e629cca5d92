//! What survives the daemon: the slices that were promised, in one file that is always whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tranche_domain::slice::{ProcessId, Slice};

/// The version of the file that this daemon writes and reads.
const VERSION: u32 = 1;
const FILE: &str = "state.json";

/// All that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    version: u32,
    /// The number of the last slice made; regions carry it, so that no two makings are confused.
    pub(crate) generation: u64,
    /// The slices.
    pub(crate) slices: Vec<SavedSlice>,
}

/// A slice as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedSlice {
    /// What was promised.
    pub(crate) slice: Slice,
    /// The making that its regions must show.
    pub(crate) generation: u64,
    /// Whose descendants may join it.
    pub(crate) roots: Vec<ProcessId>,
}

/// Why the state cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error("cannot keep the slices in {}: {cause}; free some space there or fix its permissions", .path.display())]
pub(crate) struct SaveError {
    path: PathBuf,
    cause: io::Error,
}

/// What was found at start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A state, or nothing yet.
    Whole(State),
    /// Something that cannot be read, set aside; the note says where and why.
    SetAside(String),
}

impl State {
    pub(crate) const fn new(generation: u64, slices: Vec<SavedSlice>) -> Self {
        Self { version: VERSION, generation, slices }
    }

    /// Writes the file beside the old one and puts it in its place: after a crash there is the old state or
    /// the new one, and nothing between.
    pub(crate) fn save(&self, directory: &Path) -> Result<(), SaveError> {
        let path = directory.join(FILE);
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(directory)?;
            let mut text = serde_json::to_vec_pretty(self)?;
            text.push(b'\n');
            file.write_all(&text)?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            File::open(directory)?.sync_all()
        };
        write().map_err(|cause| SaveError { path: path.clone(), cause })
    }

    /// Understands a file's content, or says why not.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        match serde_json::from_slice::<Self>(text) {
            Ok(state) if state.version == VERSION => Ok(state),
            Ok(state) => Err(format!("it has version {}, this daemon reads {VERSION}", state.version)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Reads the file. What cannot be understood is kept for a person to look at, never overwritten, and
    /// never keeps the daemon from starting.
    pub(crate) fn load(directory: &Path) -> io::Result<Found> {
        let path = directory.join(FILE);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Found::Whole(Self::new(0, Vec::new())));
            }
            Err(error) => return Err(error),
            Ok(text) => text,
        };
        let why = match Self::parse(&text) {
            Ok(state) => return Ok(Found::Whole(state)),
            Err(why) => why,
        };
        let aside = free_name(directory)?;
        fs::rename(&path, &aside)?;
        Ok(Found::SetAside(format!(
            "the state file {} could not be read ({why}); it is kept as {}, and the node starts without it",
            path.display(),
            aside.display()
        )))
    }
}

fn free_name(directory: &Path) -> io::Result<PathBuf> {
    let mut names = (1u32..).map(|n| directory.join(format!("{FILE}.corrupt-{n}")));
    names.find(|path| !path.exists()).ok_or_else(|| io::Error::other("no free name to set the file aside"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_domain::compute::Priority;
    use tranche_domain::id::{GpuUuid, HostPid};
    use tranche_domain::request::ComputeMode;
    use tranche_domain::slice::Part;
    use tranche_domain::units::{Bytes, Permille};

    fn state() -> State {
        let slice = Slice {
            name: "a".parse().unwrap(),
            share: "0.5".parse().unwrap(),
            parts: vec![Part { gpu: GpuUuid::from_bytes([7; 16]), cap: Bytes::mib(5) }],
            compute: Permille::try_from(500).unwrap(),
            limit: Permille::try_from(600).unwrap(),
            mode: ComputeMode::Fair,
            priority: Priority::new(-3),
            frozen: true,
            ephemeral: true,
            pod: Some("default/train/main".parse().unwrap()),
            owner_uid: 3,
            created_unix_ms: 4,
        };
        let roots = vec![ProcessId { pid: HostPid::new(1), start_time: 2 }];
        State::new(9, vec![SavedSlice { slice, generation: 8, roots }])
    }

    #[test]
    fn what_is_saved_is_found() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(State::load(directory.path()).unwrap(), Found::Whole(State::new(0, Vec::new())));
        state().save(directory.path()).unwrap();
        assert_eq!(State::load(directory.path()).unwrap(), Found::Whole(state()));
    }

    #[test]
    fn a_file_from_before_there_were_limits_and_pods_is_read() {
        let old = br#"{"version": 1, "generation": 3, "slices": [{"slice": {"name": "a", "share":
            {"fraction": 500}, "parts": [], "compute": 500, "mode": "fair", "ephemeral": false,
            "owner_uid": 3, "created_unix_ms": 4}, "generation": 2, "roots": []}]}"#;
        let slice = State::parse(old).unwrap().slices.remove(0).slice;
        assert_eq!((slice.limit, slice.priority, slice.frozen), (Permille::WHOLE, Priority::DEFAULT, false));
        assert_eq!(slice.pod, None);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_set_aside_each_time_under_another_name() {
        let directory = tempfile::tempdir().unwrap();
        let newer = r#"{"version": 99, "generation": 0, "slices": []}"#;
        for (text, name) in [("{ not json", "state.json.corrupt-1"), (newer, "state.json.corrupt-2")] {
            fs::write(directory.path().join(FILE), text).unwrap();
            let Found::SetAside(note) = State::load(directory.path()).unwrap() else {
                panic!("{text} was believed")
            };
            assert!(note.contains(name), "{note}");
            assert_eq!(fs::read_to_string(directory.path().join(name)).unwrap(), text);
            assert!(!directory.path().join(FILE).exists());
        }
    }
}
