//! Submission of the jobs of a file: of all, or of none.

use std::path::Path;

use tonic::Code;
use tranche_domain::jobs::JobView;

use crate::cli::SubmitArgs;
use crate::errors::Failure;

/// Submits jobs in their order; if one is refused, deletes those before it, the last one first.
pub(super) fn all_or_none<C>(
    context: &mut C,
    path: &Path,
    jobs: &[SubmitArgs],
    submit: impl Fn(&mut C, &SubmitArgs) -> Result<JobView, Failure>,
    delete: impl Fn(&mut C, &JobView) -> Result<(), Failure>,
) -> Result<Vec<JobView>, Failure> {
    let mut submitted = Vec::new();
    for (at, job) in jobs.iter().enumerate() {
        match submit(context, job) {
            Ok(view) => submitted.push(view),
            Err(why) => {
                let name = job.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
                let job = format!("job {} of {}{name}", at + 1, path.display());
                let left = take_back(&submitted, is_answered(&why), |job| delete(context, job));
                return Err(Failure::JobOfFile { job, why: Box::new(why), left });
            }
        }
    }
    Ok(submitted)
}

/// Tests if the job of a failed submission certainly does not exist.
const fn is_answered(why: &Failure) -> bool {
    !matches!(why, Failure::BrokenOff { .. } | Failure::Silent { .. })
}

/// Tests if the job was deleted already, as by another command meanwhile.
fn is_absence(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(status) if status.code() == Code::NotFound)
}

/// Deletes submitted jobs, the last one first; returns in words what is left of the file.
fn take_back(
    submitted: &[JobView],
    answered: bool,
    mut delete: impl FnMut(&JobView) -> Result<(), Failure>,
) -> String {
    let (mut gone, mut left, mut reason) = (Vec::new(), Vec::new(), None);
    for job in submitted.iter().rev() {
        match delete(job) {
            Err(failure) if !is_absence(&failure) => {
                left.push(format!("{} of project {}", job.name, job.project));
                reason = reason.or(Some(failure));
            }
            _ => gone.push(job.name.to_string()),
        }
    }
    let deleted =
        if gone.is_empty() { String::new() } else { format!("deleted again: {}; ", gone.join(", ")) };
    let unknown = if answered { "" } else { "; `tranche list` shows whether that job exists" };
    match reason {
        None if answered => {
            format!("{deleted}nothing of the file remains: correct it, and submit all of it again")
        }
        None => format!("{deleted}nothing else of the file remains{unknown}"),
        Some(reason) => {
            let jobs = left.join(", ");
            format!(
                "{deleted}of the file remain, to be deleted with `tranche delete`: {jobs}{unknown} ({reason})"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};
    use tonic::Status;

    use super::*;
    use crate::sample;

    fn jobs(names: &[&str]) -> Vec<SubmitArgs> {
        let parser = SubmitArgs::augment_args(clap::Command::new("job")).no_binary_name(true);
        let job = |name: &&str| {
            let matches = parser.clone().try_get_matches_from([*name, "-g", "1", "--", "true"]).unwrap();
            SubmitArgs::from_arg_matches(&matches).unwrap()
        };
        names.iter().map(job).collect()
    }

    fn refusal(text: &str) -> Failure {
        Failure::Refused(Status::failed_precondition(text))
    }

    /// Submits jobs of which `last` is refused; returns the requests and the message.
    fn refused(names: &[&str], last: fn() -> Failure, undeletable: &str) -> (Vec<String>, String) {
        let mut requests = Vec::new();
        let submit = |requests: &mut Vec<String>, args: &SubmitArgs| {
            let name = args.name.as_ref().unwrap().as_str();
            requests.push(format!("submit {name}"));
            if name == "last" { Err(last()) } else { Ok(sample::job("vision", name)) }
        };
        let delete = |requests: &mut Vec<String>, job: &JobView| {
            requests.push(format!("delete {}", job.name));
            if job.name.as_str() == undeletable { Err(refusal("it is stuck")) } else { Ok(()) }
        };
        let failure =
            all_or_none(&mut requests, "jobs.toml".as_ref(), &jobs(names), submit, delete).unwrap_err();
        (requests, failure.to_string())
    }

    #[test]
    fn nothing_of_a_file_remains_when_one_of_its_jobs_is_refused() {
        let (requests, message) = refused(&["a", "b", "last", "c"], || refusal("its name is taken"), "");
        assert_eq!(requests, ["submit a", "submit b", "submit last", "delete b", "delete a"]);
        assert_eq!(
            message,
            "job 3 of jobs.toml (last) could not be submitted: its name is taken\n\
             deleted again: b, a; nothing of the file remains: correct it, and submit all of it again"
        );
        let (requests, message) = refused(&["last", "a"], || refusal("no"), "");
        assert_eq!(requests, ["submit last"]);
        assert!(message.contains("\nnothing of the file remains"), "{message}");
    }

    #[test]
    fn job_that_could_not_be_deleted_again_is_named() {
        let (requests, message) = refused(&["a", "b", "last"], || refusal("no"), "b");
        assert_eq!(requests[3..], ["delete b", "delete a"]);
        assert!(
            message.ends_with(
                "\ndeleted again: a; of the file remain, to be deleted with `tranche delete`: b of project vision (it is stuck)"
            ),
            "{message}"
        );
    }

    #[test]
    fn job_whose_submission_had_no_answer_may_exist() {
        let broken = || Failure::BrokenOff { socket: "s".into(), reason: "broken pipe".into() };
        let (_, message) = refused(&["a", "last"], broken, "");
        assert!(
            message
                .ends_with("nothing else of the file remains; `tranche list` shows whether that job exists")
        );
    }

    #[test]
    fn jobs_that_are_all_taken_are_returned_in_order() {
        let submit =
            |_: &mut (), args: &SubmitArgs| Ok(sample::job("vision", args.name.as_ref().unwrap().as_str()));
        let all = all_or_none(&mut (), "x".as_ref(), &jobs(&["a", "b"]), submit, |_, _| Err(refusal("no")))
            .unwrap();
        assert_eq!(all.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }
}
