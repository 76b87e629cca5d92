//! Every command of `docs/tour.md` does on a simulated node what the page states.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use e2e::Stage;

const TOUR: &str = include_str!("../../../../docs/tour.md");

/// A command, with what its output has to contain.
struct Step<'a> {
    command: &'a str,
    expected: Vec<&'a str>,
}

/// The commands of each section that has any.
fn sections() -> Vec<(&'static str, Vec<Step<'static>>)> {
    let sections = TOUR.split("\n## ").skip(1);
    let section = |text: &'static str| {
        let title = text.lines().next().unwrap_or_default();
        let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
        let mut steps: Vec<Step> = Vec::new();
        for line in blocks.flat_map(str::lines) {
            match line.strip_prefix("#> ") {
                None => steps.push(Step { command: line, expected: Vec::new() }),
                Some(words) => steps.last_mut().expect("a command is before its output").expected.push(words),
            }
        }
        (title, steps)
    };
    sections.map(section).collect()
}

/// A command as a line of the session, which repeats it for up to ten seconds.
///
/// It ends once the output has what the page has: a person types slower than jobs are placed.
fn line(step: &Step) -> String {
    let holds = |words: &&str| format!("grep -qF -- '{}' ~/printed", words.replace('\'', r"'\''"));
    let holds: Vec<String> = step.expected.iter().map(holds).collect();
    let ends = if holds.is_empty() { "true".to_owned() } else { holds.join(" && ") };
    format!(
        "for _ in {{1..50}}; do {{ {}\n}} >~/printed 2>&1; status=$?; {ends} && break; sleep 0.2; done\n\
         cat ~/printed; echo \"@@ $status\"\n",
        step.command
    )
}

/// Output of each command in a session of its own on a new simulated node.
fn play(steps: &[Step]) -> Vec<(String, String)> {
    let home = tempfile::tempdir().expect("there is room");
    let shell = home.path().join("shell");
    let each = steps.iter().map(line);
    write_program(&shell, &format!("#!/bin/bash\n{}", each.collect::<String>()));
    let mut play = Command::new(Stage::find().command());
    play.arg("play").env("SHELL", &shell).env("HOME", home.path()).current_dir(home.path());
    play.env_remove("XDG_CONFIG_HOME").stdin(Stdio::null());
    let output = play.output().expect("it can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut parts = text.split("@@ ");
    let mut printed = parts.next().unwrap_or_default().to_owned();
    let mut outputs = Vec::new();
    for part in parts {
        let (status, rest) = part.split_once('\n').unwrap_or((part, ""));
        outputs.push((std::mem::replace(&mut printed, rest.to_owned()), status.to_owned()));
    }
    assert_eq!(outputs.len(), steps.len(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    outputs
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).expect("the folder can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("the folder can be written");
}

#[test]
fn every_command_of_the_tour_does_what_the_page_states() {
    let sections = sections();
    assert_eq!(sections.len(), 3, "a section for each reader");
    for (title, steps) in sections {
        assert_eq!(steps.len(), 15, "commands of {title}");
        for (step, (output, status)) in steps.iter().zip(play(&steps)) {
            assert_eq!(status, "0", "{title}: {}\n{output}", step.command);
            for words in &step.expected {
                assert!(output.contains(words), "{title}: {} prints no {words:?}:\n{output}", step.command);
            }
        }
    }
}
