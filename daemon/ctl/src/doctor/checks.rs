//! What the evidence means. Nothing here looks at the machine.

use std::path::PathBuf;

use tranche_domain::view::{GpuView, NodeView};

use super::library::Library;
use super::machine::{Access, Cgroups, Machine};
use super::{Check, Verdict};

/// All that was seen.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub(super) socket: PathBuf,
    /// What the daemon says, or why it says nothing.
    pub(super) node: Result<NodeView, String>,
    pub(super) shim: PathBuf,
    pub(super) library: Library,
    pub(super) machine: Machine,
}

/// The first pid namespace has this number in every kernel since 3.8.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Linux with pidfd_open(2), by which the daemon holds processes without mistaking one for another.
const OLDEST_KERNEL: (u32, u32) = (5, 3);

/// Linux with mount_setattr(2), by which control pages reach tenants read-only whatever they do.
const READ_ONLY_KERNEL: (u32, u32) = (5, 12);

/// Everything, in the order in which a person would look.
pub(super) fn all(evidence: &Evidence) -> Vec<Check> {
    let machine = &evidence.machine;
    let mut checks = vec![daemon(evidence)];
    checks.extend(evidence.node.as_ref().ok().map(versions));
    checks.push(library(evidence));
    checks.push(driver(evidence));
    checks.extend(device_files(machine));
    checks.extend(evidence.node.iter().flat_map(gpus));
    checks.push(mps(machine));
    checks.push(ld_so_preload(machine, evidence));
    checks.push(pid_namespace(machine));
    checks.push(ptrace(machine));
    checks.push(cgroups(machine));
    checks.push(kernel(machine));
    checks.push(enforcement(evidence));
    checks.extend(evidence.node.iter().flat_map(|node| &node.notes).map(|text| warning("note", text, None)));
    checks
}

fn check(name: &str, verdict: Verdict, found: impl Into<String>, remedy: Option<&str>) -> Check {
    Check { check: name.into(), verdict, found: found.into(), remedy: remedy.map(Into::into) }
}

fn ok(name: &str, found: impl Into<String>) -> Check {
    check(name, Verdict::Ok, found, None)
}

fn warning(name: &str, found: impl Into<String>, remedy: Option<&str>) -> Check {
    check(name, Verdict::Warning, found, remedy)
}

fn problem(name: &str, found: impl Into<String>, remedy: &str) -> Check {
    check(name, Verdict::Problem, found, Some(remedy))
}

fn daemon(evidence: &Evidence) -> Check {
    match &evidence.node {
        Ok(node) => {
            let whom = if node.privileged { "the whole node" } else { "one user" };
            let (version, pid) = (&node.daemon_version, node.daemon_pid);
            let socket = evidence.socket.display();
            ok("daemon", format!("tranched {version} (pid {pid}) answers at {socket} and serves {whom}"))
        }
        Err(failure) => {
            // Its first line says what failed, the rest what to do.
            let (found, remedy) =
                failure.split_once('\n').unwrap_or((failure, "look at `journalctl -u tranched`"));
            problem("daemon", found, remedy)
        }
    }
}

fn versions(node: &NodeView) -> Check {
    let own = env!("CARGO_PKG_VERSION");
    match node.daemon_version == own {
        true => ok("versions", format!("tranche and tranched are both {own}")),
        false => warning(
            "versions",
            format!("tranche is {own}, tranched is {}", node.daemon_version),
            Some("restart tranched after an update (`systemctl restart tranched`): running programs go on"),
        ),
    }
}

fn library(evidence: &Evidence) -> Check {
    let path = evidence.shim.display();
    let reinstall = "reinstall tranche; from a source tree, `make build` puts it there";
    match &evidence.library {
        Library::Unreadable(cause) => {
            problem("library", format!("{path} cannot be read: {cause}"), reinstall)
        }
        Library::Unloadable(why) => problem("library", format!("{path} cannot be loaded: {why}"), reinstall),
        Library::Loadable { needed } if needed.iter().all(|name| name == "libc.so.6") => {
            ok("library", format!("{path} can be loaded and needs {}", list_or(needed, "nothing")))
        }
        Library::Loadable { needed } => warning(
            "library",
            format!("{path} needs more than libc.so.6: {}", needed.join(", ")),
            Some("programs without those libraries would not start; install a released build"),
        ),
    }
}

