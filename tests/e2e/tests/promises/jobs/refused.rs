//! Impossible requests are refused at once, with one message that advises, and leave nothing behind.

use e2e::{Node, Outcome, eventually};

use super::{job, jobs, node, submit, until};
use crate::access::{ALICE, Shared};

/// Fails unless a command is refused with this message and nothing else.
#[track_caller]
fn refuses(outcome: &Outcome, message: &str) {
    assert_eq!((outcome.code, outcome.stderr.trim_end()), (Some(1), format!("tranche: {message}").as_str()));
}

/// Fails unless a command line is invalid, with this message in the first line.
#[track_caller]
fn misspelt(outcome: &Outcome, message: &str) {
    let first = outcome.stderr.lines().next().unwrap_or_default();
    assert_eq!((outcome.code, first), (Some(2), format!("error: {message}").as_str()));
}

fn submit_sleep(node: &Node, words: &[&str]) -> Outcome {
    submit(node, &[words, &["--", "sleep", "1000"]].concat())
}

#[test]
fn a_job_that_could_never_run_is_refused_and_not_queued() {
    let node = node("v100x16", "4");
    let never = |gpus: &str| {
        format!(
            "a member takes {gpus} GPUs of one island, and there are at most 8 that it may use: it could never start; \
             ask for less, or for more members of fewer GPUs each"
        )
    };
    // More than the node has, and more than one of its islands.
    refuses(&submit_sleep(&node, &["j", "-g", "17"]), &never("17"));
    refuses(&submit_sleep(&node, &["j", "-g", "9"]), &never("9"));
    refuses(
        &submit_sleep(&node, &["j", "-g", "5", "--interactive"]),
        "it is interactive and takes 5 GPUs, and its project's quota is 4: such a job stays within the quota; ask for \
         less, or let it be stopped for others with --preemptible",
    );
    node.tranche(&["project", "update", "a", "--training-gpus", "0,1,8"]).success();
    let bound = never("3").replace("at most 8", "at most 2");
    refuses(&submit_sleep(&node, &["j", "-g", "3"]), &bound);
    assert_eq!(jobs(&node).len(), 0);
}

#[test]
fn invalid_size_is_refused_before_any_request() {
    let node = node("v100x8", "4");
    let of_gpus = |size: &str, why: &str| {
        misspelt(
            &submit_sleep(&node, &["j", "-g", size]),
            &format!("invalid value '{size}' for '--gpus <SHARE>': {why}"),
        );
    };
    of_gpus(
        "1.5",
        "\"1.5\" is more than one GPU but not a whole number: a fraction never straddles GPUs; ask for 0.001 to 0.999 of \
         one, or for whole GPUs such as 2",
    );
    of_gpus("0", "\"0\" is no part of a GPU: the smallest fraction is 0.001");
    of_gpus("-1", "\"-1\" is no part of a GPU: the smallest fraction is 0.001");
    of_gpus("-0.5", "\"-0.5\" is no part of a GPU: the smallest fraction is 0.001");
    of_gpus("0.0005", "\"0.0005\" is finer than a thousandth of a GPU: use at most three decimals");
    of_gpus(
        "two",
        "\"two\" is not a number of GPUs: write a fraction such as 0.5, or whole GPUs such as 2; memory has an option of its own",
    );
    for count in ["0", "-2"] {
        let outcome = submit_sleep(&node, &["j", "-g", "1", "--completions", count]);
        let why = format!("\"{count}\" is no number of members: write a whole number such as 4, at least 1");
        misspelt(&outcome, &format!("invalid value '{count}' for '--completions <N>': {why}"));
    }
    misspelt(
        &submit_sleep(&node, &["Job_1", "-g", "1"]),
        "invalid value 'Job_1' for '[NAME]': \"Job_1\" is not the name of a job: use 1 to 31 of a-z, 0-9 and '-', beginning \
         and ending with a letter or digit",
    );
    misspelt(&submit(&node, &["j", "-g", "1"]), "the following required arguments were not provided:");
    refuses(
        &submit(&node, &["j", "-g", "1", "--", ""]),
        "a job of no command was submitted: say what it is to run after --, or give an --image that has one",
    );
    assert_eq!(jobs(&node).len(), 0);
}

