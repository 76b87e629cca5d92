//! Promises, as they are kept in `frozen/`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Breach, Description};

/// A promise of one interface, in its file.
#[derive(Clone, Debug)]
pub struct Frozen {
    path: PathBuf,
    title: &'static str,
    remedy: &'static str,
}

/// Result of a comparison of a promise with this build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The build has all that was promised, and nothing else.
    Kept,
    /// The build has all that was promised, and these additions.
    Added(Vec<String>),
    /// The build breaks the promise.
    Broken(Vec<Breach>),
}

const ADD: &str = "To promise what was added: make freeze";

impl Frozen {
    /// The promise of the messages of `tranche.v1`.
    pub fn wire() -> Self {
        Self {
            path: folder().join("tranche.v1.txt"),
            title: "The gRPC interface that clients of any release were compiled against.",
            remedy: "Clients of earlier releases are compiled against this. Leave what is there as it is and add \
                     beside it; what has to be otherwise is a new message, or tranche.v2.",
        }
    }

    /// The promise of one version of the memory and messages that daemon and shim share.
    pub fn shm(abi: u64) -> Self {
        Self {
            path: folder().join(format!("shm-{abi}.txt")),
            title: "What daemon and shim share: which words change when something is said (region word = after).",
            remedy: "Programs of earlier releases run on with the library that they began with, over these words. \
                     Add in words that are unused and zero; what has to be otherwise needs another ABI in \
                     proto/shm/src/lib.rs, and a daemon that serves both (docs/decisions/0014).",
        }
    }

    /// Versions of shared memory that have a file, in ascending order.
    pub fn shm_versions() -> Vec<u64> {
        let names = fs::read_dir(folder()).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let version = |name: &str| name.strip_prefix("shm-")?.strip_suffix(".txt")?.parse::<u64>().ok();
        let mut versions: Vec<u64> = names.filter_map(|name| version(&name.to_string_lossy())).collect();
        versions.sort_unstable();
        versions
    }

    /// Reads the promise; it is empty without a file.
    pub fn read(&self) -> Result<Description, String> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        Description::parse(&text).map_err(|why| format!("{}: {why}", self.path.display()))
    }

    /// Compares the promise with the description of this build.
    pub fn judge(&self, now: &Description) -> Result<Verdict, String> {
        let promised = self.read()?;
        let (breaches, additions) = (promised.breaches(now), promised.additions(now));
        Ok(match (breaches.is_empty(), additions.is_empty()) {
            (true, true) => Verdict::Kept,
            (true, false) => Verdict::Added(additions),
            (false, _) => Verdict::Broken(breaches),
        })
    }

    /// Compares likewise; the error names the promise, the lines and the remedy.
    pub fn check(&self, now: &Description) -> Result<(), String> {
        match self.judge(now)? {
            Verdict::Kept => Ok(()),
            Verdict::Added(new) => {
                Err(format!("not in {} yet:\n{}\n{ADD}", self.path.display(), indented(&new)))
            }
            Verdict::Broken(breaches) => Err(self.refusal(&breaches)),
        }
    }

    /// Enters additions into the file and returns them. A breach is an error, and changes nothing.
    pub fn freeze(&self, now: &Description) -> Result<Vec<String>, String> {
        let added = match self.judge(now)? {
            Verdict::Kept => return Ok(Vec::new()),
            Verdict::Added(added) => added,
            Verdict::Broken(breaches) => return Err(self.refusal(&breaches)),
        };
        let text = format!("# {}\n# Written by `make freeze`, which only adds.\n{now}", self.title);
        fs::write(&self.path, text).map_err(|error| format!("{}: {error}", self.path.display()))?;
        Ok(added)
    }

    fn refusal(&self, breaches: &[Breach]) -> String {
        let lines: Vec<_> = breaches.iter().map(ToString::to_string).collect();
        format!("promised in {} and broken:\n{}\n{}", self.path.display(), indented(&lines), self.remedy)
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("frozen")
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