fn list_or(items: &[String], nothing: &str) -> String {
    if items.is_empty() { nothing.into() } else { items.join(", ") }
}

fn driver(evidence: &Evidence) -> Check {
    let install = "install the NVIDIA driver and see that `nvidia-smi` works";
    match (&evidence.node, &evidence.machine.driver) {
        (Ok(node), _) if node.gpus.is_empty() => problem(
            "driver",
            "tranched finds no GPU through NVML",
            "see that `nvidia-smi` lists GPUs, then restart tranched",
        ),
        (Ok(node), _) if node.simulated => {
            ok("driver", format!("SIMULATED driver {}: no real GPU is used", node.driver_version))
        }
        (Ok(node), _) => {
            ok("driver", format!("NVIDIA driver {} ({} GPUs)", node.driver_version, node.gpus.len()))
        }
        (Err(_), Some(version)) => ok("driver", format!("loaded: {version}")),
        (Err(_), None) => {
            problem("driver", "no NVIDIA driver is loaded (/proc/driver/nvidia is not there)", install)
        }
    }
}

fn device_files(machine: &Machine) -> Option<Check> {
    let refused: Vec<_> = machine
        .device_files
        .iter()
        .filter(|(_, access)| *access == Access::Refused)
        .map(|(path, _)| path.display().to_string())
        .collect();
    match (machine.device_files.len(), refused.is_empty()) {
        (0, _) => None,
        (count, true) => Some(ok("device files", format!("all {count} can be opened by this user"))),
        (_, false) => Some(problem(
            "device files",
            format!("this user may not open {}", refused.join(", ")),
            "programs of this user cannot use GPUs: give it the devices' group, often `video`",
        )),
    }
}

fn gpus(node: &NodeView) -> Vec<Check> {
    let none_is_sliceable = node.gpus.iter().all(|gpu| gpu.not_sliceable.is_some());
    let verdict = if none_is_sliceable { Verdict::Problem } else { Verdict::Warning };
    node.gpus.iter().map(|gpu| one_gpu(gpu, verdict)).collect()
}

fn one_gpu(gpu: &GpuView, if_not: Verdict) -> Check {
    let name = format!("GPU {}", gpu.index);
    match &gpu.not_sliceable {
        None => {
            let free = gpu.capacity.saturating_sub(gpu.committed);
            ok(&name, format!("{}: {} for slices, {} of it free", gpu.name, gpu.capacity, free))
        }
        Some(reason) => check(
            &name,
            if_not,
            format!("{}: no slices can be put here: {reason}", gpu.name),
            Some(cure(reason)),
        ),
    }
}

/// What to do about a GPU that takes no slices, by the words in which the daemon names the set-ups.
fn cure(reason: &str) -> &'static str {
    let reason = reason.to_ascii_lowercase();
    let says = |word: &str| reason.contains(word);
    if says("vgpu") {
        "a vGPU is cut by its hypervisor; use slices on the host, or pass the whole GPU through"
    } else if says("mig") {
        "to have slices here instead of MIG instances: `sudo nvidia-smi -i GPU -mig 0`, then restart tranched"
    } else if says("exclusive") || says("prohibited") || says("compute mode") {
        "to let programs share it: `sudo nvidia-smi -i GPU -c DEFAULT`, then restart tranched"
    } else if says("mps") {
        "to have slices here, stop MPS: `echo quit | nvidia-cuda-mps-control`, then restart tranched"
    } else {
        "put that right, then restart tranched; the other GPUs can be used"
    }
}