#[test]
fn taken_or_unknown_name_is_refused() {
    let node = node("v100x8", "4");
    let unknown = "there is no project nobody; `tranche project list` shows those there are, `tranche project create` makes one";
    refuses(&submit_sleep(&node, &["j", "-p", "nobody", "-g", "1"]), unknown);
    submit_sleep(&node, &["taken", "-g", "1"]).success();
    refuses(
        &submit_sleep(&node, &["taken", "-g", "1"]),
        "a job named taken exists in this project: choose another name, or delete that one",
    );
    let nothing = "there is no job nothing in project a; `tranche list -p a` shows them";
    for words in [
        &["logs", "nothing"][..],
        &["describe", "nothing"],
        &["suspend", "nothing"],
        &["delete", "nothing"],
        &["exec", "nothing", "--", "true"],
    ] {
        refuses(&node.tranche(words), nothing);
    }
    assert_eq!(jobs(&node).len(), 1);
}

#[test]
fn commands_that_do_not_apply_are_refused_and_limits_of_no_time_too() {
    let node = node("v100x8", "8");
    submit(&node, &["runs", "-g", "0.5", "--", "sleep", "1000"]).success();
    submit(&node, &["ends", "-g", "0.5", "--", "true"]).success();
    until(&node, "runs", "running");
    until(&node, "ends", "succeeded");
    node.tranche(&["resume", "runs"]).refused(1, &["job runs of project a is not suspended"]);
    node.tranche(&["suspend", "ends"]).refused(1, &["job ends of project a has ended", "submit it again"]);
    for limit in ["0", "0s", "500ms", "100y"] {
        let outcome = submit(&node, &["late", "-g", "1", "--max-runtime", limit, "--", "true"]);
        outcome.refused(2, &["--max-runtime", "from 1s to 3650 days"]);
    }
    let outcome = node.tranche(&["project", "update", "a", "--training-gpus", "0,8"]);
    outcome.refused(1, &["--training-gpus names GPU 8, and this node has GPU 0, 1, 2, 3, 4, 5, 6, 7"]);
    node.tranche(&["suspend", "runs"]).success();
    let waiting = until(&node, "runs", "pending");
    assert_eq!(waiting.reason, "suspended; `tranche resume` lets it go on");
    node.tranche(&["resume", "runs"]).success();
    until(&node, "runs", "running");
}

#[test]
fn file_of_which_one_job_is_refused_leaves_none() {
    let node = node("v100x8", "4");
    let file = node.dir().join("jobs.toml");
    let job = |name: &str, gpus: u32, more: &str| {
        format!("[[job]]\nname = \"{name}\"\ngpus = {gpus}\n{more}command = [\"sleep\", \"1000\"]\n")
    };
    let text = job("first", 1, "") + &job("second", 1, "after = [\"first\"]\n");
    std::fs::write(&file, text.clone() + &job("huge", 17, "") + &job("last", 1, "")).unwrap();
    let path = file.display().to_string();
    let outcome = submit(&node, &["-f", &path]);
    let place = format!("job 3 of {path} (huge) could not be submitted: a member takes 17 GPUs");
    outcome.refused(1, &[&place, "deleted again: second, first; nothing of the file remains"]);
    assert_eq!(outcome.stdout, "");
    eventually("what had started has ended", || match jobs(&node).len() {
        0 => Ok(()),
        left => Err(format!("{left} jobs")),
    });
    std::fs::write(&file, text).unwrap();
    let printed = submit(&node, &["-f", &path]).success();
    assert!(printed.contains("submitted first") && printed.contains("submitted second"), "{printed}");
    assert_eq!(jobs(&node).len(), 2);
}

