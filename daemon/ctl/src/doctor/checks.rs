//! Checks: interpretation of the evidence. Nothing here reads the machine.

use std::time::{Duration, UNIX_EPOCH};

use tranche_domain::daemon::DaemonView;
use tranche_domain::view::{GpuView, NodeView};

use super::check::{Check, Verdict, check, ok, problem, warning};
use super::evidence::Evidence;
use super::library::Library;
use super::machine::{Access, Machine};

mod findings;
mod host;
mod privileges;
mod symbols;
#[cfg(test)]
mod tests;

/// All checks, in the order of display.
pub(super) fn all(evidence: &Evidence) -> Vec<Check> {
    let machine = &evidence.machine;
    let mut checks = vec![daemon(evidence)];
    checks.extend(evidence.node.as_ref().ok().map(versions));
    checks.extend(evidence.node.iter().zip(&evidence.daemon).map(|(node, own)| privileges::check(node, own)));
    checks.extend(evidence.daemon.as_ref().and_then(device_access));
    checks.push(library(evidence));
    checks.push(driver(evidence));
    checks.extend(evidence.driver.iter().map(symbols::check));
    checks.extend(device_files(machine));
    checks.extend(evidence.node.iter().flat_map(gpus));
    checks.extend(evidence.node.as_ref().ok().and_then(reserves));
    checks.push(host::mps(machine));
    checks.push(host::ld_so_preload(machine, evidence));
    checks.push(host::pid_namespace(machine));
    checks.push(host::ptrace(machine));
    checks.push(host::cgroups(machine));
    checks.push(host::kernel(machine));
    checks.push(enforcement(evidence));
    checks.extend(evidence.node.iter().flat_map(|node| &node.notes).map(|note| findings::check(note)));
    checks
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
            // The first line of the message is the failure, the rest the remedy.
            let (found, remedy) =
                failure.split_once('\n').unwrap_or((failure, "look at `journalctl -u tranched`"));
            problem("daemon", found, remedy)
        }
    }
}

/// Context reserve of each GPU, and its source.
fn reserves(node: &NodeView) -> Option<Check> {
    let origin = |gpu: &GpuView| match gpu.context_measured_unix_ms {
        Some(0) => "measured by an earlier release".to_string(),
        Some(unix_ms) => {
            let time = UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms)).unwrap_or(UNIX_EPOCH);
            format!("measured {}", humantime::format_rfc3339_seconds(time))
        }
        None => "assumed, by `context_reserve_mib` of the configuration".to_string(),
    };
    let line = |gpu: &GpuView| format!("GPU {}: {}, {}", gpu.index, gpu.context_reserve, origin(gpu));
    let lines: Vec<String> = node.gpus.iter().map(line).collect();
    (!lines.is_empty()).then(|| ok("context reserve", lines.join("\n")))
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

/// Restriction of device access, as configured.
fn device_access(daemon: &DaemonView) -> Option<Check> {
    let setting = daemon.settings.iter().find(|setting| setting.key == "only_slices")?;
    let found = match setting.value.as_str() {
        "false" => {
            "every process may open the GPUs, as far as the files' modes let it (`only_slices` is false)"
                .into()
        }
        besides => {
            format!("only processes of slices, of tranched and of {besides} open the GPUs (`only_slices`)")
        }
    };
    Some(ok("device access", found))
}

fn gpus(node: &NodeView) -> Vec<Check> {
    let none_is_sliceable = node.gpus.iter().all(|gpu| gpu.obstacle().is_some());
    let verdict = if none_is_sliceable { Verdict::Problem } else { Verdict::Warning };
    node.gpus.iter().map(|gpu| one_gpu(gpu, verdict)).collect()
}

fn one_gpu(gpu: &GpuView, if_not: Verdict) -> Check {
    let name = format!("GPU {}", gpu.index);
    match (gpu.obstacle(), &gpu.cordon) {
        (None, Some(cordon)) => {
            let remedy = format!("when it is to take slices again: `tranche gpu uncordon {}`", gpu.index);
            warning(&name, format!("{}: it takes no further slices: {cordon}", gpu.name), Some(&remedy))
        }
        (None, None) => {
            let free = gpu.capacity.saturating_sub(gpu.committed);
            ok(&name, format!("{}: {} for slices, {} of it free", gpu.name, gpu.capacity, free))
        }
        (Some(reason), _) => {
            let remedy = cure(reason).replace("-i GPU", &format!("-i {}", gpu.index));
            let found = format!("{}: no slices can be put here: {reason}", gpu.name);
            check(&name, if_not, found, Some(&remedy))
        }
    }
}

/// Remedy for a GPU that takes no slices, by the reason that the daemon reports.
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

/// Enforcement tier of slices, and the reason.
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
    let pages = match (privileged, host::has_read_only_mounts(machine)) {
        (true, true) => "limits are in pages that no tenant can write",
        (true, false) => {
            "limits are in pages that tenants get read-only, protected by file modes as this kernel is old"
        }
        (false, _) => {
            "limits are in pages that tenants get read-only, but as the daemon's own user they could open them \
             again: a daemon run by root prevents that"
        }
    };
    format!("tier preload is possible: memory is kept by a library preloaded into each program; {pages}")
}
