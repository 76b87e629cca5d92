//! State of a host as far as the setup concerns it. Nothing here judges.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::{Group, Uid, User, getuid};

use super::super::evidence::Evidence;

/// Group whose members may create slices, unless the daemon's configuration names another.
pub(super) const GROUP: &str = "tranche";
/// Folders in which systemd looks for units, the administrator's first.
const UNIT_FOLDERS: [&str; 4] =
    ["etc/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"];

/// Observations that the steps interpret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostState {
    /// File of the daemon's unit, once it is installed.
    pub(super) unit: Option<PathBuf>,
    /// The host's package manager, if it is one for which there is a package.
    pub(super) packages: Option<Packages>,
    /// Group whose members may create slices, and whether it exists.
    pub(super) group: (String, bool),
    /// System users of the daemon that do not exist.
    pub(super) missing_users: Vec<&'static str>,
    /// Folders of the daemon that do not exist.
    pub(super) missing_folders: Vec<PathBuf>,
    /// Units that do not start with the host, and are not masked.
    pub(super) disabled_units: Vec<&'static str>,
    /// The reason for which the daemon does not answer.
    pub(super) unreachable: Option<String>,
    /// True for a daemon that was started by a user for itself.
    pub(super) is_users_own: bool,
    /// Version of the NVIDIA driver, or a word for a simulated one.
    pub(super) driver: Option<String>,
    /// User behind this process or behind `sudo`, unless it is root, and its membership of the group.
    pub(super) user: Option<(String, bool)>,
    /// Installed container runtimes of which some releases read CDI documents only on request.
    pub(super) runtimes: Vec<Runtime>,
}

/// Family of package formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packages {
    Debian,
    Rpm,
}

/// A container runtime that is installed, and whether its configuration turns CDI on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Runtime {
    pub(super) kind: RuntimeKind,
    pub(super) reads_documents: bool,
}

/// Kind of a container runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuntimeKind {
    Docker,
    Containerd,
}

/// Units that a node needs to start with the host.
pub(super) const UNITS: [&str; 4] =
    ["tranched.socket", "tranched.service", "tranche-attest.socket", "tranche-job.socket"];

impl HostState {
    /// Observes the host with its root file system at `root`.
    pub(super) fn observe(root: &Path, evidence: &Evidence) -> Self {
        let node = evidence.node.as_ref();
        let group = group_name(root, evidence);
        let is_there = |name: &&str| !matches!(User::from_name(name), Ok(Some(_)));
        Self {
            unit: unit(root, "tranched.service"),
            packages: packages(root),
            missing_users: ["tranched", "tranche-jobs"].into_iter().filter(is_there).collect(),
            missing_folders: ["run/tranche", "run/cdi", "var/lib/tranche", "var/lib/tranche-jobs"]
                .into_iter()
                .map(|folder| root.join(folder))
                .filter(|folder| !folder.is_dir())
                .collect(),
            disabled_units: UNITS.into_iter().filter(|unit| !is_enabled(root, unit)).collect(),
            unreachable: node.err().map(|failure| failure.lines().next().unwrap_or_default().into()),
            is_users_own: node.is_ok_and(|node| !node.privileged),
            driver: match node {
                Ok(node) if node.simulated => Some(format!("SIMULATED driver {}", node.driver_version)),
                Ok(node) => Some(format!("NVIDIA driver {}", node.driver_version)),
                Err(_) => evidence.machine.driver.clone(),
            },
            user: asking_user().map(|user| {
                let is_member = is_member(&user, &group.0);
                (user.name, is_member)
            }),
            group,
            runtimes: runtimes(root),
        }
    }
}

/// The daemon's group, or the one that its configuration names, and whether it exists.
fn group_name(root: &Path, evidence: &Evidence) -> (String, bool) {
    let settings = evidence.daemon.iter().flat_map(|daemon| &daemon.settings);
    let mut used = settings
        .filter(|setting| setting.key == "socket_group")
        .map(|setting| setting.value.trim_matches('"').into());
    let name = used.next().or_else(|| configured_group(root)).filter(|name: &String| !name.is_empty());
    let name = name.unwrap_or_else(|| GROUP.into());
    let is_there = matches!(Group::from_name(&name), Ok(Some(_)));
    (name, is_there)
}

fn configured_group(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join("etc/tranche/tranched.toml")).ok()?;
    text.parse::<toml::Table>().ok()?.get("socket_group")?.as_str().map(Into::into)
}

/// The user behind `sudo`, or else this process's; `None` for root.
fn asking_user() -> Option<User> {
    let behind_sudo = env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok()).map(Uid::from_raw);
    let uid = if getuid().is_root() { behind_sudo? } else { getuid() };
    User::from_uid(uid).ok().flatten().filter(|user| !user.uid.is_root())
}

fn is_member(user: &User, group: &str) -> bool {
    let group = Group::from_name(group).ok().flatten();
    group.is_some_and(|group| group.gid == user.gid || group.mem.contains(&user.name))
}