fn mps(machine: &Machine) -> Check {
    if machine.mps.is_empty() {
        return ok("MPS", "no MPS control daemon is running");
    }
    warning(
        "MPS",
        format!("an MPS control daemon is there: {}", machine.mps.join(", ")),
        Some(
            "programs under MPS have a lower tier: they share one context, so a fault of one ends all, and the \
             driver does not say which of them holds memory; stop it (`echo quit | nvidia-cuda-mps-control`) unless \
             you need it",
        ),
    )
}

fn ld_so_preload(machine: &Machine, evidence: &Evidence) -> Check {
    let file = "/etc/ld.so.preload";
    let (ours, others): (Vec<_>, Vec<_>) =
        machine.ld_so_preload.iter().cloned().partition(|path| path.ends_with("libtranche_preload.so"));
    match (ours.first(), others.as_slice()) {
        (None, []) => ok("ld.so.preload", format!("{file} is empty or absent")),
        (Some(own), _) if *own != evidence.shim.display().to_string() => warning(
            "ld.so.preload",
            format!("{file} loads {own}, which is not the one installed here ({})", evidence.shim.display()),
            Some("take that line out, or correct its path: two of them in one program are one too many"),
        ),
        (_, []) => ok("ld.so.preload", format!("{file} loads tranche's library into every program")),
        (_, others) => warning(
            "ld.so.preload",
            format!("{file} loads {} into every program", others.join(", ")),
            Some(
                "another library that replaces CUDA or dlsym would stand in the way; if it does, programs in a slice \
                 see no GPU",
            ),
        ),
    }
}

fn pid_namespace(machine: &Machine) -> Check {
    match machine.pid_namespace.as_deref() {
        Some(FIRST_PID_NAMESPACE) => ok("pid namespace", "this is the host's own"),
        Some(other) => warning(
            "pid namespace",
            format!("this is a container's ({other}), and NVML names processes as the host numbers them"),
            Some(
                "if tranched runs here too, it cannot tell whose memory it sees: start it with the host's pids (`--pid=host`)",
            ),
        ),
        None => {
            warning("pid namespace", "it cannot be read: /proc is not mounted or hidden", Some("mount /proc"))
        }
    }
}

fn ptrace(machine: &Machine) -> Check {
    match machine.ptrace_scope {
        Some(0) | None => warning(
            "ptrace",
            "programs of one user may trace each other, so one can leave its slice through another",
            Some(
                "`sudo sysctl kernel.yama.ptrace_scope=1` ends that; programs of different users are apart anyway",
            ),
        ),
        Some(scope) => ok("ptrace", format!("restricted (kernel.yama.ptrace_scope = {scope})")),
    }
}

fn cgroups(machine: &Machine) -> Check {
    match machine.cgroups {
        Cgroups::Unified => ok("cgroups", "version 2"),
        Cgroups::Legacy => warning("cgroups", "version 1", Some(ONLY_ANCESTRY)),
        Cgroups::Absent => warning("cgroups", "none are mounted", Some(ONLY_ANCESTRY)),
    }
}

const ONLY_ANCESTRY: &str = "processes are told apart by their ancestry, which works; version 2 would let a slice keep its daemons too";

fn kernel(machine: &Machine) -> Check {
    let release = &machine.kernel;
    match version(release) {
        Some(version) if version >= READ_ONLY_KERNEL => {
            ok("kernel", format!("{release}: has pidfd_open, memfd_create and mount_setattr"))
        }
        Some(version) if version >= OLDEST_KERNEL => warning(
            "kernel",
            format!("{release}: has pidfd_open and memfd_create, but not mount_setattr (5.12)"),
            Some("control pages are then protected by their file mode alone"),
        ),
        Some(_) => problem(
            "kernel",
            format!("{release}: older than 5.3, without pidfd_open"),
            "use Linux 5.3 or newer",
        ),
        None => warning("kernel", format!("release {release:?} cannot be read"), None),
    }
}

