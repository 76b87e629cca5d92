//! Changes of the selected line: freeze, cordon, delete.

use tranche_domain::id::{GpuSelector, SliceName};
use tranche_domain::jobs::{JobName, ProjectName};
use tranche_domain::request::Resize;

use crate::client::Daemon;
use crate::errors::Failure;
use crate::jobs;

/// A change that the user requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// Freezes a slice, or thaws it.
    Freeze(SliceName, bool),
    /// Cordons a GPU, or uncordons it.
    Cordon(u32, bool),
    /// Deletes a slice, after killing this number of processes in it.
    DeleteSlice(SliceName, usize),
    /// Stops and deletes a job.
    DeleteJob(ProjectName, JobName),
}

impl Deed {
    /// The question before it, which names the subject.
    pub(super) fn question(&self) -> String {
        match self {
            Self::Freeze(slice, true) => format!("freeze slice {slice}?"),
            Self::Freeze(slice, false) => format!("thaw slice {slice}?"),
            Self::Cordon(gpu, true) => format!("cordon GPU {gpu}, so that it takes no further slices?"),
            Self::Cordon(gpu, false) => format!("uncordon GPU {gpu}, so that it takes slices again?"),
            Self::DeleteSlice(slice, 0) => format!("delete slice {slice}?"),
            Self::DeleteSlice(slice, 1) => format!("delete slice {slice} and kill its process?"),
            Self::DeleteSlice(slice, count) => {
                format!("delete slice {slice} and kill its {count} processes?")
            }
            Self::DeleteJob(project, job) => format!("stop and delete job {job} of project {project}?"),
        }
    }

    /// Carries it out; returns a message.
    pub(super) fn carry_out(&self, daemon: &mut Daemon) -> Result<String, Failure> {
        Ok(match self {
            Self::Freeze(slice, frozen) => {
                daemon.resize(slice, Resize { frozen: Some(*frozen), ..Resize::default() })?;
                format!("{} slice {slice}", if *frozen { "froze" } else { "thawed" })
            }
            Self::Cordon(gpu, true) => {
                daemon.cordon(&[GpuSelector::Index(*gpu)], None)?;
                format!("GPU {gpu} takes no further slices")
            }
            Self::Cordon(gpu, false) => {
                daemon.uncordon(&[GpuSelector::Index(*gpu)])?;
                format!("GPU {gpu} takes slices again")
            }
            Self::DeleteSlice(slice, processes) => {
                daemon.delete(slice, *processes > 0)?;
                format!("deleted slice {slice}")
            }
            Self::DeleteJob(project, job) => {
                jobs::delete_one(daemon, project, job)?;
                format!("deleted job {job} of project {project}")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_names_subject_and_consequence() {
        let slice = || "half".parse().unwrap();
        let questions = [
            (Deed::DeleteSlice(slice(), 0), "delete slice half?"),
            (Deed::DeleteSlice(slice(), 3), "delete slice half and kill its 3 processes?"),
            (Deed::Freeze(slice(), false), "thaw slice half?"),
            (Deed::Cordon(3, true), "cordon GPU 3, so that it takes no further slices?"),
            (
                Deed::DeleteJob("a".parse().unwrap(), "b".parse().unwrap()),
                "stop and delete job b of project a?",
            ),
        ];
        for (deed, question) in questions {
            assert_eq!(deed.question(), question);
        }
    }
}
