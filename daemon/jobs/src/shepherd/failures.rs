//! Reasons for which a container cannot be made or started, in the words of the job's user.

use std::fs;
use std::io;

use nix::unistd::geteuid;
use tranche_domain::jobs::{ImageName, PublishedPort};

/// Reason where the daemon writes no document for the slice.
pub(crate) const NO_DOCUMENT: &str = "the daemon writes no CDI documents of slices, from which a container gets its GPUs: an \
     administrator sets `cdi_dir` in its configuration, and `tranche smi` names the reason if it is set";

/// Reason where the limits of the job's cgroup would not hold for its container.
pub(crate) const BEYOND_LIMITS: &str = "--cpus and --mem hold for a container only where podman runs it by crun, and here it uses \
     runc, which moves it out of the job's cgroup: an administrator installs crun, or submit without them";

/// The last line of what podman printed, without its prefix.
pub(crate) fn last_line(said: &str) -> &str {
    let line =
        said.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("podman gave no reason");
    line.strip_prefix("Error: ").unwrap_or(line)
}

/// The program itself could not be executed.
pub(crate) fn not_run(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "podman is not installed on this node, and a job with an --image runs in a container \
             of podman's: an administrator installs it (Debian, Ubuntu: `apt install podman crun uidmap slirp4netns \
             fuse-overlayfs`; Fedora, RHEL: `dnf install podman`)"
            .into(),
        _ => format!("cannot run podman: {error}"),
    }
}

/// Files for the container cannot be found or made.
pub(crate) fn no_files(error: &io::Error) -> String {
    format!("cannot make files for the container: {error}")
}

/// Refuses containers where rootless podman cannot get the user ids of a container.
pub(crate) fn privileges() -> Result<(), String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let has_none =
        !geteuid().is_root() || value("CapEff:").is_some_and(|set| set.bytes().all(|digit| digit == b'0'));
    if has_none && value("NoNewPrivs:") == Some("1") {
        return Err(NO_NEW_PRIVILEGES.into());
    }
    Ok(())
}

const NO_NEW_PRIVILEGES: &str = "jobs of this node start no containers: rootless podman needs newuidmap, which gains \
     nothing under NoNewPrivileges; an administrator allows it with examples/jobs.conf, to be copied to \
     /etc/systemd/system/tranche-job@.service.d/jobs.conf. Jobs of root itself have no containers";

/// podman is there and cannot work for this user.
pub(crate) fn unusable(said: &str) -> String {
    let why = last_line(said);
    let hint = match () {
        () if geteuid().is_root() => "",
        () if said.contains("newuidmap") && said.contains("not found") => {
            "; an administrator installs newuidmap (Debian, Ubuntu: `apt install uidmap`)"
        }
        () if said.contains("newuidmap") || said.contains("subuid") || said.contains("subgid") => {
            "; the user needs ranges in /etc/subuid and /etc/subgid (`usermod --add-subuids 100000-165535 --add-subgids \
             100000-165535 USER`), and the job the right to use them (examples/jobs.conf)"
        }
        () => "; `podman info` in a shell of the user shows whether it works there",
    };
    format!("podman cannot run containers for user {}: {why}{hint}", geteuid())
}

/// The image is not on the node and is not to be pulled.
pub(crate) fn absent(image: &str) -> String {
    format!(
        "image {image} is not among this user's images on the node, and --pull never was given: `podman pull {image}` or \
         `podman build -t {image}` brings it, and `podman images` lists them"
    )
}

