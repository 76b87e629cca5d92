//! The job launcher starts a command as the user that attested it, whatever a daemon requests.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use e2e::{Launched, eventually};
use serde_json::{Value, json};

use super::{Job, job, jobs, until};

const ALICE: u32 = Launched::ALICE;
const SHADOW: &str = Launched::SHADOW;

/// Steps of these tests on such a node.
trait OnLaunched {
    fn waits(&self, name: &str) -> impl FnOnce();
    fn tickets(&self) -> Vec<String>;
    fn has_failed(&self, name: &str, words: &[&str]) -> Job;
    fn answer(&self, message: &Value, order: &Value) -> String;
}

impl OnLaunched for Launched {
    /// Submits a job of alice's that waits for the only GPU, which a pod has. The returned function frees that.
    fn waits(&self, name: &str) -> impl FnOnce() {
        self.node.tranche(&["slice", "create", "other", "-g", "1", "--pod", "teams/other/main"]).success();
        self.by_alice(&["submit", name, "-g", "1", "--", "sh", "-c", "touch $HOME/ran"]).success();
        || drop(self.node.tranche(&["slice", "delete", "other"]).success())
    }

    fn tickets(&self) -> Vec<String> {
        let entries =
            fs::read_dir(self.path("tickets")).expect("the test's own files and processes").flatten();
        entries
            .map(|entry| entry.file_name().into_string().expect("the test's own files and processes"))
            .collect()
    }

    fn has_failed(&self, name: &str, words: &[&str]) -> Job {
        let failed = until(&self.node, name, "failed");
        for word in words {
            assert!(failed.reason.contains(word), "{word:?} is not in {:?}", failed.reason);
        }
        failed
    }

    /// The launcher's answer to a daemon's message; empty if it closes the connection.
    fn answer(&self, message: &Value, order: &Value) -> String {
        let mut stream =
            UnixStream::connect(self.path("run/jobs.sock")).expect("the test's own files and processes");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("the test's own files and processes");
        stream.write_all(format!("{message}\n").as_bytes()).expect("the test's own files and processes");
        let mut answer = String::new();
        let _ = BufReader::new(&stream).read_line(&mut answer);
        // Sent after any answer; the launcher may have closed the connection.
        let _ = stream.write_all(format!("{order}\n").as_bytes());
        let _ = stream.read_to_end(&mut Vec::new());
        answer
    }
}

fn started() -> Option<Launched> {
    Launched::start("h200x1", "1", "")
}

#[test]
fn a_users_job_runs_as_that_user_by_a_ticket() {
    let Some(launched) = started() else { return };
    launched
        .by_alice(&["submit", "mine", "-g", "1", "--", "sh", "-c", "id -u; id -G; echo $LD_PRELOAD"])
        .success();
    until(&launched.node, "mine", "succeeded");
    let log = launched.node.tranche(&["logs", "mine"]).success();
    let library = launched.path("lib/libtranche_preload.so");
    assert_eq!(log, format!("{ALICE}\n{ALICE}\n{}\n", library.display()));
    eventually("a job that is over leaves no ticket", || match launched.tickets() {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    });
}

#[test]
fn daemon_without_a_ticket_starts_no_process() {
    let Some(launched) = started() else { return };
    let (attempt, log, proof) =
        (launched.path("attempt"), launched.path("log"), launched.path("alice/proof"));
    [&attempt, &log].iter().for_each(|path| fs::write(path, "").expect("the test's own files and processes"));
    let evil = json!({"command": ["/bin/sh", "-c", format!("id -u >{}", proof.display())], "environment": [],
        "workdir": "/", "farewell": {"warning": null, "grace": {"secs": 1, "nanos": 0}}});
    for uid in [0, ALICE] {
        let hail = json!({"uid": uid, "gid": uid, "attempt": attempt, "log": log});
        assert_eq!(launched.answer(&hail, &evil), "", "a message of an earlier release gets no answer");
        let start = json!({"start": {"ticket": format!("{uid}-{}", "0".repeat(32)), "index": 0, "kept": 1,
            "command": evil["command"], "workdir": "/"}});
        let answer = launched.answer(&start, &evil);
        assert!(answer.contains("never issued") && answer.contains("\"for_good\":true"), "{answer:?}");
    }
    // Alice's ticket is valid for the command that she attested only.
    let go = launched.waits("waits");
    let ticket = launched.tickets().pop().expect("the test's own files and processes");
    let start = json!({"start": {"ticket": ticket, "index": 0, "kept": 1, "command": evil["command"], "workdir": "/"}});
    let answer = launched.answer(&start, &evil);
    assert!(answer.contains("not what its submitter attested"), "{answer:?}");
    // A service would be started without bound.
    let own = ["sh", "-c", "touch $HOME/ran"];
    let service = json!({"start": {"ticket": ticket, "index": 0, "kept": 1, "command": own, "workdir": start["start"]["workdir"],
        "service": {}}});
    let answer = launched.answer(&service, &evil);
    assert!(answer.contains("not what its submitter attested"), "{answer:?}");
    go();
    until(&launched.node, "waits", "succeeded");
    assert!(!proof.exists());
}

