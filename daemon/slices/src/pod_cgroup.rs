//! Pod of a process, by the part of its cgroup's path that the kubelet makes.
//!
//! A tenant may create cgroups below that of its container, or below that of its login session, with any names. So a
//! path counts from its top alone: what the kubelet makes stands there, and nothing below the pod's cgroup is read.

use tranche_domain::id::HostPid;
use tranche_domain::pod::PodUid;
use tranche_privileged::ProcessFile;

use crate::container::paths;
use tranche_linux::process;

/// Cgroup of all pods, by its name of either cgroup driver.
const TOPS: [&str; 2] = ["kubepods", "kubepods.slice"];

/// Place of the pods' cgroups in the hierarchies, as this process sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodCgroups {
    /// Path above the cgroup of all pods; empty where that is at the top.
    above: String,
}

impl PodCgroups {
    /// The place by the cgroup of this process, if it is in a pod; else the top of the hierarchy.
    pub fn of_this_process() -> Self {
        let own = process::text(HostPid::new(std::process::id()), ProcessFile::Cgroup);
        own.map(|text| Self::parse(&text)).unwrap_or_default()
    }

    fn parse(own: &str) -> Self {
        let above = |path: &str| {
            let before: Vec<&str> = path.split('/').take_while(|part| !TOPS.contains(part)).collect();
            let text = before.join("/");
            (text.len() < path.len() && !before.contains(&"..")).then_some(text)
        };
        Self { above: paths(own).into_iter().find_map(above).unwrap_or_default() }
    }

    /// Pod of a process. `None` if its cgroup is not a pod's, or its hierarchies name different ones.
    ///
    /// The pid may be reused at any time: the caller has to check afterwards that the intended process is alive, if
    /// more than a display depends on it.
    pub fn pod_of(&self, pid: HostPid) -> Option<PodUid> {
        self.pod(&process::text(pid, ProcessFile::Cgroup).ok()?)
    }

    /// Pod in the text of `/proc/PID/cgroup`.
    fn pod(&self, text: &str) -> Option<PodUid> {
        let mut pods = paths(text).into_iter().filter_map(|path| self.pod_of_path(path));
        let first = pods.next()?;
        pods.all(|other| other == first).then_some(first)
    }

    fn pod_of_path(&self, path: &str) -> Option<PodUid> {
        // From inside a cgroup namespace a path begins with a `..` for each level up to the common ancestor.
        // The kernel alone writes them, as no cgroup can have that name.
        let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        let levels = parts.iter().take_while(|part| **part == "..").count();
        if levels > 0 {
            let parts = &parts[levels..];
            return pod_in(below_top(parts).unwrap_or(parts));
        }
        let parts: Vec<&str> =
            path.strip_prefix(self.above.as_str())?.strip_prefix('/')?.split('/').collect();
        pod_in(below_top(&parts)?)
    }
}