#[test]
fn a_project_that_would_promise_too_much_or_still_has_jobs_stays_as_it_was() {
    let node = node("v100x8", "4");
    let project = |words: &[&str]| node.tranche(&[&["project"], words].concat());
    let too_much = "the quotas would be 9 GPUs together, and the node has 8: not all of them could be had at once; lower \
                    one, or allow it with --beyond-capacity";
    refuses(&project(&["create", "b", "--quota", "5"]), too_much);
    refuses(&project(&["update", "a", "--quota", "9"]), too_much);
    refuses(
        &project(&["create", "a", "--quota", "1"]),
        "a project named a exists already; `tranche project update a` changes it",
    );
    refuses(
        &project(&["create", "b"]),
        "a project without a quota was asked for: say how many GPUs it can have whenever it wants, with --quota",
    );
    misspelt(
        &project(&["create", "b", "--quota", "-1"]),
        "invalid value '-1' for '--quota <GPUS>': \"-1\" is no amount of GPUs: write 4, or 2.5, with at most three decimals",
    );
    submit_sleep(&node, &["runs", "-g", "1"]).success();
    let in_use = "project a has 1 job(s), ended ones too; delete them first: `tranche list -p a` shows them";
    refuses(&project(&["delete", "a"]), in_use);
    until(&node, "runs", "running");
    refuses(&project(&["delete", "a"]), in_use);
    refuses(
        &project(&["delete", "b"]),
        "there is no project b; `tranche project list` shows those there are",
    );
    assert_eq!(project(&["list", "--json"]).success().matches("\"name\"").count(), 1);
}

#[test]
fn missing_command_fails_its_job_with_the_reason() {
    let node = node("v100x8", "4");
    submit(&node, &["missing", "-g", "1", "--", "no-such-program"]).success();
    assert_eq!(
        until(&node, "missing", "failed").reason,
        "there is no no-such-program in any folder of PATH; give its whole path, or set PATH with --env"
    );
    submit(&node, &["nowhere", "-g", "1", "--workdir", "/no/such/folder", "--", "true"]).success();
    assert_eq!(
        until(&node, "nowhere", "failed").reason,
        "cannot start in /no/such/folder: there is no such folder; name another with --workdir"
    );
    assert!(node.tranche(&["list"]).success().contains("no-such-program"));
    assert_eq!(job(&node, "missing").members[0].starts, 1, "it is not retried");
}

#[test]
fn non_members_may_only_read_a_projects_jobs() {
    let Some(shared) = Shared::with("") else { return };
    let node = &shared.node;
    node.tranche(&["project", "create", "a", "--quota", "1"]).success();
    submit_sleep(node, &["roots", "-g", "0.5", "--env", "SECRET=swordfish"]).success();
    until(node, "roots", "running");
    let stranger = "user 54321 is not a member of project a: an administrator of the node adds members, with \
                    `tranche project update a --add-member NAME`";
    // Membership of the group that may have slices is no membership of the project.
    for in_group in [false, true] {
        let by = |words: &[&str]| shared.by(ALICE, in_group, words);
        refuses(&by(&["submit", "mine", "-p", "a", "-g", "0.1", "--", "true"]), stranger);
        for words in
            [&["logs", "roots"][..], &["suspend", "roots"], &["resume", "roots"], &["delete", "roots"]]
        {
            refuses(&by(&[words, &["-p", "a"]].concat()), stranger);
        }
        let description = by(&["describe", "roots", "-p", "a"]).success();
        assert!(description.contains("Running") && !description.contains("sleep"), "{description}");
        assert!(by(&["list", "-A"]).success().contains("roots"));
        for words in
            [&["create", "b", "--quota", "0"][..], &["update", "a", "--quota", "0"], &["delete", "a"]]
        {
            by(&[&["project"], words].concat()).refused(1, &["only root", "uid 54321"]);
        }
        by(&["exec", "roots", "-p", "a", "--", "true"]).refused(1, &["uid 54321"]);
    }
    node.tranche(&["project", "update", "a", "--add-member", "54321"]).success();
    // A member is admitted; but no launcher could start a job as that user.
    let submitted = shared.by(ALICE, false, &["submit", "mine", "-p", "a", "-g", "0.1", "--", "true"]);
    submitted.refused(1, &["user 54321 sent no ticket", "tranche-attest.socket"]);
    assert_eq!(jobs(node).len(), 1);
    assert!(shared.by(ALICE, false, &["describe", "roots", "-p", "a"]).success().contains("sleep"));
}
