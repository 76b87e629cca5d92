//! The job launcher starts a command as the user that attested it, whatever a daemon requests.
//!
//! The tests start it in place of systemd, with accounts of their own: files over /etc/passwd and /etc/shadow in its
//! mount namespace.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use e2e::{Node, Outcome, eventually, skip};
use serde_json::{Value, json};

use super::{Job, job, jobs, until};

/// Uids of users whose accounts the tests make.
const ALICE: u32 = 54331;
const KEEPER: u32 = 54332;
const SHADOW: &str = "root:*:19000:0:99999:7:::\nalice:$6$salt$hash:19000:0:99999:7:::\n";

/// Script that runs a program with accounts of its own.
const AMONG: &str = r#"mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/shadow" /etc/shadow && { [ ! -e "$0/pam.d" ] || mount --bind "$0/pam.d" /etc/pam.d; } && exec "$@""#;

struct Launched {
    node: Node,
    attest: Option<Child>,
    accepting: Option<JoinHandle<()>>,
    over: Arc<AtomicBool>,
}

impl Launched {
    /// A node of one GPU with a project of alice's; `None`, with a skip, if this is not root.
    fn start() -> Option<Self> {
        let mut launched = Self::without_launcher()?;
        launched.add_launcher();
        Some(launched)
    }

    fn without_launcher() -> Option<Self> {
        let can = nix::unistd::geteuid().is_root()
            && Command::new("unshare")
                .args(["--mount", "true"])
                .status()
                .is_ok_and(|status| status.success());
        if !can {
            skip("only root can be several users, and have accounts of its own in a mount namespace");
            return None;
        }
        let mut node = Node::without_daemon("h200x1");
        fs::set_permissions(node.dir(), Permissions::from_mode(0o755))
            .expect("the test's own files and processes");
        for (folder, uid, mode) in [("lib", 0, 0o755), ("tickets", KEEPER, 0o700), ("alice", ALICE, 0o700)] {
            let folder = node.dir().join(folder);
            fs::create_dir(&folder).expect("the test's own files and processes");
            fs::set_permissions(&folder, Permissions::from_mode(mode))
                .expect("the test's own files and processes");
            chown(folder, Some(uid), Some(uid)).expect("the test's own files and processes");
        }
        let (library, lib) = (node.stage().shim(), node.dir().join("lib"));
        let files = [library.clone(), library.with_file_name("tranche-shepherd"), node.stage().command()];
        // Not in this process: a file that a child of another test has open for writing cannot be executed.
        node.run(node.command("cp").args(files).arg(&lib)).success();
        node.configure(&format!("shim = '{}'\n", lib.join("libtranche_preload.so").display()));
        let launched = |node| Self { node, attest: None, accepting: None, over: Arc::default() };
        node.start_daemon();
        let uid = ALICE.to_string();
        node.tranche(&["project", "create", "a", "--quota", "1", "--member", &uid]).success();
        let launched = launched(node);
        launched.accounts("alice", SHADOW);
        Some(launched)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.node.dir().join(name)
    }

    /// Writes the accounts; alice's uid has the given name.
    fn accounts(&self, name: &str, shadow: &str) {
        let home = self.path("alice").display().to_string();
        let passwd = format!(
            "root:x:0:0::/root:/bin/sh\n{name}:x:{ALICE}:{ALICE}::{home}:/bin/sh\nkeeper:x:{KEEPER}:{KEEPER}::/:/bin/false\n"
        );
        fs::write(self.path("passwd"), passwd).expect("the test's own files and processes");
        fs::write(self.path("shadow"), shadow).expect("the test's own files and processes");
    }

    fn among_accounts(dir: &Path, words: &[&str], stdin: OwnedFd) -> Child {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", AMONG]).arg(dir).args(words);
        command.stdin(Stdio::from(stdin)).spawn().expect("the test's own files and processes")
    }

