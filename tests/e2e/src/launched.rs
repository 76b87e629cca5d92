//! A node whose jobs are started by the job launcher, as on a node of several users.
//!
//! The launcher is started in place of systemd, with accounts of its own: files over those of `/etc` in its mount
//! namespace. A device `tun` in the node's folder is over the machine's, which may be root's alone.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::node::Node;
use crate::outcome::Outcome;
use crate::skip::skip;

/// Uid of the user that keeps tickets.
const KEEPER: u32 = 54332;
/// Reason of a panic of the harness.
const OWN: &str = "the test's own files and processes";

/// Script that runs a program with accounts of its own.
const AMONG: &str = r#"for file in passwd shadow subuid subgid; do mount --bind "$0/$file" /etc/$file || exit; done
[ ! -e "$0/tun" ] || mount --bind "$0/tun" /dev/net/tun || exit
{ [ ! -e "$0/pam.d" ] || mount --bind "$0/pam.d" /etc/pam.d; } && exec "$@""#;

/// A node with a job launcher, and a project `a` of the user alice's.
#[derive(Debug)]
pub struct Launched {
    /// The node, whose daemon is root's.
    pub node: Node,
    attest: Option<Child>,
    accepting: Option<JoinHandle<()>>,
    over: Arc<AtomicBool>,
}

impl Launched {
    /// Uid and gid of alice.
    pub const ALICE: u32 = 54331;
    /// Passwords of the accounts.
    pub const SHADOW: &str = "root:*:19000:0:99999:7:::\nalice:$6$salt$hash:19000:0:99999:7:::\n";

    /// A node with these GPUs, this quota of alice's project, and this configuration.
    ///
    /// `None`, with a skip, if this is not root.
    #[track_caller]
    pub fn start(preset: &str, quota: &str, configuration: &str) -> Option<Self> {
        let mut launched = Self::with(preset, quota, |_| configuration.to_owned())?;
        launched.add_launcher();
        Some(launched)
    }

    /// As [`Launched::start`], without the launcher; the configuration is for the node.
    #[track_caller]
    pub fn with(preset: &str, quota: &str, configuration: impl FnOnce(&Node) -> String) -> Option<Self> {
        let can = nix::unistd::geteuid().is_root()
            && Command::new("unshare")
                .args(["--mount", "true"])
                .status()
                .is_ok_and(|status| status.success());
        if !can {
            skip("only root can be several users, and have accounts of its own in a mount namespace");
            return None;
        }
        let mut node = Node::without_daemon(preset);
        fs::set_permissions(node.dir(), Permissions::from_mode(0o755)).expect(OWN);
        let alice = Self::ALICE;
        for (folder, uid, mode) in [("lib", 0, 0o755), ("tickets", KEEPER, 0o700), ("alice", alice, 0o700)] {
            let folder = node.dir().join(folder);
            fs::create_dir(&folder).expect(OWN);
            fs::set_permissions(&folder, Permissions::from_mode(mode)).expect(OWN);
            chown(folder, Some(uid), Some(uid)).expect(OWN);
        }
        let (library, lib) = (node.stage().shim(), node.dir().join("lib"));
        let beside = ["tranche-shepherd", "replace"].map(|name| library.with_file_name(name));
        // Not in this process: a file that a child of another test has open for writing cannot be executed.
        let mut copy = node.command("cp");
        node.run(copy.arg("-r").arg(&library).args(beside).arg(node.stage().command()).arg(&lib)).success();
        let shim = lib.join("libtranche_preload.so");
        node.configure(&format!("shim = '{}'\n{}", shim.display(), configuration(&node)));
        node.start_daemon();
        let uid = alice.to_string();
        node.tranche(&["project", "create", "a", "--quota", quota, "--member", &uid]).success();
        let launched = Self { node, attest: None, accepting: None, over: Arc::default() };
        launched.accounts("alice", Self::SHADOW);
        Some(launched)
    }