#[test]
fn a_ticket_that_its_submitter_revokes_starts_nothing() {
    let Some(launched) = started() else { return };
    let go = launched.waits("waits");
    let ticket = launched.tickets().pop().expect("the test's own files and processes");
    let (reuid, regid) = (format!("--reuid={ALICE}"), format!("--regid={ALICE}"));
    // Revoked at the launcher alone: the daemon keeps the job.
    let script = "import socket, json, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\nf = s.makefile('rw')\n\
        nonce = json.loads(f.readline())['nonce']\nf.write(json.dumps({'nonce': nonce, 'ask': {'revoke': sys.argv[2]}}) + '\\n')\n\
        f.flush()\nprint(f.readline())";
    let socket = launched.path("run/attest.sock");
    let bob = format!("--reuid={}", ALICE + 9);
    for (who, answer) in [(&bob, "is not of user"), (&reuid, "\"revoked\":1"), (&reuid, "\"revoked\":0")] {
        let mut command = launched.node.command("setpriv");
        command
            .args([who, &regid, "--clear-groups", "--", "python3", "-c", script])
            .arg(&socket)
            .arg(&ticket)
            .env("PATH", "/usr/bin:/bin");
        let output = launched.node.run(&mut command).success();
        assert!(output.contains(answer), "{output}");
    }
    go();
    launched.has_failed("waits", &["has been revoked", "submit the job again"]);
}

#[test]
fn another_owner_of_a_uid_does_not_run_its_jobs() {
    let Some(launched) = started() else { return };
    let go = launched.waits("waits");
    launched.accounts("mallory", SHADOW);
    go();
    launched.has_failed("waits", &["was alice", "is mallory now"]);
    assert!(!launched.path("alice/ran").exists());
}

#[test]
fn an_account_that_was_made_anew_runs_no_old_job() {
    let Some(launched) = started() else { return };
    let go = launched.waits("waits");
    let home = launched.path("alice");
    let before = fs::metadata(&home).expect("the test's own files and processes").ino();
    fs::rename(&home, launched.path("alice.old")).expect("the test's own files and processes");
    fs::create_dir(&home).expect("the test's own files and processes");
    chown(&home, Some(ALICE), Some(ALICE)).expect("the test's own files and processes");
    assert_ne!(fs::metadata(&home).expect("the test's own files and processes").ino(), before);
    go();
    launched.has_failed("waits", &["not the one that submitted"]);
}

#[test]
fn a_locked_or_expired_account_runs_no_job() {
    for (shadow, why) in [
        (SHADOW.replace("$6$", "!$6$"), "is locked"),
        (SHADOW.replace("7:::\nalice", "7:::\nx") + "alice:*:1:0:9:7::2:\n", "has expired"),
    ] {
        let Some(launched) = started() else { return };
        let go = launched.waits("waits");
        launched.accounts("alice", &shadow);
        go();
        launched.has_failed("waits", &["the account alice", why]);
        // The reason is shown to alice and her project only.
        let stranger =
            launched.as_user(&["--reuid=54399", "--clear-groups"], &["list", "-A", "--json"]).success();
        assert!(stranger.contains("could not be started") && !stranger.contains(why), "{stranger}");
    }
}

