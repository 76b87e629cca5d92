//! Steps of the setup: interpretation of the host's state. Nothing here reads the host.

use serde::Serialize;

use super::host::{GROUP, HostState, Packages, RuntimeKind, UNITS};

/// Name of the step that no command takes: without the package the others have nothing to work on.
pub(super) const PACKAGE: &str = "package";

/// Progress of one step, and the way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum StepState {
    /// Nothing is left to do.
    Done,
    /// The commands take it.
    Missing,
    /// The administrator has to take it.
    Manual,
    /// A matter of what the host is used for.
    Optional,
}

/// Observation about one need of the host, and the way to meet it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct SetupStep {
    /// Name of the step.
    pub(super) step: &'static str,
    /// Progress at the time of the observation.
    pub(super) state: StepState,
    /// Observation in words, for the administrator.
    pub(super) found: String,
    /// Advice for the administrator; empty if there is nothing to do by hand.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) remedy: String,
    /// Commands that take the step, to be run by root.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) commands: Vec<Vec<String>>,
}

impl SetupStep {
    fn done(step: &'static str, found: impl Into<String>) -> Self {
        Self {
            step,
            state: StepState::Done,
            found: found.into(),
            remedy: String::new(),
            commands: Vec::new(),
        }
    }

    fn missing(step: &'static str, found: impl Into<String>, commands: &[&str]) -> Self {
        let commands = commands.iter().map(|line| line.split(' ').map(Into::into).collect()).collect();
        Self { state: StepState::Missing, commands, ..Self::done(step, found) }
    }

    fn by_hand(step: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: StepState::Manual, remedy: remedy.into(), ..Self::done(step, found) }
    }

    fn optional(step: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: StepState::Optional, ..Self::by_hand(step, found, remedy) }
    }

    /// True for a step that has to be taken and was not.
    pub(super) fn is_left(&self) -> bool {
        matches!(self.state, StepState::Missing | StepState::Manual)
    }
}

/// All steps in their order: each relies on those before it.
pub(super) fn all(host: &HostState) -> Vec<SetupStep> {
    let mut steps =
        vec![driver(host), package(host), accounts(host), folders(host), services(host), user(host)];
    steps.extend(runtimes(host));
    steps
}

fn driver(host: &HostState) -> SetupStep {
    match &host.driver {
        Some(version) => SetupStep::done("driver", version.clone()),
        None => SetupStep::by_hand(
            "driver",
            "no NVIDIA driver is loaded (/proc/driver/nvidia is not there)",
            "install the driver of your distribution or NVIDIA's, and see that `nvidia-smi` lists the GPUs",
        ),
    }
}

fn package(host: &HostState) -> SetupStep {
    match (&host.unit, host.packages) {
        (Some(unit), _) => SetupStep::done(PACKAGE, format!("the daemon's unit is {}", unit.display())),
        (None, packages) => {
            let line = match packages {
                Some(Packages::Debian) => "`apt install ./tranche_*.deb`",
                Some(Packages::Rpm) => "`dnf install ./tranche-*.rpm`",
                None => "`make install` in a source tree",
            };
            let remedy = format!("install the package of a release: {line}; archive and wheel have no units");
            SetupStep::by_hand(PACKAGE, "systemd has no unit tranched.service", remedy)
        }
    }
}

fn accounts(host: &HostState) -> SetupStep {
    let (group, is_there) = &host.group;
    let mut missing: Vec<String> = host.missing_users.iter().map(|user| format!("user {user}")).collect();
    missing.extend((!is_there).then(|| format!("group {group}")));
    // The package's file has the group of the default configuration.
    let is_packaged = group == GROUP;
    let sysusers = !host.missing_users.is_empty() || is_packaged && !is_there;
    let groupadd = format!("groupadd --system {group}");
    let mut commands = Vec::new();
    commands.extend(sysusers.then_some("systemd-sysusers tranche.conf"));
    commands.extend((!is_packaged && !is_there).then_some(&*groupadd));
    match missing.is_empty() {
        true => SetupStep::done("accounts", format!("group {group} and the daemon's users are there")),
        false => SetupStep::missing("accounts", format!("missing: {}", missing.join(", ")), &commands),
    }
}

fn folders(host: &HostState) -> SetupStep {
    let missing: Vec<_> = host.missing_folders.iter().map(|path| path.display().to_string()).collect();
    match missing.is_empty() {
        true => SetupStep::done("folders", "the daemon's folders and the one for CDI documents are there"),
        false => SetupStep::missing(
            "folders",
            format!("missing: {}", missing.join(", ")),
            &["systemd-tmpfiles --create tranche.conf"],
        ),
    }
}

fn services(host: &HostState) -> SetupStep {
    let enable = format!("systemctl enable --now {}", UNITS.join(" "));
    let commands = ["systemctl daemon-reload", &enable];
    match (&host.unreachable, host.disabled_units.is_empty()) {
        (None, true) => SetupStep::done("services", "the daemon answers, and starts with the host"),
        (None, false) if host.is_users_own => SetupStep::missing(
            "services",
            "only a daemon of this user answers, which has no rights over others",
            &commands,
        ),
        (None, false) => {
            let units = host.disabled_units.join(", ");
            SetupStep::missing(
                "services",
                format!("the daemon answers, but these do not start with the host: {units}"),
                &commands,
            )
        }
        (Some(reason), _) => SetupStep::missing("services", reason.clone(), &commands),
    }
}