    /// Makes the two sockets and starts their programs, in place of systemd.
    fn add_launcher(&mut self) {
        let dir = self.node.dir().to_owned();
        let program = dir.join("lib/tranche-shepherd").display().to_string();
        let tickets = dir.join("tickets").display().to_string();
        let attest =
            UnixListener::bind(dir.join("run/attest.sock")).expect("the test's own files and processes");
        fs::set_permissions(dir.join("run/attest.sock"), Permissions::from_mode(0o666))
            .expect("the test's own files and processes");
        let keeper = KEEPER.to_string();
        let (reuid, regid) = (format!("--reuid={keeper}"), format!("--regid={keeper}"));
        let words = ["setpriv", &reuid, &regid, "--clear-groups", "--", &program, "attest", &tickets];
        self.attest = Some(Self::among_accounts(&dir, &words, attest.into()));
        let jobs = UnixListener::bind(dir.join("run/jobs.sock")).expect("the test's own files and processes");
        jobs.set_nonblocking(true).expect("the test's own files and processes");
        let over = Arc::clone(&self.over);
        self.accepting = Some(std::thread::spawn(move || {
            let mut started = Vec::new();
            while !over.load(Relaxed) {
                match jobs.accept() {
                    Ok((stream, _)) => {
                        let words = ["setpriv", "--", &program, "launch", &tickets, "keeper"];
                        stream.set_nonblocking(false).expect("the test's own files and processes");
                        started.push(Self::among_accounts(&dir, &words, stream.into()));
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
                started.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
            }
            for mut child in started {
                let _ = child.kill();
                let _ = child.wait();
            }
        }));
    }

    /// Runs `tranche` as alice.
    fn by_alice(&self, arguments: &[&str]) -> Outcome {
        let (reuid, regid) = (format!("--reuid={ALICE}"), format!("--regid={ALICE}"));
        self.as_user(&[&reuid, &regid, "--clear-groups"], arguments)
    }

    fn as_user(&self, who: &[&str], arguments: &[&str]) -> Outcome {
        let mut command = self.node.command("setpriv");
        command.args(who).arg("--").arg(self.path("lib/tranche")).args(arguments);
        self.node.run(command.current_dir("/").env("HOME", self.path("alice")))
    }

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

impl Drop for Launched {
    fn drop(&mut self) {
        for job in jobs(&self.node) {
            self.node.tranche(&["delete", &job.name]);
        }
        self.over.store(true, Relaxed);
        let _ = self.accepting.take().map(JoinHandle::join);
        for child in self.attest.iter_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_users_job_runs_as_that_user_by_a_ticket() {
    let Some(launched) = Launched::start() else { return };
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
    let Some(launched) = Launched::start() else { return };
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
    go();
    until(&launched.node, "waits", "succeeded");
    assert!(!proof.exists());
}

#[test]
fn a_ticket_that_its_submitter_revokes_starts_nothing() {
    let Some(launched) = Launched::start() else { return };
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
    let Some(launched) = Launched::start() else { return };
    let go = launched.waits("waits");
    launched.accounts("mallory", SHADOW);
    go();
    launched.has_failed("waits", &["was alice", "is mallory now"]);
    assert!(!launched.path("alice/ran").exists());
}

#[test]
fn an_account_that_was_made_anew_runs_no_old_job() {
    let Some(launched) = Launched::start() else { return };
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
        let Some(launched) = Launched::start() else { return };
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
        let Some(launched) = Launched::start() else { return };
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
    let Some(launched) = Launched::start() else { return };
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
    let Some(launched) = Launched::start() else { return };
    // An earlier release has no such socket.
    fs::rename(launched.path("run/attest.sock"), launched.path("run/hidden.sock"))
        .expect("the test's own files and processes");
    let submitted = launched.by_alice(&["submit", "old", "-g", "1", "--", "true"]);
    submitted.refused(1, &["sent no ticket", "systemctl enable --now tranche-attest.socket"]);
    assert!(jobs(&launched.node).is_empty());
}

#[test]
fn a_job_of_an_earlier_release_fails_with_what_to_do() {
    let Some(mut launched) = Launched::without_launcher() else { return };
    launched.node.tranche(&["slice", "create", "other", "-g", "1", "--pod", "teams/other/main"]).success();
    launched.node.tranche(&["submit", "old", "-g", "1", "--", "true"]).success();
    launched.add_launcher();
    launched.node.tranche(&["slice", "delete", "other"]).success();
    launched.has_failed("old", &["no ticket of its submitter's", "submit it again"]);
}

#[test]
fn a_process_in_a_container_gets_no_ticket() {
    let Some(launched) = Launched::start() else { return };
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
    let Some(launched) = Launched::start() else { return };
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
    let Some(launched) = Launched::start() else { return };
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