fn below_top<'a>(parts: &'a [&'a str]) -> Option<&'a [&'a str]> {
    parts.split_first().filter(|(first, _)| TOPS.contains(first)).map(|(_, rest)| rest)
}

/// Pod of the components below the cgroup of all pods.
///
/// They are a class of service, unless it is the guaranteed one, and the
/// pod.
fn pod_in(parts: &[&str]) -> Option<PodUid> {
    let class = match parts.first()? {
        &"burstable" | &"kubepods-burstable.slice" => Some("burstable"),
        &"besteffort" | &"kubepods-besteffort.slice" => Some("besteffort"),
        _ => None,
    };
    let name = parts.get(usize::from(class.is_some()))?;
    if let Some(uid) = name.strip_prefix("pod") {
        return uid.parse().ok();
    }
    let inner = name.strip_prefix("kubepods-")?.strip_suffix(".slice")?;
    // The class is not visible above a pod of the same class as this process's.
    let classes = ["burstable-pod", "besteffort-pod", "pod"];
    let uid = classes.iter().find_map(|prefix| inner.strip_prefix(prefix))?;
    // A dash separates levels in the names of systemd's slices, so the kubelet writes those of a uid differently.
    (!uid.contains('-')).then(|| uid.replace('_', "-").parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UID: &str = "5a1c8a4e-0b8e-4a8e-9d3c-1f2e3d4c5b6a";
    const ID: &str = "9f3c1e0b7a5d4c2f8e6b1a0d3c5f7e9b2a4d6c8f0e1b3a5d7c9f2e4b6a8d0c1f";

    fn systemd(uid: &str) -> String {
        uid.replace('-', "_")
    }

    fn at(above: &str) -> PodCgroups {
        PodCgroups { above: above.into() }
    }

    #[track_caller]
    fn is(seen: &PodCgroups, text: &str, uid: Option<&str>) {
        assert_eq!(seen.pod(text).as_ref().map(PodUid::as_str), uid, "{text}");
    }

    #[test]
    fn both_cgroup_drivers_and_all_classes_are_read() {
        let (top, escaped) = (PodCgroups::default(), systemd(UID));
        for class in ["", "burstable", "besteffort"] {
            let (above, dashed) = match class {
                "" => (String::new(), String::new()),
                class => (format!("/kubepods-{class}.slice"), format!("{class}-")),
            };
            let path =
                format!("/kubepods.slice{above}/kubepods-{dashed}pod{escaped}.slice/crio-{ID}.scope/x");
            is(&top, &format!("0::{path}\n"), Some(UID));
            let class = if class.is_empty() { String::new() } else { format!("/{class}") };
            is(&top, &format!("0::/kubepods{class}/pod{UID}/{ID}\n"), Some(UID));
            is(
                &top,
                &format!("5:devices:/kubepods{class}/pod{UID}/{ID}\n1:name=systemd:/x\n0::/\n"),
                Some(UID),
            );
        }
        // A static pod's uid is a hash.
        is(
            &top,
            "0::/kubepods/pod0123456789abcdef0123456789abcdef/x\n",
            Some("0123456789abcdef0123456789abcdef"),
        );
    }

    #[test]
    fn pods_are_seen_from_inside_a_container() {
        let (top, escaped) = (PodCgroups::default(), systemd(UID));
        is(&top, &format!("0::/../../pod{UID}/{ID}\n"), Some(UID));
        is(&top, &format!("0::/../../../besteffort/pod{UID}/{ID}\n"), Some(UID));
        is(
            &top,
            &format!("0::/../../kubepods-burstable-pod{escaped}.slice/cri-containerd-{ID}.scope\n"),
            Some(UID),
        );
        is(&top, &format!("0::/../../../kubepods-pod{escaped}.slice/cri-containerd-{ID}.scope\n"), Some(UID));
        // A container of the same pod does not show it.
        is(&top, &format!("0::/../{ID}\n"), None);
    }

    #[test]
    fn place_of_the_pods_is_that_of_this_process() {
        let own = format!("3:pids:/\n2:devices:/nested.1/kubepods/burstable/pod{UID}/{ID}\n0::/\n");
        let nested = PodCgroups::parse(&own);
        assert_eq!(nested, at("/nested.1"));
        is(&nested, &format!("2:devices:/nested.1/kubepods/pod{UID}/{ID}\n"), Some(UID));
        is(&nested, &format!("2:devices:/kubepods/pod{UID}/{ID}\n"), None);
        for own in
            ["0::/\n", "0::/system.slice/tranched.service\n", &format!("0::/kubepods/pod{UID}/{ID}\n"), ""]
        {
            assert_eq!(PodCgroups::parse(own), at(""), "{own}");
        }
    }

    #[test]
    fn hierarchies_of_both_versions_agree() {
        let of = |class: &str, uid: &str| {
            let names = [
                "name=systemd",
                "pids",
                "blkio",
                "freezer",
                "devices",
                "memory",
                "cpuset",
                "cpuacct",
                "cpu",
                "",
            ];
            let line = |(at, name): (usize, &&str)| {
                format!("{at}:{name}:/nested.1/kubepods/{class}/pod{uid}/{ID}\n")
            };
            names.iter().enumerate().map(line).collect::<String>()
        };
        let seen = PodCgroups::parse(&of("burstable", "8811107d-b0bf-4e3c-87de-ee061ccf4e33"));
        is(&seen, &of("besteffort", UID), Some(UID));
    }

    #[test]
    fn names_that_tenants_create_are_no_pod() {
        let (top, other) = (PodCgroups::default(), "11111111-2222-3333-4444-555555555555");
        for path in [
            format!("/user.slice/user-1000.slice/user@1000.service/kubepods/pod{other}/{ID}"),
            format!("/user.slice/kubepods.slice/kubepods-pod{}.slice/{ID}", systemd(other)),
            format!("/../../../../user.slice/user-1000.slice/kubepods/burstable/pod{other}/{ID}"),
            format!("/machine.slice/libpod-{ID}.scope/kubepods/pod{other}/{ID}"),
            format!("/pod{other}/{ID}"),
            format!("/kubepods/x/pod{other}"),
            format!("/kubepods/burstable/besteffort/pod{other}"),
            format!("/kubepods.slice/kubepods-pod{other}.slice/{ID}"),
            "/kubepods/pod".into(),
            "/kubepods/podé/x".into(),
            "/kubepods".into(),
        ] {
            is(&top, &format!("0::{path}\n"), None);
        }
        // Hierarchies of a process that name two pods name none.
        is(&top, &format!("0::/kubepods/pod{UID}/x\n4:memory:/kubepods/pod{other}/x\n"), None);
        // A hierarchy with a name of its own is not one of the kubelet's.
        is(&top, &format!("9:name=mine:/kubepods/pod{other}/x\n0::/\n"), None);
    }

    proptest! {
        #[test]
        fn nothing_below_a_pod_changes_it(below in "(/[a-z0-9._:-]{1,9}|/kubepods|/pod[a-f0-9-]{4}|/\\.\\.\\.){0,4}") {
            let top = PodCgroups::default();
            for path in [
                format!("/kubepods/burstable/pod{UID}{below}"),
                format!("/../../pod{UID}{below}"),
                format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice{below}", systemd(UID)),
            ] {
                is(&top, &format!("0::{path}\n"), Some(UID));
            }
        }

        #[test]
        fn nothing_beside_the_pods_is_one(
            beside in "[a-z0-9._-]{1,12}",
            below in "(/[a-z0-9._-]{1,9}){0,2}",
            levels in 0..4usize,
        ) {
            prop_assume!(!TOPS.contains(&beside.as_str()) && !beside.starts_with("kubepods-"));
            prop_assume!(!beside.starts_with("pod") && beside != "burstable" && beside != "besteffort" && beside != "..");
            let path = format!("{}/{beside}{below}/kubepods/burstable/pod{UID}/{ID}", "/..".repeat(levels));
            is(&PodCgroups::default(), &format!("0::{path}\n"), None);
        }

        #[test]
        fn any_text_is_read_without_panic(text in "(?s).{0,200}", above in "(/[a-z]{1,4}){0,2}") {
            let _ = at(&above).pod(&text);
            let _ = PodCgroups::parse(&text);
        }
    }
}
