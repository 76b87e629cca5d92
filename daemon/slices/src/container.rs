//! Identity of a process's container: its cgroup, which a tenant cannot choose.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use tranche_domain::id::HostPid;
use tranche_privileged::ProcessFile;

use tranche_linux::atomic_file::{PRIVATE, Survives, replace};
use tranche_linux::process;

/// A container, by the path of its cgroup. Cgroups beneath it belong to it as well, since its programs may create
/// some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container(String);

/// Hierarchies of version 1 that distinguish containers, in order of preference. Version 2 precedes them.
const HIERARCHIES: [&str; 6] = ["devices", "memory", "pids", "freezer", "cpu", "name=systemd"];
/// Hexadecimal digits of a container's id: every runtime uses 256 random bits.
const ID_DIGITS: usize = 64;

impl Container {
    /// The container of a process. `None` if its cgroup does not distinguish it from the rest of the machine.
    ///
    /// The pid may be reused at any time: the caller has to check afterwards that the intended process is alive.
    pub fn of(pid: HostPid) -> Option<Self> {
        Self::parse(&process::text(pid, ProcessFile::Cgroup).ok()?)
    }

    /// Parses `/proc/PID/cgroup`: lines of number, controllers and path, separated by colons. Where both versions are
    /// mounted, the container may be in either.
    fn parse(text: &str) -> Option<Self> {
        let mut paths = paths(text).into_iter().map(without_leaf).filter(|path| is_below_the_root(path));
        let first = paths.next()?;
        // A path with a container id is preferred to one that only distinguishes a part of the machine.
        let named = std::iter::once(first).chain(paths).find_map(|path| up_to(path, holds_id));
        // Otherwise a systemd service, including all cgroups beneath it, counts as one container.
        let named = named.or_else(|| up_to(first, |part| part.ends_with(".service")));
        Some(Self(named.unwrap_or(first).to_owned()))
    }
}

/// Paths of `/proc/PID/cgroup` in hierarchies that distinguish containers, that of version 2 first.
pub(crate) fn paths(text: &str) -> Vec<&str> {
    let entries = || {
        text.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            Some((parts.next()?, parts.next()?))
        })
    };
    let unified = entries().filter(|(controllers, _)| controllers.is_empty());
    let others = HIERARCHIES.into_iter().flat_map(|wanted| {
        entries().filter(move |(controllers, _)| controllers.split(',').any(|name| name == wanted))
    });
    unified.chain(others).map(|(_, path)| path).collect()
}

/// Removes the cgroup into which a process was moved for its slice, and everything beneath it.
fn without_leaf(path: &str) -> &str {
    up_to(path, tranche_privileged::is_leaf)
        .and_then(|leaf| leaf.rsplit_once('/'))
        .map_or(path, |(above, _)| above)
}

/// Returns true for a path below the root. Paths outside the reader's part of the hierarchy begin with `/..`.
fn is_below_the_root(path: &str) -> bool {
    path.starts_with('/') && path.split('/').any(|part| !["", ".."].contains(&part))
}

/// Cuts a path after its outermost matching component: tenants may have created those beneath.
fn up_to(path: &str, is_such: impl Fn(&str) -> bool) -> Option<&str> {
    let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
    ends.map(|end| &path[..end]).find(|start| is_such(start.rsplit('/').next().unwrap_or_default()))
}

