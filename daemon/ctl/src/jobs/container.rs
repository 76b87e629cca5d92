//! Containers of jobs: from options of `tranche submit`, and commands in them.

use std::env;
use std::ffi::OsString;
use std::io::{IsTerminal, stdin, stdout};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use tranche_domain::id::SliceName;
use tranche_domain::jobs::{ContainerMount, ContainerSpec, JobView};

use crate::cli::{ContainerArgs, SubmitArgs};
use crate::errors::Failure;

/// Variables that podman reads: where its images, its configuration and the registries' passwords are. Not TMPDIR, in
/// which podman would keep its state, by paths that are too long for it.
const OF_ENGINE: [&str; 23] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    "CONTAINERS_REGISTRIES_CONF",
    "STORAGE_DRIVER",
    "STORAGE_OPTS",
    "REGISTRY_AUTH_FILE",
    "DOCKER_CONFIG",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// Container of the options; `None` without an image.
pub(super) fn of_job(args: &SubmitArgs) -> Result<Option<ContainerSpec>, Failure> {
    let ContainerArgs { image, volumes, ports, shm, pull } = &args.container;
    let Some(image) = image.clone() else { return Ok(None) };
    let mounts = volumes.iter().map(|text| mount(text)).collect::<Result<_, _>>()?;
    let workdir = args.workdir.as_ref().map(|folder| text(folder)).transpose()?;
    Ok(Some(ContainerSpec {
        image,
        mounts,
        ports: ports.clone(),
        shm: *shm,
        pull: pull.unwrap_or_default(),
        workdir,
        engine: engine(),
    }))
}

fn engine() -> Vec<(String, String)> {
    let known = OF_ENGINE.iter().filter_map(|name| Some(((*name).to_owned(), env::var(name).ok()?)));
    let mut known: Vec<_> = known.collect();
    known.sort();
    known
}

/// Reads a mount. A source that begins with a dot is a path relative to this folder.
fn mount(given: &str) -> Result<ContainerMount, Failure> {
    let bad = |error: tranche_domain::jobs::BadContainer| Failure::Environment(error.to_string());
    let (source, rest) = given.split_once(':').unwrap_or((given, ""));
    let absolute = match source.starts_with('.') {
        true => text(&std::path::absolute(source).map_err(Failure::Output)?)?,
        false => source.to_owned(),
    };
    format!("{absolute}:{rest}").parse().map_err(bad)
}

fn text(path: &Path) -> Result<String, Failure> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::Environment(format!(
            "{} is no UTF-8, and paths of a container have to be",
            PathBuf::from(path).display()
        ))
    })
}

/// The command that runs a program in the container of a member.
pub(super) fn inside(
    job: &JobView,
    slice: &SliceName,
    command: Vec<OsString>,
) -> Result<Vec<OsString>, Failure> {
    let own = geteuid().as_raw();
    if job.uid != own {
        return Err(Failure::OthersContainer { job: job.name.to_string(), uid: job.uid });
    }
    let mut words: Vec<OsString> = ["podman", "exec", "--interactive"].map(OsString::from).into();
    if stdin().is_terminal() && stdout().is_terminal() {
        words.push("--tty".into());
    }
    words.push(format!("tranche-{slice}").into());
    words.extend(command);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn relative_source_is_a_path_and_a_name_a_volume() {
        let here = env::current_dir().unwrap();
        assert_eq!(mount("./data:/data").unwrap().source, here.join("data").display().to_string());
        assert_eq!(mount(".:/data:ro").unwrap().to_string(), format!("{}:/data:ro", here.display()));
        assert!(!mount("claim:/data").unwrap().is_path());
        assert!(mount("data").unwrap_err().to_string().contains("HOST:PATH"));
    }

    #[test]
    fn only_the_submitter_gets_into_a_container() {
        let slice = "a.j.0".parse().unwrap();
        let mut job = sample::job("a", "j");
        job.uid = geteuid().as_raw();
        let words = inside(&job, &slice, vec!["id".into()]).unwrap();
        assert_eq!(words[words.len() - 2..], [OsString::from("tranche-a.j.0"), "id".into()]);
        job.uid += 1;
        assert!(inside(&job, &slice, vec!["id".into()]).unwrap_err().to_string().contains("as that user"));
    }
}
