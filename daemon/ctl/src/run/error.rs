//! Error of `tranche run`, with its exit status.

use std::path::PathBuf;

use nix::errno::Errno;
use tranche_domain::id::SliceName;

/// Reason for which a program could not be run in a slice.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum RunError {
    #[error(
        "this is already inside {}: slices do not nest, so run the program as it is, and it shares this slice",
        .0.as_ref().map_or("a slice".into(), |name| format!("slice {name}"))
    )]
    Nested(Option<SliceName>),
    #[error(
        "nothing was run: the library that keeps programs to their slice is not where tranched expects it ({}: \
         {cause}); reinstall tranche, or correct the path in tranched's configuration", .path.display()
    )]
    NoShim { path: PathBuf, cause: std::io::Error },
    #[error(
        "nothing was run: the library that tranched names, {}, can be changed by others than root and you, at {}; have \
         root own it and the folders that it is in, or correct the path in tranched's configuration",
        .path.display(), .part.display()
    )]
    ForeignShim { path: PathBuf, part: PathBuf },
    #[error(
        "nothing was run: the dynamic loader cannot be told of {}, because it splits LD_PRELOAD at spaces and \
         colons; install tranche in a folder without them", .0.display()
    )]
    UnspeakableShim(PathBuf),
    #[error("nothing was run: {0:?} contains a NUL byte, which no program's arguments can")]
    Nul(String),
    #[error("cannot run {program}: {cause}")]
    Spawn { program: String, cause: Errno },
    #[error("cannot {attempt}: {cause}")]
    Kernel { attempt: &'static str, cause: Errno },
}

impl RunError {
    /// Exit status as of shells: 127 for a missing program, 126 for one that cannot be executed.
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::Spawn { cause: Errno::ENOENT, .. } => 127,
            Self::Spawn { .. } => 126,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_are_those_of_a_shell() {
        let status = |cause| RunError::Spawn { program: "x".into(), cause }.exit_status();
        assert_eq!(status(Errno::ENOENT), 127);
        assert_eq!(status(Errno::EACCES), 126);
        assert_eq!(RunError::Nested(None).exit_status(), 1);
    }
}
