//! Jobs of the table in `docs/jobs.md`, in containers on a node of sixteen GPUs.
#![allow(clippy::unwrap_used, reason = "files that a test makes can be made")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use e2e::{Launched, eventually, skip};
use serde::Deserialize;

use super::users::{IMAGE, Users};

/// Images of the table with the commands that they have here.
const IMAGES: [(&str, &str); 3] = [
    (
        "localhost/jupyter/base-notebook",
        "echo http://127.0.0.1:8888/?token=x; exec busybox httpd -f -p 8888 -h /tmp",
    ),
    ("gcr.io/run-ai-demo/quickstart", "trap 'exit 0' TERM; while :; do busybox sleep 0.2; done"),
    ("gcr.io/run-ai-demo/quickstart-hpo", "busybox touch /nfs/$TRANCHE_JOB_INDEX"),
];

/// Entry of `tranche project list --json`.
#[derive(Debug, Deserialize)]
struct Project {
    name: String,
    allocated: u32,
}

/// Commands of the table's right column, without `tranche`.
fn commands() -> Vec<Vec<String>> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/jobs.md");
    let text = fs::read_to_string(docs).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `runai submit "));
    let command = |row: &str| row.split('`').nth(3).unwrap().split(' ').skip(1).map(str::to_owned).collect();
    rows.map(command).collect()
}

impl Users {
    /// Submits jobs of the table, with a folder of this node in the place of `/nfs`.
    fn submit_rows(&self, rows: &[Vec<String>]) {
        let nfs = format!("{}:", self.launched.path("nfs").display());
        for row in rows {
            let row: Vec<String> = row.iter().map(|word| word.replace("/nfs:", &nfs)).collect();
            self.tranche(&row.iter().map(String::as_str).collect::<Vec<_>>()).success();
        }
    }

    /// Waits until the teams have these numbers of GPUs, and all jobs this number of containers.
    #[track_caller]
    fn until_allocated(&self, wanted: [u32; 4], containers: usize) {
        eventually("the teams have what is theirs", || {
            let listed = self.node().tranche(&["project", "list", "--json"]).success();
            let projects: Vec<Project> = serde_json::from_str(&listed).unwrap();
            let has: BTreeMap<&str, u32> =
                projects.iter().map(|project| (project.name.as_str(), project.allocated)).collect();
            let has = ["team-a", "team-b", "team-c", "team-d"].map(|team| has[team] / 1000);
            let running = self.podman(&["ps", "--format", "{{.Names}}"]).success();
            let failed: Vec<_> = self.jobs().into_iter().filter(|job| job.state == "failed").collect();
            assert!(failed.is_empty(), "{failed:?}");
            let count = running.lines().count();
            if (has, count) == (wanted, containers) {
                Ok(())
            } else {
                Err(format!("{has:?}, {count} containers"))
            }
        });
    }
}

#[test]
fn submit_commands_of_the_seed_documents_run_as_documented() {
    let rows = commands();
    assert_eq!(rows.len(), 22, "{rows:#?}");
    if Command::new("slirp4netns").arg("--version").output().is_err() {
        return skip(
            "there is no slirp4netns here (Debian: slirp4netns), which publishes ports of rootless containers",
        );
    }
    let Some(users) = Users::on("v100x16", "1") else { return };
    users.node().tranche(&["project", "delete", "a"]).success();
    let uid = Launched::ALICE.to_string();
    for (team, quota) in [("team-a", "4"), ("team-b", "2"), ("team-c", "2"), ("team-d", "8")] {
        users.node().tranche(&["project", "create", team, "--quota", quota, "--member", &uid]).success();
    }
    users.folder("nfs");
    let archive = users.launched.path("glibc.tar").display().to_string();
    for (name, script) in IMAGES {
        let command = format!("CMD {}", serde_json::json!(["sh", "-c", script]));
        users.podman(&["import", "-q", "--change", &command, &archive, name]).success();
    }
    users.podman(&["rmi", IMAGE]).success();
    // TR-4858, 4.8: all teams have theirs, and b and c borrow.
    users.submit_rows(&rows[..13]);
    users.until_allocated([4, 4, 4, 4], 13);
    // 4.9: d takes its quota back.
    users.submit_rows(&rows[13..15]);
    users.until_allocated([4, 2, 2, 8], 13);
    // 4.10: no team has a claim on more.
    users.submit_rows(&rows[15..19]);
    users.until_allocated([4, 2, 2, 8], 13);
    users.tranche(&["delete", "-p", "team-d", "d-1-gggg", "d-2-gg", "d-3-gg"]).success();
    users.until_allocated([8, 4, 4, 0], 14);
    for job in users.jobs() {
        let team = format!("team-{}", &job.name[..1]);
        users.tranche(&["delete", "-p", &team, &job.name]).success();
    }
    users.assert_nothing_left();
    // Dell's.
    users.submit_rows(&rows[19..]);
    eventually("the search has ended", || match users.jobs().into_iter().find(|job| job.name == "hpo1") {
        Some(job) if job.state == "succeeded" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    for index in 0..4 {
        assert!(users.launched.path("nfs").join(index.to_string()).exists(), "{index}");
    }
    let gpus = users.node().smi().gpus;
    let shared = gpus.iter().filter(|gpu| gpu.committed.get() > 0).count();
    assert_eq!(shared, 1, "the halves are on one GPU");
    for name in ["frac05", "frac03", "hpo1"] {
        users.tranche(&["delete", "-p", "team-d", name]).success();
    }
    users.assert_nothing_left();
}