fn unit(root: &Path, name: &str) -> Option<PathBuf> {
    UNIT_FOLDERS.iter().map(|folder| root.join(folder).join(name)).find(|path| path.exists())
}

/// Tests if the unit starts with the host, or is masked, which the administrator has decided then.
fn is_enabled(root: &Path, unit: &str) -> bool {
    let folder = root.join("etc/systemd/system");
    let masked = fs::read_link(folder.join(unit)).is_ok_and(|target| target == Path::new("/dev/null"));
    let wants = fs::read_dir(&folder).into_iter().flatten().flatten();
    let wants = wants.filter(|entry| entry.file_name().to_string_lossy().ends_with(".wants"));
    masked || wants.map(|entry| entry.path().join(unit)).any(|link| link.symlink_metadata().is_ok())
}

fn packages(root: &Path) -> Option<Packages> {
    let has =
        |program: &str| ["usr/bin", "bin"].iter().any(|folder| root.join(folder).join(program).exists());
    // A Debian may have `rpm` besides; a distribution with RPM hardly has `apt-get`.
    match (has("apt-get"), has("dnf") || has("zypper")) {
        (true, _) => Some(Packages::Debian),
        (false, true) => Some(Packages::Rpm),
        (false, false) => None,
    }
}

fn runtimes(root: &Path) -> Vec<Runtime> {
    let has = |program: &str| {
        ["usr/bin", "usr/local/bin", "usr/sbin"].iter().any(|folder| root.join(folder).join(program).exists())
    };
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let docker = || {
        let settings: serde_json::Value =
            serde_json::from_str(&text("etc/docker/daemon.json")).unwrap_or_default();
        settings["features"]["cdi"].as_bool() == Some(true)
    };
    let containerd = || {
        let settings: toml::Table = text("etc/containerd/config.toml").parse().unwrap_or_default();
        let plugins = settings.get("plugins").and_then(toml::Value::as_table);
        let is_on =
            |plugin: &toml::Value| plugin.get("enable_cdi").and_then(toml::Value::as_bool) == Some(true);
        plugins.is_some_and(|plugins| plugins.values().any(is_on))
    };
    let mut found = Vec::new();
    if has("dockerd") {
        found.push(Runtime { kind: RuntimeKind::Docker, reads_documents: docker() });
    }
    if has("containerd") {
        found.push(Runtime { kind: RuntimeKind::Containerd, reads_documents: containerd() });
    }
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::doctor::machine::tests::tree;

    #[test]
    fn unit_is_enabled_by_a_link_or_decided_by_a_mask() {
        let root = tree(&[
            ("usr/lib/systemd/system/tranched.service", ""),
            ("etc/systemd/system/multi-user.target.wants/other.service", ""),
        ]);
        let enabled = |unit| is_enabled(root.path(), unit);
        assert!(!enabled("tranched.service") && !enabled("tranched.socket"));
        let folder = root.path().join("etc/systemd/system");
        // Links of a root elsewhere lead nowhere here.
        symlink("/nowhere/tranched.service", folder.join("multi-user.target.wants/tranched.service"))
            .unwrap();
        symlink("/dev/null", folder.join("tranched.socket")).unwrap();
        assert!(enabled("tranched.service") && enabled("tranched.socket"));
        assert!(unit(root.path(), "tranched.service").is_some_and(|path| path.starts_with(root.path())));
    }

    #[test]
    fn runtimes_read_documents_where_they_are_told_to() {
        let root = tree(&[
            ("usr/bin/dockerd", ""),
            ("usr/bin/containerd", ""),
            ("etc/docker/daemon.json", r#"{"features": {"cdi": true}}"#),
            (
                "etc/containerd/config.toml",
                "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_cdi = false\n",
            ),
        ]);
        let reads =
            |root: &Path| runtimes(root).iter().map(|runtime| runtime.reads_documents).collect::<Vec<_>>();
        assert_eq!(reads(root.path()), [true, false]);
        fs::write(
            root.path().join("etc/containerd/config.toml"),
            "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\nenable_cdi = true\n",
        )
        .unwrap();
        fs::write(root.path().join("etc/docker/daemon.json"), "{").unwrap();
        assert_eq!(reads(root.path()), [false, true]);
        assert!(runtimes(tree(&[]).path()).is_empty());
    }

    #[test]
    fn group_is_the_configured_one() {
        let root = tree(&[("etc/tranche/tranched.toml", "socket_group = \"gpus\"\n")]);
        assert_eq!(configured_group(root.path()).as_deref(), Some("gpus"));
        assert_eq!(configured_group(tree(&[]).path()), None);
    }

    #[test]
    fn package_manager_is_the_distributions() {
        assert_eq!(
            packages(tree(&[("usr/bin/apt-get", ""), ("usr/bin/rpm", "")]).path()),
            Some(Packages::Debian)
        );
        assert_eq!(packages(tree(&[("usr/bin/dnf", "")]).path()), Some(Packages::Rpm));
        assert_eq!(packages(tree(&[]).path()), None);
    }
}
