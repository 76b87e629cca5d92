//! Stops of the program, which a shell with job control has to see in its child, which is this process.
//!
//! Law: this process stops itself only in the foreground of a terminal, where a shell waits for its stop. Elsewhere
//! nothing does, and a program that is stopped, and then killed or continued by its pid, would leave this process stopped
//! and the slice in use.

use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};
use procfs::process::Process;

/// Time between two tests of a program that has stopped.
const LOOK: Duration = Duration::from_millis(10);
/// Number of tests that have to find it stopped.
///
/// Ctrl-Z stops this process with the program, and `fg` continues both, before the first look or during it: the second
/// finds nothing to do.
const LOOKS: u32 = 2;

/// Stops this process as the program has stopped; once it is continued, continues the program.
pub(super) fn follow(program: Pid) {
    let stays = (0..LOOKS).all(|_| {
        sleep(LOOK);
        is_stopped(program)
    });
    if stays && is_job_in_foreground(program) {
        // No other signal: those are discarded where they are ignored, and in groups that no shell watches.
        let _ = kill(Pid::this(), Signal::SIGSTOP);
        continue_stopped(program);
    }
}

/// Continues the program if it is still stopped; with its process group if that is its own.
///
/// The shell continues this process's group, which the program left if it is a shell with job control itself.
fn continue_stopped(program: Pid) {
    if !is_stopped(program) {
        return;
    }
    // ESRCH: it has ended meanwhile.
    let _ = match getpgid(Some(program)) {
        Ok(group) if group == program => killpg(group, Signal::SIGCONT),
        _ => kill(program, Signal::SIGCONT),
    };
}

fn is_stopped(program: Pid) -> bool {
    Process::new(program.as_raw()).and_then(|process| process.stat()).is_ok_and(|stat| stat.state == 'T')
}

/// Tests if this process, or the program in a group of its own, is a shell's job in the foreground.
fn is_job_in_foreground(program: Pid) -> bool {
    let Ok(own) = Process::myself().and_then(|own| own.stat()) else { return false };
    let of_program = getpgid(Some(program)).map_or(own.pgrp, Pid::as_raw);
    // The leader of a session has no shell above it: no process would continue it.
    own.pid != own.session && is_foreground(own.tpgid, [own.pgrp, of_program])
}

/// Tests if one of the groups is that in the foreground; without a terminal, none is.
fn is_foreground(foreground: i32, groups: [i32; 2]) -> bool {
    foreground > 0 && groups.contains(&foreground)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_job_is_in_the_foreground_by_its_group_or_the_programs() {
        assert!(is_foreground(7, [7, 7]) && is_foreground(8, [7, 8]));
        assert!(!is_foreground(6, [7, 8]), "another job has the terminal");
        assert!(!is_foreground(-1, [7, 7]) && !is_foreground(0, [0, 0]), "there is no terminal");
    }

    #[test]
    fn stopped_program_is_continued_alone_or_with_its_group() {
        for group in [None, Some(0)] {
            let mut command = Command::new("sleep");
            command.arg("60");
            if let Some(group) = group {
                command.process_group(group);
            }
            let mut child = command.spawn().unwrap();
            let pid = Pid::from_raw(child.id().cast_signed());
            kill(pid, Signal::SIGSTOP).unwrap();
            while !is_stopped(pid) {
                sleep(LOOK);
            }
            continue_stopped(pid);
            let goes_on = (0..500).any(|_| {
                sleep(LOOK);
                !is_stopped(pid)
            });
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(goes_on, "{group:?}");
        }
    }
}
