//! Jobs in rootless containers: `tranche submit --image`, through the job launcher.
#![allow(clippy::unwrap_used, reason = "files that a test makes can be made")]

mod killed;
mod refused;
mod seeds;
mod users;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use e2e::{eventually, skip};
use serde::Deserialize;

use crate::{HALF_V100, WHOLE_V100};
use users::{IMAGE, Users};

/// Entry of `tranche list --json`, with the fields that the tests read.
#[derive(Debug, Deserialize)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) reason: String,
    pub(crate) image: Option<String>,
    pub(crate) url: Option<String>,
}

#[test]
fn job_in_an_image_has_its_slice_and_leaves_nothing() {
    let Some(users) = Users::begin() else { return };
    let nfs = users.folder("nfs");
    let mount = format!("{}:/nfs", nfs.display());
    let read_only = format!("{}:/data:ro", nfs.display());
    let script = "echo in $PWD as $TRANCHE_JOB_NAME.$TRANCHE_JOB_INDEX with $GREETING; echo \"$*\"; echo $HOSTS_OWN; \
                  busybox df -m /dev/shm | busybox tail -1; busybox touch /nfs/made; busybox touch /data/x || echo read-only";
    let words = [
        "train",
        "-i",
        IMAGE,
        "-g",
        "0.5",
        "-v",
        &mount,
        "-v",
        &read_only,
        "--shm",
        "8GiB",
        "-w",
        "/tmp",
        "-e",
        "GREETING=hello world; $(id)",
        "--pull",
        "never",
        "--",
        "sh",
        "-c",
        script,
        "sh",
        "a  b",
        "--privileged",
        "$(id)",
    ];
    users.submit(&words).success();
    let job = users.until("train", "succeeded");
    assert_eq!(job.image.as_deref(), Some(IMAGE));
    let log = users.log("train");
    for part in
        ["in /tmp as train.0 with hello world; $(id)\n", "a  b --privileged $(id)\n", " 8192 ", "read-only"]
    {
        assert!(log.contains(part), "{part:?} is not in\n{log}");
    }
    assert!(nfs.join("made").exists(), "{log}");
    let described = users.node().tranche(&["describe", "train"]).success();
    for part in [&format!("Image     {IMAGE}"), &format!("Mounts    {mount}, {read_only}")] {
        assert!(described.contains(part.as_str()), "{part:?} is not in\n{described}");
    }
    let csv = users.node().tranche(&["list", "-o", "csv"]).success();
    assert!(csv.contains("image") && csv.contains(IMAGE), "{csv}");
    users.assert_nothing_left();
}

#[test]
fn program_in_a_jobs_container_is_kept_to_its_slice() {
    let Some(users) = Users::begin() else { return };
    for (name, share, memory) in [("half", "0.5", HALF_V100), ("whole", "1", WHOLE_V100)] {
        let script = "(printf 'cuda\\ncontext 0\\ninfo\\nfill plain 268435456 2097152\\nalloc plain 67108864\\nwriteshared\\n'; \
                      busybox sleep 1000) | /usr/bin/tenant";
        users.submit(&[name, "-i", IMAGE, "-g", share, "--", "sh", "-c", script]).success();
        let log = eventually("the program has tried it all", || match users.log(name) {
            log if log.lines().count() == 6 => Ok(log),
            log => Err(log),
        });
        let lines: Vec<&str> = log.lines().collect();
        assert!(lines[2].ends_with(&format!(" {}", memory.get())), "{log}");
        assert_eq!(lines[4], "err 2", "{log}");
        // Its regions are not writable in the container, by root there either.
        assert!(lines[5].ends_with(" 0"), "{log}");
        let slice = users.node().slice(&format!("a.{name}.0"));
        assert_eq!(slice.processes.len(), 1, "{slice:#?}");
        assert_ne!(slice.processes[0].inner_pid, Some(slice.processes[0].pid), "{slice:#?}");
        assert!(users.node().smi().gpus.iter().all(|gpu| gpu.foreign.is_empty()));
        users.node().tranche(&["delete", name]).success();
    }
    users.assert_nothing_left();
}

#[test]
fn exec_and_bash_go_into_the_container() {
    let Some(users) = Users::begin() else { return };
    let words = [
        "job",
        "-i",
        IMAGE,
        "-g",
        "0.5",
        "-e",
        "GREETING=hello",
        "--",
        "sh",
        "-c",
        "echo up; busybox sleep 1000",
    ];
    users.submit(&words).success();
    eventually("it runs", || if users.log("job") == "up\n" { Ok(()) } else { Err(users.log("job")) });
    let script =
        "echo $GREETING from $OF_IMAGE; printf 'cuda\\ncontext 0\\ninfo\\n' | /usr/bin/tenant; exit 7";
    let inside = users.tranche(&["exec", "job", "--", "sh", "-c", script]);
    assert_eq!(inside.code, Some(7), "{inside}");
    assert!(inside.stdout.contains("hello from here\n"), "{inside}");
    assert!(inside.stdout.contains(&format!(" {}\n", HALF_V100.get())), "{inside}");
    let mut bash = e2e::Process::start(users.of_alice_tranche().args(["bash", "job"]));
    assert!(bash.say("echo shell of $OF_IMAGE"));
    assert_eq!(bash.line().as_deref(), Some("shell of here"));
    bash.hang_up();
    assert_eq!(bash.end().code, Some(0));
    let by_root = users.node().tranche(&["exec", "job", "--", "id"]);
    by_root.refused(1, &["into which podman lets that user alone"]);
    users.tranche(&["delete", "job"]).success();
    users.assert_nothing_left();
}

#[test]
fn address_of_a_published_port_opens_from_elsewhere() {
    let Some(users) = Users::begin() else { return };
    if Command::new("slirp4netns").arg("--version").output().is_err() {
        return skip(
            "there is no slirp4netns here (Debian: slirp4netns), which publishes ports of rootless containers",
        );
    }
    let port = TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
    let publish = format!("{port}:8888");
    let script = "mkdir -p /tmp/lab; echo welcome >/tmp/lab/index.html; echo at http://127.0.0.1:8888/lab/?token=ab12; \
                  exec busybox httpd -f -p 8888 -h /tmp";
    let words =
        ["lab", "-i", IMAGE, "-g", "0.5", "--interactive", "--port", &publish, "--", "sh", "-c", script];
    users.submit(&words).success();
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let url = format!("http://{}:{port}/lab/?token=ab12", name.trim());
    eventually("the address is in the list", || match users.until("lab", "running").url {
        Some(shown) if shown == url => Ok(()),
        other => Err(format!("{other:?}: {}", users.log("lab"))),
    });
    let page = eventually("the page opens", || {
        // At an address that others have, too, and not at the loopback device's alone.
        let mut stream = TcpStream::connect((name.trim(), port)).map_err(|error| error.to_string())?;
        stream.write_all(b"GET /lab/ HTTP/1.0\r\n\r\n").map_err(|error| error.to_string())?;
        let mut page = String::new();
        stream.read_to_string(&mut page).map_err(|error| error.to_string())?;
        if page.contains("200 OK") { Ok(page) } else { Err(page) }
    });
    assert!(page.contains("welcome"), "{page}");
    let described = users.node().tranche(&["describe", "lab"]).success();
    assert!(described.contains(&format!("Ports     {publish}")), "{described}");
    users.tranche(&["delete", "lab"]).success();
    users.assert_nothing_left();
}
