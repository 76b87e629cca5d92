//! Reasons of jobs whose container cannot be made or started, with the remedy.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use super::users::{IMAGE, Users};

impl Users {
    /// Submits a job and fails unless it fails with these words.
    #[track_caller]
    fn fails(&self, words: &[&str], told: &[&str]) {
        self.submit(&[&["job", "-g", "0.5"], words].concat()).success();
        let job = self.until("job", "failed");
        for part in told {
            assert!(job.reason.contains(part), "{part:?} is not in {:?}", job.reason);
        }
        self.assert_nothing_left();
        self.tranche(&["delete", "job"]).success();
    }
}

#[test]
fn container_that_cannot_be_made_is_the_jobs_reason() {
    let Some(users) = Users::begin() else { return };
    let absent = ["-i", "localhost/nothing", "--pull", "never"];
    users.fails(&absent, &["localhost/nothing is not among", "--pull never", "podman pull"]);
    users.fails(&["-i", "nothing/here"], &["has no registry", "docker.io/nothing/here"]);
    // The name is reserved: no resolver knows it.
    let unreachable = ["-i", "registry.invalid/a/b"];
    users.fails(&unreachable, &["registry.invalid/a/b cannot be pulled", "cannot be reached", "podman load"]);
    let mount = ["-i", IMAGE, "-v", "/nonexistent/nfs:/nfs", "--", "sh"];
    users.fails(&mount, &["there is no /nonexistent/nfs on this node", "--volume HOST:PATH"]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port can be had");
    let port = taken.local_addr().expect("it has an address").port();
    let publish = format!("{port}:8888");
    users.fails(&["-i", IMAGE, "--port", &publish, "--", "sh"], &["is taken", "--port", ":8888"]);
    users.fails(&["-i", IMAGE, "--", "nosuch"], &["did not start", "nosuch", "has to be in the image"]);
    users.fails(&["-i", IMAGE], &["no command", "behind --"]);
}

#[test]
fn exit_status_is_the_programs_own() {
    let Some(users) = Users::begin() else { return };
    for status in ["1", "125", "126", "127"] {
        let exit = format!("exit {status}");
        users.fails(&["-i", IMAGE, "--", "sh", "-c", &exit], &[&format!("exited with status {status}")]);
    }
}

#[test]
fn node_without_podman_says_what_to_install() {
    let Some(users) = Users::begin() else { return };
    let empty = users.folder("empty");
    let tranche = users.launched.path("lib/tranche").display().to_string();
    let submit = ["submit", "job", "-i", IMAGE, "-g", "0.5"];
    let path = format!("{}:/nonexistent", empty.display());
    users.node().run(users.of_alice("env").arg(format!("PATH={path}")).arg(&tranche).args(submit)).success();
    let job = users.until("job", "failed");
    assert!(
        job.reason.contains("podman is not installed") && job.reason.contains("apt install podman"),
        "{}",
        job.reason
    );
}

#[test]
fn hardened_unit_refuses_containers_with_the_remedy() {
    let Some(users) = Users::begin() else { return };
    // As the unit has it: no program of the job gains privileges.
    let shepherd = users.launched.path("lib/tranche-shepherd");
    let own = users.launched.path("lib/own/tranche-shepherd");
    fs::create_dir(users.launched.path("lib/own")).expect("a folder can be made");
    for file in ["tranche-shepherd", "libtranche_preload.so", "replace"] {
        fs::rename(users.launched.path("lib").join(file), users.launched.path("lib/own").join(file))
            .expect("it is there");
    }
    let text = format!("#!/bin/sh\nexec setpriv --no-new-privs {} \"$@\"\n", own.display());
    fs::write(&shepherd, text).expect("a file can be made");
    fs::set_permissions(&shepherd, fs::Permissions::from_mode(0o755)).expect("it is there");
    fs::copy(
        users.launched.path("lib/own/libtranche_preload.so"),
        users.launched.path("lib/libtranche_preload.so"),
    )
    .expect("it is there");
    users.fails(&["-i", IMAGE, "--", "sh"], &["NoNewPrivileges", "examples/jobs.conf"]);
}

#[test]
fn malformed_container_is_refused_before_submission() {
    let Some(users) = Users::begin() else { return };
    let refused = |words: &[&str], code: i32, told: &str| {
        let outcome = users.submit(&[&["job", "-g", "0.5"], words].concat());
        assert_eq!(outcome.code, Some(code), "{outcome}");
        assert!(outcome.stderr.contains(told), "{told:?} is not in {outcome}");
    };
    refused(&["-i", "Jupyter/Base", "--", "true"], 2, "in small letters");
    refused(&["-i", "--privileged"], 2, "--privileged");
    refused(&["-v", "/nfs:/nfs", "--", "true"], 2, "--image");
    refused(&["--port", "8888", "--", "true"], 2, "--image");
    refused(&["--shm", "8GiB", "--", "true"], 2, "--image");
    refused(&["--pull", "never", "--", "true"], 2, "--image");
    refused(&[], 2, "<CMD>");
    refused(&["-i", "a", "-v", "/nfs"], 1, "HOST:PATH");
    refused(&["-i", "a", "-v", "/nfs:/run/tranche/slice"], 1, "the slice's own files");
    refused(&["-i", "a", "--port", "99999"], 2, "1 to 65535");
    refused(&["-i", "a", "--port", "80:1", "--port", "80:2"], 1, "published twice");
    refused(&["-i", "a", "-e", "A*=1"], 1, "variable of a container");
    assert!(users.jobs().is_empty());
}