    /// A path in the node's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.node.dir().join(name)
    }

    /// Writes the accounts; alice's uid has the given name.
    pub fn accounts(&self, name: &str, shadow: &str) {
        let (home, alice) = (self.path("alice").display().to_string(), Self::ALICE);
        let passwd = format!(
            "root:x:0:0::/root:/bin/sh\n{name}:x:{alice}:{alice}::{home}:/bin/sh\nkeeper:x:{KEEPER}:{KEEPER}::/:/bin/false\n"
        );
        let ranges = format!("{name}:200000:65536\n");
        for (file, text) in
            [("passwd", passwd.as_str()), ("shadow", shadow), ("subuid", &ranges), ("subgid", &ranges)]
        {
            fs::write(self.path(file), text).expect(OWN);
        }
    }

    fn among_accounts(dir: &Path, words: &[&str], stdin: OwnedFd) -> Child {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", AMONG]).arg(dir).args(words);
        command.stdin(Stdio::from(stdin)).spawn().expect(OWN)
    }

    /// Makes the two sockets and starts their programs, in place of systemd.
    pub fn add_launcher(&mut self) {
        let dir = self.node.dir().to_owned();
        let program = dir.join("lib/tranche-shepherd").display().to_string();
        let tickets = dir.join("tickets").display().to_string();
        let attest = UnixListener::bind(dir.join("run/attest.sock")).expect(OWN);
        fs::set_permissions(dir.join("run/attest.sock"), Permissions::from_mode(0o666)).expect(OWN);
        let keeper = KEEPER.to_string();
        let (reuid, regid) = (format!("--reuid={keeper}"), format!("--regid={keeper}"));
        let words = ["setpriv", &reuid, &regid, "--clear-groups", "--", &program, "attest", &tickets];
        self.attest = Some(Self::among_accounts(&dir, &words, attest.into()));
        let jobs = UnixListener::bind(dir.join("run/jobs.sock")).expect(OWN);
        jobs.set_nonblocking(true).expect(OWN);
        let over = Arc::clone(&self.over);
        self.accepting = Some(std::thread::spawn(move || {
            let mut started = Vec::new();
            while !over.load(Relaxed) {
                match jobs.accept() {
                    Ok((stream, _)) => {
                        let words = ["setpriv", "--", &program, "launch", &tickets, "keeper"];
                        stream.set_nonblocking(false).expect(OWN);
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
    #[track_caller]
    pub fn by_alice(&self, arguments: &[&str]) -> Outcome {
        let id = Self::ALICE;
        self.as_user(&[&format!("--reuid={id}"), &format!("--regid={id}"), "--clear-groups"], arguments)
    }

    /// Runs `tranche` with these options of setpriv.
    #[track_caller]
    pub fn as_user(&self, who: &[&str], arguments: &[&str]) -> Outcome {
        let mut command = self.node.command("setpriv");
        command.args(who).arg("--").arg(self.path("lib/tranche")).args(arguments);
        self.node.run(command.current_dir("/").env("HOME", self.path("alice")))
    }

    /// Prepares a program that runs as alice, among the accounts, with this further group.
    pub fn program_of_alice(&self, group: u32, program: impl AsRef<OsStr>) -> Command {
        let id = Self::ALICE;
        let mut command = self.node.command("unshare");
        command.args(["--mount", "sh", "-c", AMONG]).arg(self.node.dir()).arg("setpriv");
        command.args([format!("--reuid={id}"), format!("--regid={id}"), format!("--groups={group}")]);
        command.arg("--").arg(program);
        command.current_dir("/").env("HOME", self.path("alice")).env("USER", "alice").env("LOGNAME", "alice");
        command
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        let listed = self.node.tranche(&["list", "-A", "-o", "name"]).stdout;
        for job in listed.lines() {
            self.node.tranche(&["delete", "-p", "a", job]);
        }
        self.over.store(true, Relaxed);
        let _ = self.accepting.take().map(JoinHandle::join);
        for child in self.attest.iter_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