#[test]
fn the_sites_policy_for_accounts_bars_jobs() {
    for (policy, state, words) in [
        ("account required pam_deny.so", "failed", "may not run jobs, by /etc/pam.d/tranche"),
        ("account required pam_permit.so", "succeeded", ""),
    ] {
        let Some(launched) = started() else { return };
        let go = launched.waits("waits");
        fs::create_dir(launched.path("pam.d")).expect("the test's own files and processes");
        fs::write(launched.path("pam.d/tranche"), format!("{policy}\n"))
            .expect("the test's own files and processes");
        go();
        let ended = until(&launched.node, "waits", state);
        assert!(ended.reason.contains(words), "{}", ended.reason);
    }
}

#[test]
fn root_without_capabilities_gets_no_ticket() {
    let Some(launched) = started() else { return };
    let bare = ["--bounding-set=-all", "--inh-caps=-all"];
    let submit = ["submit", "roots", "-g", "1", "--", "sh", "-c", "id -u; grep CapEff /proc/self/status"];
    launched
        .as_user(&bare, &submit)
        .refused(1, &["gave no ticket", "root without all of root's capabilities"]);
    assert!(jobs(&launched.node).is_empty() && launched.tickets().is_empty());
    launched.as_user(&[], &submit).success();
    until(&launched.node, "roots", "succeeded");
    let log = launched.node.tranche(&["logs", "roots"]).success();
    assert_eq!(log, "0\nCapEff:\t0000000000000000\n");
}

#[test]
fn an_earlier_tranche_is_refused_with_what_to_do() {
    let Some(launched) = started() else { return };
    // An earlier release has no such socket.
    fs::rename(launched.path("run/attest.sock"), launched.path("run/hidden.sock"))
        .expect("the test's own files and processes");
    let submitted = launched.by_alice(&["submit", "old", "-g", "1", "--", "true"]);
    submitted.refused(1, &["sent no ticket", "systemctl enable --now tranche-attest.socket"]);
    assert!(jobs(&launched.node).is_empty());
}

#[test]
fn a_job_of_an_earlier_release_fails_with_what_to_do() {
    let Some(mut launched) = Launched::with("h200x1", "1", |_| String::new()) else { return };
    launched.node.tranche(&["slice", "create", "other", "-g", "1", "--pod", "teams/other/main"]).success();
    launched.node.tranche(&["submit", "old", "-g", "1", "--", "true"]).success();
    launched.add_launcher();
    launched.node.tranche(&["slice", "delete", "other"]).success();
    launched.has_failed("old", &["no ticket of its submitter's", "submit it again"]);
}

#[test]
fn a_process_in_a_container_gets_no_ticket() {
    let Some(launched) = started() else { return };
    let tranche = launched.path("lib/tranche");
    for (namespace, why) in [("--pid", "pid namespace"), ("--user", "user namespace")] {
        let mut command = launched.node.command("unshare");
        command
            .args([namespace, "--fork", "--"])
            .arg(&tranche)
            .args(["submit", "inside", "-g", "1", "--", "true"]);
        launched.node.run(&mut command).refused(1, &["gave no ticket", why]);
    }
    assert!(jobs(&launched.node).is_empty());
}

#[test]
fn roots_command_in_a_users_job_has_roots_environment() {
    let Some(launched) = started() else { return };
    let job = ["submit", "runs", "-g", "1", "--env", "GREETING=hello", "--", "sleep", "1000"];
    launched.by_alice(&job).success();
    until(&launched.node, "runs", "running");
    let told = ["exec", "runs", "--", "sh", "-c", "echo [$GREETING]"];
    let by_root = launched.node.tranche(&told);
    assert!(by_root.stderr.contains("another user's"), "{by_root}");
    assert_eq!(by_root.success().trim(), "[]", "alice's PATH and libraries are not root's");
    launched.node.tranche(&["delete", "runs"]).success();
}

#[test]
fn deleting_a_job_leaves_no_ticket() {
    let Some(launched) = started() else { return };
    drop(launched.waits("waits"));
    assert_eq!(launched.tickets().len(), 1);
    launched.node.tranche(&["delete", "waits"]).success();
    eventually("nothing is left", || {
        if launched.tickets().is_empty() { Ok(()) } else { Err("a ticket".into()) }
    });
    launched.node.tranche(&["slice", "delete", "other"]).success();
    // A job that the daemon refuses leaves none either.
    launched.by_alice(&["submit", "large", "-g", "9", "--", "true"]).refused(1, &["could never start"]);
    assert_eq!(launched.tickets(), [""; 0]);
    assert!(jobs(&launched.node).iter().all(|listed| job(&launched.node, &listed.name).name != "large"));
}