/// Returns true if a name contains an id: `libpod-ID.scope`, `cri-containerd-ID.scope`, `ID`.
fn holds_id(name: &str) -> bool {
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| word.len() == ID_DIGITS && word.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f')))
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// File beside the slice's regions that holds the containers to which the slice is bound, one a line.
pub const FILE: &str = "container";

/// Reads the containers that this or the last daemon wrote.
pub fn read(directory: &Path) -> Vec<Container> {
    let text = fs::read_to_string(directory.join(FILE)).unwrap_or_default();
    text.lines().filter(|line| !line.is_empty()).map(|line| Container(line.to_owned())).collect()
}

/// Writes the containers for the next daemon. The kernel refuses line feeds in the names of cgroups.
pub fn write(directory: &Path, containers: &[Container]) -> io::Result<()> {
    let lines: Vec<_> = containers.iter().map(|container| container.0.as_str()).collect();
    replace(&directory.join(FILE), lines.join("\n").as_bytes(), PRIVATE, Survives::ProcessDeath)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: &str = "9f3c1e0b7a5d4c2f8e6b1a0d3c5f7e9b2a4d6c8f0e1b3a5d7c9f2e4b6a8d0c1f";
    const B: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[track_caller]
    fn is(text: &str, container: &str) {
        assert_eq!(Container::parse(text), Some(Container(container.into())), "{text}");
    }

    #[test]
    fn container_is_identified_in_every_layout() {
        // Version 2, by podman and by a kubelet, with and without systemd.
        is(
            &format!("0::/machine.slice/libpod-{A}.scope/container\n"),
            &format!("/machine.slice/libpod-{A}.scope"),
        );
        let pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a_1b.slice";
        is(&format!("0::{pod}/cri-containerd-{A}.scope\n"), &format!("{pod}/cri-containerd-{A}.scope"));
        is(&format!("0::/kubepods/besteffort/pod0a-1b/{A}\n"), &format!("/kubepods/besteffort/pod0a-1b/{A}"));
        // Version 1, and both with the container in version 1 alone.
        let v1 = format!("12:memory:/docker/{A}\n5:devices:/docker/{A}\n1:name=systemd:/docker/{A}/x\n");
        is(&v1, &format!("/docker/{A}"));
        is(&format!("{v1}0::/\n"), &format!("/docker/{A}"));
        is(&format!("{v1}0::/system.slice/docker.service\n"), &format!("/docker/{A}"));
        is(&format!("4:cpu,cpuacct:/docker/{A}\n"), &format!("/docker/{A}"));
        // Seen from inside a container.
        is(&format!("0::/../cri-containerd-{A}.scope\n"), &format!("/../cri-containerd-{A}.scope"));
        // Without ids, as with LXC: only the path distinguishes it.
        is("0::/lxc.payload.web/init.scope\n", "/lxc.payload.web/init.scope");
    }

    #[test]
    fn service_counts_as_one_container() {
        is("0::/system.slice/train.service\n", "/system.slice/train.service");
        is("0::/system.slice/train.service/workers/3\n", "/system.slice/train.service");
        is("1:name=systemd:/system.slice/train.service/.control\n0::/\n", "/system.slice/train.service");
        is(
            "0::/machine.slice/systemd-nspawn@web.service/payload/system.slice/x.service\n",
            "/machine.slice/systemd-nspawn@web.service",
        );
        // A container that a service runs counts by its id.
        is(
            &format!("0::/system.slice/web.service/libpod-{A}\n"),
            &format!("/system.slice/web.service/libpod-{A}"),
        );
    }

    #[test]
    fn slice_leaf_is_not_a_container() {
        is("0::/lxc.payload.web/init.scope/tranche_012abcd.7\n", "/lxc.payload.web/init.scope");
        is(&format!("0::/tranche_012abcd.7\n5:devices:/docker/{A}\n"), &format!("/docker/{A}"));
        assert_eq!(Container::parse("0::/tranche_012abcd.7\n"), None);
    }

    #[test]
    fn root_cgroup_is_not_a_container() {
        for text in [
            "",
            "0::/\n",
            "4:memory:/\n0::/\n",
            "0::/..\n",
            "0::/../..\n",
            "0::\n",
            "nonsense",
            "0::relative",
        ] {
            assert_eq!(Container::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn other_hierarchies_are_ignored() {
        assert_eq!(Container::parse("9:name=mine:/whatever\n8:perf_event:/x\n0::/\n"), None);
    }

    #[test]
    fn written_containers_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), []);
        for names in [&["/a"][..], &["/b", "/a"], &[]] {
            let containers: Vec<_> = names.iter().map(|name| Container((*name).into())).collect();
            write(folder.path(), &containers).unwrap();
            assert_eq!(read(folder.path()), containers);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    proptest! {
        #[test]
        fn no_cgroup_within_a_container_is_another_container(inner in "(/[a-z0-9.:_-]{1,8}){0,3}", other in any::<bool>()) {
            let inner = if other { format!("{inner}/{B}") } else { inner };
            is(&format!("0::/machine.slice/{A}{inner}"), &format!("/machine.slice/{A}"));
            is(&format!("3:memory:/docker/{A}{inner}\n0::/"), &format!("/docker/{A}"));
        }

        #[test]
        fn nothing_a_kernel_could_say_ends_us(text in "(?s).{0,200}") {
            let _ = Container::parse(&text);
        }
    }
}