/// `6.8.0-41-generic` is (6, 8).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Which tier slices have, or would have, and why.
fn enforcement(evidence: &Evidence) -> Check {
    let Ok(node) = &evidence.node else {
        return warning("enforcement", "not known while tranched does not answer", None);
    };
    let mut tiers: Vec<_> =
        node.slices.iter().map(|slice| format!("tier {}: {}", slice.tier, slice.tier_reason)).collect();
    tiers.sort();
    tiers.dedup();
    if tiers.is_empty() {
        tiers.push(expected_tier(node.privileged, &evidence.machine));
    }
    tiers.push(format!("compute: {}", node.compute_enforcement));
    ok("enforcement", tiers.join("\n"))
}

fn expected_tier(privileged: bool, machine: &Machine) -> String {
    let pages = match (privileged, version(&machine.kernel)) {
        (true, Some(version)) if version >= READ_ONLY_KERNEL => {
            "limits are in pages that no tenant can write"
        }
        (true, _) => {
            "limits are in pages that tenants get read-only, protected by file modes as this kernel is old"
        }
        (false, _) => {
            "limits are in pages that tenants get read-only, but as the daemon's own user they could open them \
             again: a daemon run by root prevents that"
        }
    };
    format!("tier preload is possible: memory is kept by a library preloaded into each program; {pages}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sample;

    fn evidence() -> Evidence {
        let machine = Machine {
            pid_namespace: Some(FIRST_PID_NAMESPACE.into()),
            ptrace_scope: Some(1),
            cgroups: Cgroups::Unified,
            kernel: "6.8.0-41-generic".into(),
            ..Machine::default()
        };
        let mut node = sample::node();
        node.notes.clear();
        node.gpus.retain(|gpu| gpu.not_sliceable.is_none());
        Evidence {
            socket: "/run/t.sock".into(),
            node: Ok(node),
            shim: "/usr/lib/tranche/libtranche_preload.so".into(),
            library: Library::Loadable { needed: vec!["libc.so.6".into()] },
            machine,
        }
    }

    fn found<'a>(checks: &'a [Check], name: &str) -> &'a Check {
        checks.iter().find(|check| check.check == name).unwrap_or_else(|| panic!("{name} was not checked"))
    }

    fn with_machine(change: impl FnOnce(&mut Machine)) -> Vec<Check> {
        let mut evidence = evidence();
        change(&mut evidence.machine);
        all(&evidence)
    }

    fn with_node(change: impl FnOnce(&mut NodeView)) -> Vec<Check> {
        let mut evidence = evidence();
        change(evidence.node.as_mut().unwrap());
        all(&evidence)
    }

    #[test]
    fn a_healthy_node_has_nothing_to_put_right() {
        let checks = all(&evidence());
        let bad: Vec<_> = checks.iter().filter(|check| check.verdict != Verdict::Ok).collect();
        assert!(bad.is_empty(), "{bad:#?}");
        assert!(found(&checks, "driver").found.contains("SIMULATED"));
        assert!(found(&checks, "enforcement").found.contains("compute: not enforced"));
    }

    #[test]
    fn whatever_is_wrong_has_a_remedy() {
        let mut evidence = evidence();
        evidence.node = Err("cannot connect to tranched\nstart it".into());
        evidence.library = Library::Unreadable("no such file".into());
        evidence.machine = Machine { mps: vec!["process 31".into()], ..Machine::default() };
        for check in all(&evidence).iter().filter(|check| check.verdict == Verdict::Problem) {
            assert!(check.remedy.is_some(), "{check:?}");
        }
    }

    #[test]
    fn a_daemon_that_is_down_is_a_problem_and_the_driver_is_looked_for_here() {
        let mut evidence = evidence();
        evidence.node = Err("cannot connect to tranched at /run/t.sock: refused\nstart it".into());
        let checks = all(&evidence);
        assert_eq!(found(&checks, "daemon").verdict, Verdict::Problem);
        assert_eq!(found(&checks, "daemon").remedy.as_deref(), Some("start it"));
        assert_eq!(found(&checks, "driver").verdict, Verdict::Problem);
        evidence.machine.driver = Some("NVRM version: 550".into());
        assert_eq!(found(&all(&evidence), "driver").verdict, Verdict::Ok);
    }

    #[test]
    fn another_version_of_the_daemon_is_named() {
        let checks = with_node(|node| node.daemon_version = "9.9.9".into());
        assert_eq!(found(&checks, "versions").verdict, Verdict::Warning);
        assert!(found(&checks, "versions").found.contains("9.9.9"));
    }

    #[test]
    fn unsliceable_gpus_are_named_with_their_cure() {
        let reason = |node: &mut NodeView, index: usize, reason: &str| {
            node.gpus[index].not_sliceable = Some(reason.into());
        };
        let checks = with_node(|node| {
            reason(node, 0, "MIG is enabled");
            reason(node, 1, "its compute mode is exclusive-process");
        });
        assert_eq!(found(&checks, "GPU 0").verdict, Verdict::Warning);
        assert!(found(&checks, "GPU 0").remedy.as_deref().unwrap().contains("-mig 0"));
        assert!(found(&checks, "GPU 1").remedy.as_deref().unwrap().contains("-c DEFAULT"));
        assert_eq!(found(&checks, "GPU 2").verdict, Verdict::Ok);
        assert!(cure("this is a vGPU").contains("hypervisor"));
    }

    #[test]
    fn a_node_without_any_sliceable_gpu_is_a_problem() {
        let checks = with_node(|node| {
            node.gpus.truncate(1);
            node.gpus[0].not_sliceable = Some("MIG is enabled".into());
        });
        assert_eq!(found(&checks, "GPU 0").verdict, Verdict::Problem);
        let checks = with_node(|node| node.gpus.clear());
        assert_eq!(found(&checks, "driver").verdict, Verdict::Problem);
    }

    #[test]
    fn mps_is_named_and_tiered() {
        let checks = with_machine(|machine| machine.mps = vec!["process 31".into()]);
        assert!(found(&checks, "MPS").found.contains("process 31"));
        assert!(found(&checks, "MPS").remedy.as_deref().unwrap().contains("lower tier"));
    }

    #[test]
    fn strangers_in_ld_so_preload_are_named() {
        let preload = |path: &str| {
            let checks = with_machine(|machine| machine.ld_so_preload = vec![path.into()]);
            found(&checks, "ld.so.preload").verdict
        };
        assert_eq!(preload("/usr/lib/libvgpu.so"), Verdict::Warning);
        assert_eq!(preload("/old/libtranche_preload.so"), Verdict::Warning);
        assert_eq!(preload("/usr/lib/tranche/libtranche_preload.so"), Verdict::Ok);
    }

    #[test]
    fn old_kernels_and_containers_are_told() {
        let verdict = |name: &str, change: fn(&mut Machine)| found(&with_machine(change), name).verdict;
        assert_eq!(verdict("kernel", |machine| machine.kernel = "4.18.0".into()), Verdict::Problem);
        assert_eq!(verdict("kernel", |machine| machine.kernel = "5.4.0".into()), Verdict::Warning);
        assert_eq!(
            verdict("pid namespace", |machine| machine.pid_namespace = Some("pid:[1]".into())),
            Verdict::Warning
        );
        assert_eq!(verdict("ptrace", |machine| machine.ptrace_scope = Some(0)), Verdict::Warning);
        assert_eq!(verdict("cgroups", |machine| machine.cgroups = Cgroups::Legacy), Verdict::Warning);
    }

    #[test]
    fn devices_that_cannot_be_opened_are_a_problem() {
        let file = Path::new("/dev/nvidia0").to_owned();
        let checks = with_machine(|machine| machine.device_files = vec![(file, Access::Refused)]);
        assert!(found(&checks, "device files").found.contains("/dev/nvidia0"));
        assert_eq!(found(&checks, "device files").verdict, Verdict::Problem);
    }
}
