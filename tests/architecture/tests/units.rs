//! The units of systemd: well-formed, narrow, and each line of hardening with its reason.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The most exposure a service may have, in tenths, as `systemd-analyze security` counts.
const MOST_EXPOSURE: &str = "30";
/// The same for members of jobs: programs of users, which need what users need, and delegation.
const MOST_EXPOSURE_OF_JOBS: &str = "43";
/// The services that stay.
const SERVICES: [&str; 4] =
    ["tranched.service", "tranche-deviceplugin.service", "tranche-attest.service", "tranche-page.service"];
/// Started once for each member of a job.
const JOBS: &str = "tranche-job@.service";

fn units() -> PathBuf {
    architecture::root().join("systemd")
}

/// Runs systemd's judge; nothing where there is none and none is required.
fn analyze(arguments: &[&str]) -> Option<Output> {
    match Command::new("systemd-analyze").args(arguments).output() {
        Ok(output) => Some(output),
        Err(error) => {
            assert!(
                std::env::var("TRANCHE_REQUIRE").as_deref() != Ok("all"),
                "skipped, but TRANCHE_REQUIRE=all: systemd-analyze: {error}"
            );
            eprintln!("SKIP: systemd-analyze: {error}");
            None
        }
    }
}

#[track_caller]
fn is_content(output: &Output) {
    let said = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
    assert!(output.status.success(), "{}", said.concat());
}

/// The units as they would be installed under a folder, with programs that can be run.
fn installed(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(units()).expect("there is a folder of units");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    let is_unit = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "service" || kind == "socket");
    let install = |path: PathBuf| {
        let template = path.file_name().expect("a unit has a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("a unit is text");
        let text = text.replace("=/usr/", "=/bin/true /usr/");
        // A socket looks for the template of what it starts; what is verified is an instance.
        fs::write(folder.join(&template), &text).expect("the folder can be written");
        let to = folder.join(template.replace("@.", "@half."));
        fs::write(&to, text).expect("the folder can be written");
        to.to_string_lossy().into_owned()
    };
    paths.filter(is_unit).map(install).collect()
}

#[test]
fn systemd_has_nothing_to_say_against_the_units() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("units");
    fs::create_dir_all(&folder).expect("the folder can be made");
    let units = installed(&folder);
    assert_eq!(units.len(), 9, "{units:?}");
    let mut arguments = vec!["verify", "--man=no", "--recursive-errors=yes"];
    arguments.extend(units.iter().map(String::as_str));
    if let Some(output) = analyze(&arguments) {
        is_content(&output);
    }
}

#[test]
fn no_service_is_more_exposed_than_it_may_be() {
    let bounds = SERVICES.map(|service| (service, MOST_EXPOSURE));
    for (service, most) in bounds.into_iter().chain([(JOBS, MOST_EXPOSURE_OF_JOBS)]) {
        let path = units().join(service);
        let threshold = format!("--threshold={most}");
        let arguments =
            ["security", "--offline=true", "--no-pager", &threshold, path.to_str().expect("it is text")];
        if let Some(output) = analyze(&arguments) {
            is_content(&output);
        }
    }
}

#[test]
fn each_line_of_hardening_has_its_reason() {
    for service in SERVICES.into_iter().chain([JOBS]) {
        let text = fs::read_to_string(units().join(service)).expect("a unit is text");
        let service_lines = text.lines().skip_while(|line| *line != "[Service]").skip(1);
        let mut reasoned = false;
        let usual = ["Type=", "ExecStart=", "Restart=", "RestartSec="];
        for line in service_lines.take_while(|line| !line.starts_with('[')) {
            match line {
                "" => reasoned = false,
                comment if comment.starts_with('#') => reasoned = true,
                _ if usual.iter().any(|usual| line.starts_with(usual)) => {}
                directive => assert!(reasoned, "{service}: {directive} has no reason above it"),
            }
        }
    }
}