fn user(host: &HostState) -> SetupStep {
    let group = &host.group.0;
    match &host.user {
        Some((name, true)) => {
            SetupStep::done("user", format!("{name} is a member of group {group} and may create slices"))
        }
        Some((name, false)) => SetupStep::missing(
            "user",
            format!(
                "{name} is no member of group {group} and may only look (a new login notices the change)"
            ),
            &[&format!("usermod -aG {group} {name}")],
        ),
        None => SetupStep::optional(
            "user",
            format!("members of group {group} may create slices"),
            format!("for each user who is to have slices: `usermod -aG {group} NAME`, and a new login"),
        ),
    }
}

fn runtimes(host: &HostState) -> impl Iterator<Item = SetupStep> {
    host.runtimes.iter().map(|runtime| {
        let (step, name, remedy) = match runtime.kind {
            RuntimeKind::Docker => (
                "docker",
                "Docker",
                "for slices in its containers: `\"features\": {\"cdi\": true}` in /etc/docker/daemon.json, which earlier \
                 releases need, and `systemctl restart docker`",
            ),
            RuntimeKind::Containerd => (
                "containerd",
                "containerd",
                "for slices in pods: `enable_cdi = true` in the CRI plugin's section of /etc/containerd/config.toml, \
                 which releases before 2.0 need, and `systemctl restart containerd`",
            ),
        };
        match runtime.reads_documents {
            true => SetupStep::done(step, format!("{name} is told to read CDI documents")),
            false => SetupStep::optional(step, format!("{name} is not told to read CDI documents"), remedy),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::host::Runtime;
    use super::*;

    fn ready() -> HostState {
        HostState {
            unit: Some("/usr/lib/systemd/system/tranched.service".into()),
            packages: Some(Packages::Debian),
            group: ("tranche".into(), true),
            missing_users: Vec::new(),
            missing_folders: Vec::new(),
            disabled_units: Vec::new(),
            unreachable: None,
            is_users_own: false,
            driver: Some("NVIDIA driver 580.65.06".into()),
            user: Some(("alice".into(), true)),
            runtimes: Vec::new(),
        }
    }

    fn left(host: &HostState) -> Vec<SetupStep> {
        all(host).into_iter().filter(SetupStep::is_left).collect()
    }

    fn commands(host: &HostState) -> Vec<String> {
        left(host).iter().flat_map(|step| &step.commands).map(|words| words.join(" ")).collect()
    }

    #[test]
    fn ready_host_has_nothing_left() {
        assert_eq!(left(&ready()), []);
        let root = HostState { user: None, ..ready() };
        assert_eq!(left(&root), [], "root needs no group");
    }

    #[test]
    fn each_lack_has_its_command() {
        let host = HostState {
            group: ("gpus".into(), false),
            missing_users: vec!["tranched"],
            missing_folders: vec!["/run/cdi".into()],
            disabled_units: UNITS.into(),
            unreachable: Some("cannot connect".into()),
            user: Some(("alice".into(), false)),
            ..ready()
        };
        assert_eq!(
            commands(&host),
            [
                "systemd-sysusers tranche.conf",
                "groupadd --system gpus",
                "systemd-tmpfiles --create tranche.conf",
                "systemctl daemon-reload",
                "systemctl enable --now tranched.socket tranched.service tranche-attest.socket tranche-job.socket",
                "usermod -aG gpus alice",
            ]
        );
    }

    #[test]
    fn host_without_package_or_driver_is_told_how_they_come() {
        let bare = HostState { unit: None, driver: None, ..ready() };
        let steps = left(&bare);
        assert_eq!(steps.iter().map(|step| step.step).collect::<Vec<_>>(), ["driver", PACKAGE]);
        assert!(steps.iter().all(|step| step.state == StepState::Manual && step.commands.is_empty()));
        assert!(steps[1].remedy.contains("apt install"), "{steps:?}");
        for (packages, words) in [(Some(Packages::Rpm), "dnf install"), (None, "make install")] {
            let steps = left(&HostState { packages, ..bare.clone() });
            assert!(steps[1].remedy.contains(words), "{steps:?}");
        }
    }

    #[test]
    fn container_runtimes_are_a_matter_of_use() {
        let runtime = |kind, reads_documents| Runtime { kind, reads_documents };
        let runtimes = vec![runtime(RuntimeKind::Docker, false), runtime(RuntimeKind::Containerd, true)];
        let host = HostState { runtimes, ..ready() };
        assert_eq!(left(&host), []);
        let states: Vec<_> = all(&host).iter().rev().take(2).map(|step| step.state).collect();
        assert_eq!(states, [StepState::Done, StepState::Optional]);
    }
}
