use std::path::Path;

use tranche_domain::daemon::{CapabilityView, PrivilegesView, SettingView};

use super::super::exports::Exports;
use super::super::machine::Cgroups;
use super::*;
use crate::sample;

fn evidence() -> Evidence {
    let machine = Machine {
        pid_namespace: Some(host::FIRST_PID_NAMESPACE.into()),
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
        daemon: Some(DaemonView {
            capabilities: vec![capability("CAP_KILL", Some("to end processes"))],
            bounding: vec!["CAP_KILL".into()],
            no_new_privs: true,
            ..DaemonView::default()
        }),
        shim: "/usr/lib/tranche/libtranche_preload.so".into(),
        library: Library::Loadable { needed: vec!["libc.so.6".into()] },
        driver: vec![exports(&["cuInit", "cuMemAlloc_v2"])],
        machine,
    }
}

fn capability(name: &str, reason: Option<&str>) -> CapabilityView {
    CapabilityView { name: name.into(), reason: reason.map(Into::into) }
}

fn exports(names: &[&str]) -> Exports {
    let names = names.iter().map(ToString::to_string).collect();
    Exports { soname: "libcuda.so.1", path: "/usr/lib/libcuda.so.1".into(), names }
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
fn healthy_node_has_no_findings() {
    let checks = all(&evidence());
    let bad: Vec<_> = checks.iter().filter(|check| check.verdict != Verdict::Ok).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(found(&checks, "driver").found.contains("SIMULATED"));
    assert!(found(&checks, "enforcement").found.contains("compute: not enforced"));
}

#[test]
fn every_problem_has_a_remedy() {
    let mut evidence = evidence();
    evidence.node = Err("cannot connect to tranched\nstart it".into());
    evidence.library = Library::Unreadable("no such file".into());
    evidence.machine = Machine { mps: vec!["process 31".into()], ..Machine::default() };
    for check in all(&evidence).iter().filter(|check| check.verdict == Verdict::Problem) {
        assert!(check.remedy.is_some(), "{check:?}");
    }
}

#[test]
fn absent_daemon_is_a_problem() {
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
fn differing_daemon_version_is_reported() {
    let checks = with_node(|node| node.daemon_version = "9.9.9".into());
    assert_eq!(found(&checks, "versions").verdict, Verdict::Warning);
    assert!(found(&checks, "versions").found.contains("9.9.9"));
}

#[test]
fn unsliceable_gpus_are_listed_with_remedies() {
    let reason = |node: &mut NodeView, index: usize, reason: &str| {
        node.gpus[index].not_sliceable = Some(reason.into());
    };
    let checks = with_node(|node| {
        reason(node, 0, "MIG is enabled");
        reason(node, 1, "its compute mode is exclusive-process");
    });
    assert_eq!(found(&checks, "GPU 0").verdict, Verdict::Warning);
    assert!(found(&checks, "GPU 0").remedy.as_deref().unwrap().contains("-i 0 -mig 0"));
    assert!(found(&checks, "GPU 1").remedy.as_deref().unwrap().contains("-i 1 -c DEFAULT"));
    assert_eq!(found(&checks, "GPU 2").verdict, Verdict::Ok);
    assert!(cure("this is a vGPU").contains("hypervisor"));
}

#[test]
fn no_sliceable_gpu_is_a_problem() {
    let checks = with_node(|node| {
        node.gpus.truncate(1);
        node.gpus[0].not_sliceable = Some("MIG is enabled".into());
    });
    assert_eq!(found(&checks, "GPU 0").verdict, Verdict::Problem);
    let checks = with_node(|node| node.gpus.clear());
    assert_eq!(found(&checks, "driver").verdict, Verdict::Problem);
}

#[test]
fn mps_is_reported_with_its_tier() {
    let checks = with_machine(|machine| machine.mps = vec!["process 31".into()]);
    assert!(found(&checks, "MPS").found.contains("process 31"));
    assert!(found(&checks, "MPS").remedy.as_deref().unwrap().contains("lower tier"));
}

#[test]
fn foreign_preload_entries_are_reported() {
    let preload = |path: &str| {
        let checks = with_machine(|machine| machine.ld_so_preload = vec![path.into()]);
        found(&checks, "ld.so.preload").verdict
    };
    assert_eq!(preload("/usr/lib/libvgpu.so"), Verdict::Warning);
    assert_eq!(preload("/old/libtranche_preload.so"), Verdict::Warning);
    assert_eq!(preload("/usr/lib/tranche/libtranche_preload.so"), Verdict::Ok);
}

#[test]
fn old_kernels_and_containers_are_reported() {
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
fn inaccessible_device_files_are_a_problem() {
    let file = Path::new("/dev/nvidia0").to_owned();
    let checks = with_machine(|machine| machine.device_files = vec![(file, Access::Refused)]);
    assert!(found(&checks, "device files").found.contains("/dev/nvidia0"));
    assert_eq!(found(&checks, "device files").verdict, Verdict::Problem);
}

#[test]
fn unknown_driver_functions_are_listed() {
    let mut evidence = evidence();
    evidence.driver = vec![exports(&["cuInit", "cuNewest", "cuNewest_v2"])];
    let checks = all(&evidence);
    let check = found(&checks, "libcuda.so.1");
    assert_eq!(check.verdict, Verdict::Warning);
    assert!(check.found.ends_with("does not know: cuNewest, cuNewest_v2"), "{}", check.found);
    assert!(check.remedy.as_deref().is_some_and(|remedy| remedy.contains("make refresh-symbols")));
}

#[test]
fn long_function_lists_are_cut_and_counted() {
    let many: Vec<_> = (10..70).map(|number| format!("cuNew{number}")).collect();
    let mut evidence = evidence();
    evidence.driver = vec![exports(&many.iter().map(String::as_str).collect::<Vec<_>>())];
    let checks = all(&evidence);
    assert!(found(&checks, "libcuda.so.1").found.ends_with("cuNew49 and 20 more"));
}

#[test]
fn capability_without_purpose_is_a_warning() {
    let checks = all(&evidence());
    assert_eq!(found(&checks, "privileges").found, "tranched holds CAP_KILL: to end processes");
    let mut more = evidence();
    more.node.as_mut().unwrap().privileged = true;
    more.daemon.as_mut().unwrap().capabilities.push(capability("CAP_SYS_MODULE", None));
    let checks = all(&more);
    let warned = found(&checks, "privileges");
    assert!(warned.verdict == Verdict::Warning && warned.found.contains("CAP_SYS_MODULE"), "{warned:?}");
    let mut loose = evidence();
    loose.node.as_mut().unwrap().privileged = true;
    loose.daemon.as_mut().unwrap().no_new_privs = false;
    assert_eq!(found(&all(&loose), "privileges").verdict, Verdict::Warning);
}

#[test]
fn device_access_is_shown_as_configured() {
    let mut kept = evidence();
    assert!(all(&kept).iter().all(|check| check.check != "device access"), "an older daemon does not say");
    for (value, said) in
        [("false", "every process"), ("[\"/a.service\"]", "only processes of slices, of tranched and of")]
    {
        let setting = SettingView {
            key: "only_slices".into(),
            value: value.into(),
            origin: "default".into(),
            live: false,
        };
        kept.daemon.as_mut().unwrap().settings = vec![setting];
        let checks = all(&kept);
        let shown = found(&checks, "device access");
        assert!(shown.verdict == Verdict::Ok && shown.found.contains(said), "{shown:?}");
    }
}

#[test]
fn privileges_list_helper_and_main_process() {
    let mut apart = evidence();
    apart.node.as_mut().unwrap().privileged = true;
    let daemon = apart.daemon.as_mut().unwrap();
    let capabilities = std::mem::take(&mut daemon.capabilities);
    daemon.uid = Some(990);
    daemon.helper =
        Some(PrivilegesView { uid: 0, capabilities, no_new_privs: true, ..PrivilegesView::default() });
    let checks = all(&apart);
    let shown = found(&checks, "privileges");
    let lines =
        ["tranched (uid 990) holds no capabilities", "its helper (uid 0) holds CAP_KILL: to end processes"];
    assert_eq!((shown.verdict, shown.found.as_str()), (Verdict::Ok, lines.join("\n").as_str()));
    apart.daemon.as_mut().unwrap().uid = Some(0);
    let checks = all(&apart);
    let as_root = found(&checks, "privileges");
    assert!(
        as_root.verdict == Verdict::Warning && as_root.found.contains("owns root's files"),
        "{as_root:?}"
    );
}