/// The image cannot be pulled.
pub(crate) fn not_pulled(image: &str, said: &str) -> String {
    let why = last_line(said);
    let hint = match () {
        () if said.contains("unqualified-search registries") || said.contains("short-name") => {
            return format!(
                "image {image} cannot be pulled, as its name has no registry and this node searches none: write \
                 docker.io/{image} or another registry before it, or define unqualified-search-registries in \
                 /etc/containers/registries.conf"
            );
        }
        () if ["no such host", "network is unreachable", "i/o timeout", "connection refused"]
            .iter()
            .any(|sign| said.contains(sign)) =>
        {
            "; the registry cannot be reached from this node: bring the image by `podman load`, and submit with --pull never"
        }
        () if said.contains("unauthorized") || said.contains("denied") => {
            "; there is no such image, or it takes a login: `podman login REGISTRY` as the job's user"
        }
        () if said.contains("no space left") => "; the disk is full: `podman image prune` frees some of it",
        () => "",
    };
    format!("image {image} cannot be pulled: {why}{hint}")
}

/// podman refused to create the container.
pub(crate) fn not_created(image: &ImageName, said: &str) -> String {
    let why = last_line(said);
    let hint = match () {
        () if said.contains("no command or entrypoint") => {
            "; the image has no command of its own: give one behind --"
        }
        () => "",
    };
    format!("podman made no container of image {image}: {why}{hint}")
}

/// The container was created and its program did not start.
pub(crate) fn not_started(said: &str) -> String {
    let why = last_line(said);
    let hint = match () {
        () if said.contains("address already in use") => "; choose another port with --port HOST:CONTAINER",
        () if said.contains("not found in $PATH") || said.contains("no such file or directory") => {
            "; the program has to be in the image, under the name that follows --"
        }
        () if said.contains("permission denied") => "; the program has to be executable in the image",
        () if said.contains("slirp4netns") || said.contains("pasta") => {
            "; a published port takes slirp4netns or passt on the node (Debian, Ubuntu: `apt install slirp4netns`)"
        }
        () => "",
    };
    format!("the container did not start: {why}{hint}")
}

/// The source of a mount cannot be mounted.
pub(crate) fn no_source(source: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!(
            "there is no {source} on this node to mount: create it, or mount another folder with --volume HOST:PATH"
        ),
        _ => format!("cannot mount {source}: {error}; the job's user has to be able to read it"),
    }
}

/// A port of the node is not free.
pub(crate) fn no_port(port: PublishedPort, error: &io::Error) -> String {
    let PublishedPort { host, container } = port;
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "port {host} of this node is taken, by another job or a service: publish another one, such as --port \
             {}:{container} (`ss -ltnp` lists them)",
            host.get().checked_add(1).unwrap_or(49152)
        ),
        io::ErrorKind::PermissionDenied => {
            format!("port {host} takes privileges: publish one from 1024 on, such as --port 8888:{container}")
        }
        _ => format!("cannot publish port {host}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_name_the_remedy() {
        let short = "Error: short-name \"a/b\" did not resolve to an alias and no unqualified-search registries are defined";
        assert!(not_pulled("a/b", short).contains("docker.io/a/b"));
        let offline = "Trying to pull docker.io/a/b:latest...\nError: initializing source: dial tcp: lookup r on 1:53: no such host\n";
        let told = not_pulled("docker.io/a/b", offline);
        assert!(told.contains("initializing source") && told.contains("podman load"), "{told}");
        let missing = "Error: unable to start container 1e1d: runc: exec: \"nosuch\": executable file not found in $PATH: OCI";
        assert!(not_started(missing).contains("has to be in the image"));
        let taken = no_port("8888".parse().unwrap(), &io::ErrorKind::AddrInUse.into());
        assert!(
            taken.contains("8888 of this node is taken") && taken.contains("--port 8889:8888"),
            "{taken}"
        );
        assert!(not_run(&io::ErrorKind::NotFound.into()).contains("apt install podman"));
        assert!(no_source("/nfs", &io::ErrorKind::NotFound.into()).contains("there is no /nfs"));
        assert!(absent("x").contains("--pull never"));
    }

    #[test]
    fn last_line_is_without_prefix() {
        assert_eq!(last_line("a\nError: b: c\n\n"), "b: c");
        assert_eq!(last_line("\n"), "podman gave no reason");
    }
}
