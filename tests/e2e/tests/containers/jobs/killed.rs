//! `kill -9` of any process of a job leaves no container, no process of it and no slice.

use std::time::Duration;

use e2e::{eventually, holds_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::users::{IMAGE, JobProcess, Role, Users};

/// Program that holds its slice, and ends for nothing but SIGKILL.
const STUBBORN: &str = "trap '' TERM; echo ready; while :; do busybox sleep 0.1; done";

fn kill_9(pid: u32) {
    let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
}

impl Users {
    fn of_role(&self, role: Role) -> Vec<JobProcess> {
        self.processes().into_iter().filter(|process| process.role == role).collect()
    }

    /// Kills all processes with this part in the job, which there has to be one of.
    #[track_caller]
    fn kill_role(&self, role: Role) {
        let victims = eventually("there is such a process", || match self.of_role(role) {
            none if none.is_empty() => Err(format!("{role:?}: {:?}", self.processes())),
            some => Ok(some),
        });
        victims.iter().for_each(|process| kill_9(process.pid));
    }

    fn submit_stubborn(&self, name: &str, more: &[&str]) {
        let words =
            [&[name, "-i", IMAGE, "-g", "0.5", "--grace", "200ms"], more, &["--", "sh", "-c", STUBBORN]];
        self.submit(&words.concat()).success();
    }

    #[track_caller]
    fn until_ready(&self, name: &str) {
        eventually("the program runs", || match self.log(name) {
            log if log.contains("ready") => Ok(()),
            log => Err(log),
        });
    }
}

#[test]
fn killed_process_of_a_running_job_leaves_nothing() {
    let Some(users) = Users::begin() else { return };
    for role in [Role::Runner, Role::Podman, Role::Program] {
        users.submit_stubborn("job", &[]);
        users.until_ready("job");
        users.kill_role(role);
        let job = users.until("job", "failed");
        assert!(!job.reason.is_empty(), "{role:?}");
        users.assert_nothing_left();
        users.tranche(&["delete", "job"]).success();
    }
}

#[test]
fn job_whose_monitor_was_killed_can_be_deleted() {
    let Some(users) = Users::begin() else { return };
    users.submit_stubborn("job", &[]);
    users.until_ready("job");
    users.kill_role(Role::Monitor);
    users.tranche(&["delete", "job"]).success();
    users.assert_nothing_left();
}

#[test]
fn all_processes_of_a_job_killed_at_once_leave_nothing() {
    let Some(users) = Users::begin() else { return };
    users.submit_stubborn("job", &[]);
    users.until_ready("job");
    users.processes().iter().for_each(|process| kill_9(process.pid));
    users.until("job", "failed");
    users.assert_nothing_left();
}

#[test]
fn runner_killed_at_any_moment_of_a_start_leaves_nothing() {
    let Some(users) = Users::begin() else { return };
    for moment_ms in [0, 30, 60, 100, 150, 200, 300, 500] {
        users.submit_stubborn("job", &[]);
        eventually("there is a runner", || match users.of_role(Role::Runner) {
            none if none.is_empty() => Err("none".to_owned()),
            _ => Ok(()),
        });
        std::thread::sleep(Duration::from_millis(moment_ms));
        users.of_role(Role::Runner).iter().for_each(|process| kill_9(process.pid));
        users.tranche(&["delete", "job"]).success();
        users.assert_nothing_left();
    }
}

#[test]
fn daemon_killed_at_any_moment_leaves_nothing_after_the_next() {
    let Some(mut users) = Users::begin() else { return };
    for (moment_ms, with_runner) in [(0, false), (100, false), (400, false), (400, true)] {
        users.submit_stubborn("job", &[]);
        std::thread::sleep(Duration::from_millis(moment_ms));
        users.launched.node.kill_daemon();
        if with_runner {
            users.of_role(Role::Runner).iter().for_each(|process| kill_9(process.pid));
        }
        users.launched.node.start_daemon();
        users.tranche(&["delete", "job"]).success();
        users.assert_nothing_left();
    }
}

#[test]
fn client_killed_after_its_submission_changes_nothing() {
    let Some(users) = Users::begin() else { return };
    let tranche = users.launched.path("lib/tranche").display().to_string();
    let words =
        ["submit", "job", "-i", IMAGE, "-g", "0.5", "--", "sh", "-c", "echo $OF_IMAGE; busybox sleep 1"];
    let client = e2e::Process::start(users.of_alice(&tranche).args(words));
    eventually(
        "the job is there",
        || if users.jobs().is_empty() { Err("no job".to_owned()) } else { Ok(()) },
    );
    client.signal(Signal::SIGKILL);
    users.until("job", "succeeded");
    assert_eq!(users.log("job"), "here\n");
    users.assert_nothing_left();
}

#[test]
fn job_that_is_suspended_and_resumed_has_one_container_at_a_time() {
    let Some(users) = Users::begin() else { return };
    users.submit_stubborn("job", &["--retries", "3"]);
    users.until_ready("job");
    users.tranche(&["suspend", "job"]).success();
    users.until("job", "pending");
    users.assert_nothing_left();
    users.tranche(&["resume", "job"]).success();
    users.until("job", "running");
    holds_for("there is one container", Duration::from_millis(500), || {
        let known = users.podman(&["ps", "--all", "--format", "{{.Names}}"]).success();
        if known.lines().count() <= 1 { Ok(()) } else { Err(known) }
    });
    users.tranche(&["delete", "job"]).success();
    users.assert_nothing_left();
}
