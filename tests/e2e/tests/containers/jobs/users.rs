//! A node with a job launcher, whose user alice has rootless podman with an image of her own.
#![allow(clippy::unwrap_used, reason = "only tests use it, and files that they make can be made")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;

use e2e::{Launched, Node, Outcome, eventually, skip};

use super::Job;
use crate::engine::{self, Image};

/// Name of alice's image, which has a tenant and a static shell.
pub(super) const IMAGE: &str = "localhost/glibc";

/// The node and its user.
pub(super) struct Users {
    pub(super) launched: Launched,
    group: u32,
}

impl Users {
    /// A node of eight GPUs, all of which are of alice's project.
    ///
    /// `None`, with a skip, if this machine cannot run rootless containers.
    #[track_caller]
    pub(super) fn begin() -> Option<Self> {
        Self::on("v100x8", "8")
    }

    /// As [`Users::begin`], with these GPUs and this quota.
    #[track_caller]
    pub(super) fn on(preset: &str, quota: &str) -> Option<Self> {
        let missing = engine::missing().or_else(|| {
            let is_there = Command::new("newuidmap").output().is_ok();
            (!is_there)
                .then_some("there is no newuidmap here (Debian: uidmap), without which podman needs root")
        });
        if let Some(missing) = missing {
            skip(missing);
            return None;
        }
        // Into slices get members of the group alone.
        let gid = nix::unistd::Gid::from_raw(1);
        let group = nix::unistd::Group::from_gid(gid).unwrap().unwrap();
        let mut launched = Launched::with(preset, quota, |node| {
            fs::set_permissions(node.gpus(), fs::Permissions::from_mode(0o666)).unwrap();
            format!("cdi_dir = {:?}\nsocket_group = '{}'\n", node.dir().join("cdi"), group.name)
        })?;
        launched
            .node
            .run(
                launched
                    .node
                    .command("mknod")
                    .arg(launched.path("tun"))
                    .args(["-m", "666", "c", "10", "200"]),
            )
            .success();
        launched.add_launcher();
        let users = Self { launched, group: group.gid.as_raw() };
        let podman = users.podman_folder();
        fs::set_permissions(users.folder("xdg"), fs::Permissions::from_mode(0o700)).unwrap();
        engine::write_configuration(&podman);
        users
            .node()
            .run(Command::new("chown").arg("-R").arg(format!("{0}:{0}", Launched::ALICE)).arg(&podman))
            .success();
        let archive = Image::glibc(users.node()).archive(users.node()).display().to_string();
        users.podman(&["import", "-q", "--change", "ENV OF_IMAGE=here", &archive, IMAGE]).success();
        Some(users)
    }

    pub(super) const fn node(&self) -> &Node {
        &self.launched.node
    }

    fn podman_folder(&self) -> PathBuf {
        self.launched.path("alice/podman")
    }

    /// A new folder of alice's.
    pub(super) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.launched.path(name);
        fs::create_dir(&folder).unwrap();
        chown(&folder, Some(Launched::ALICE), Some(Launched::ALICE)).unwrap();
        folder
    }

    /// Runs podman as alice until it ends.
    #[track_caller]
    pub(super) fn podman(&self, arguments: &[&str]) -> Outcome {
        self.node().run(self.of_alice("podman").args(arguments))
    }

    /// A program of alice's, in an environment from which jobs take podman's.
    pub(super) fn of_alice(&self, program: &str) -> Command {
        let mut command = self.launched.program_of_alice(self.group, program);
        engine::configure(&mut command, &self.podman_folder());
        // podman's paths there are limited to 50 characters.
        command.env("XDG_RUNTIME_DIR", self.launched.path("xdg"));
        command
    }

    /// Runs `tranche` as alice until it ends.
    #[track_caller]
    pub(super) fn tranche(&self, arguments: &[&str]) -> Outcome {
        self.node().run(self.of_alice_tranche().args(arguments))
    }

    pub(super) fn of_alice_tranche(&self) -> Command {
        self.of_alice(&self.launched.path("lib/tranche").display().to_string())
    }

    #[track_caller]
    pub(super) fn submit(&self, words: &[&str]) -> Outcome {
        self.tranche(&[&["submit"], words].concat())
    }

    pub(super) fn log(&self, name: &str) -> String {
        self.node().tranche(&["logs", name]).stdout
    }

    pub(super) fn jobs(&self) -> Vec<Job> {
        let listed = self.node().tranche(&["list", "-A", "--json"]).success();
        serde_json::from_str(&listed).unwrap_or_else(|error| panic!("{error}: {listed}"))
    }

    /// The job once it has this state; fails if it ends in another one.
    #[track_caller]
    pub(super) fn until(&self, name: &str, state: &str) -> Job {
        eventually(&format!("{name} is {state}"), || {
            let job = self.jobs().into_iter().find(|job| job.name == name);
            match job {
                Some(job) if job.state == state => Ok(job),
                Some(job) if ["failed", "succeeded"].contains(&job.state.as_str()) => {
                    panic!("{job:?}: {}", self.log(name))
                }
                other => Err(format!("{other:?}: {}", self.log(name))),
            }
        })
    }

    /// Fails unless no record of podman's, no process and no slice is left of any job.
    #[track_caller]
    pub(super) fn assert_nothing_left(&self) {
        eventually("nothing is left of the containers", || {
            let known = self.podman(&["ps", "--all", "--format", "{{.Names}}"]).success();
            let slices = self.node().tranche(&["slice", "list", "-o", "name"]).success();
            let processes: Vec<String> = self.processes().into_iter().map(|process| process.line).collect();
            if known.trim().is_empty() && slices.trim().is_empty() && processes.is_empty() {
                return Ok(());
            }
            Err(format!("containers {known:?}, slices {slices:?}, processes {processes:?}"))
        });
    }

    /// Processes of jobs of this node: job runners, podman and conmon with their containers' programs.
    pub(super) fn processes(&self) -> Vec<JobProcess> {
        let dir = self.node().dir().display().to_string();
        let pids = fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter_map(|pid| JobProcess::read(pid, &dir)).collect()
    }
}

/// Part of a process in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Runner,
    Podman,
    Monitor,
    Program,
}

/// A process of a job, with its command line.
#[derive(Clone, Debug)]
pub(super) struct JobProcess {
    pub(super) pid: u32,
    pub(super) role: Role,
    pub(super) line: String,
}

impl JobProcess {
    fn read(pid: u32, dir: &str) -> Option<Self> {
        let text = |file: &str| {
            let content = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            String::from_utf8_lossy(&content).replace('\0', " ")
        };
        let (line, environment) = (text("cmdline"), text("environ"));
        let role = match line.split(' ').next()?.rsplit('/').next()? {
            "tranche-shepherd" if line.contains(dir) && line.contains("launch") => Role::Runner,
            "conmon" if line.contains(dir) => Role::Monitor,
            "podman" if environment.contains(dir) && line.contains("tranche-") => Role::Podman,
            _ if environment.contains(dir) && environment.contains("container=podman") => Role::Program,
            _ => return None,
        };
        Some(Self { pid, role, line })
    }
}
