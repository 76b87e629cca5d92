//! Environments of jobs and of commands that join them.

use std::env;
use std::ffi::OsString;

use nix::unistd::geteuid;
use tranche_domain::id::HostPid;

use crate::errors::Failure;

/// Variables kept by `--clean-env`: paths, user and locale.
const FEW: [&str; 6] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "SHELL"];

/// Variables that attach a program to a slice, which the job gets from its own.
fn is_ours(name: &str) -> bool {
    name.starts_with("TRANCHE_") || name == "CUDA_VISIBLE_DEVICES"
}

/// This environment, or the basic variables only, with the requested variables.
pub(super) fn of_job(asked: &[String], clean: bool) -> Result<Vec<(String, String)>, Failure> {
    let inherited = env::vars_os().filter_map(|(name, value)| {
        // Values that are not UTF-8, mostly exported shell functions, are left out.
        Some((name.into_string().ok()?, value.into_string().ok()?))
    });
    let asked = named(asked)?;
    let is_asked = |name: &str| asked.iter().any(|(known, _)| known == name);
    let wanted = |name: &str| !is_ours(name) && !is_asked(name) && (!clean || FEW.contains(&name));
    let kept: Vec<_> = inherited.filter(|(name, _)| wanted(name)).collect();
    Ok(kept.into_iter().chain(asked).collect())
}

/// The requested variables alone, each once.
pub(super) fn named(asked: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let mut variables: Vec<(String, String)> = Vec::new();
    for variable in asked {
        let (name, value) = asked_for(variable)?;
        variables.retain(|(known, _)| *known != name);
        variables.push((name, value));
    }
    Ok(variables)
}

/// Variables of a terminal, which a command in a job gets from its own.
const OF_TERMINAL: [&str; 2] = ["TERM", "COLORTERM"];

/// Environment of the program that a job runner started, with this terminal's variables. `None` if it cannot be read, or
/// is another user's: with their PATH and libraries, root's command would run what they put there.
pub(super) fn of_member(runner: HostPid) -> Option<Vec<(OsString, OsString)>> {
    let runner = runner.get().cast_signed();
    let mut processes = procfs::process::all_processes().ok()?.flatten();
    let program = processes.find(|process| process.stat().is_ok_and(|stat| stat.ppid == runner))?;
    let status = program.status().ok()?;
    let own = geteuid().as_raw();
    if [status.ruid, status.euid, status.suid] != [own; 3] {
        return None;
    }
    let is_terminal_s = |name: &OsString| OF_TERMINAL.iter().any(|known| name == known);
    let of_job = program.environ().ok()?.into_iter().filter(|(name, _)| !is_terminal_s(name));
    let here = env::vars_os().filter(|(name, _)| is_terminal_s(name));
    Some(of_job.chain(here).collect())
}

fn asked_for(variable: &str) -> Result<(String, String), Failure> {
    if let Some((name, value)) = variable.split_once('=') {
        return Ok((name.into(), value.into()));
    }
    let missing = || {
        Failure::Environment(format!("{variable} is not set here: say what it is to be, {variable}=VALUE"))
    };
    env::var(variable).map(|value| (variable.into(), value)).map_err(|_| missing())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_variables_override_the_environment() {
        let variables = of_job(&["PATH=/x".into(), "A=b=c".into()], true).unwrap();
        let values = |wanted: &str| -> Vec<String> {
            let known = variables.iter().filter(|(name, _)| name == wanted);
            known.map(|(_, value)| value.clone()).collect()
        };
        assert_eq!((values("PATH"), values("A")), (vec!["/x".to_owned()], vec!["b=c".to_owned()]));
        assert!(variables.iter().all(|(name, _)| name == "A" || FEW.contains(&name.as_str())));
        let missing = of_job(&["NO_SUCH_VARIABLE".into()], false).unwrap_err().to_string();
        assert!(missing.contains("NO_SUCH_VARIABLE=VALUE"), "{missing}");
    }
}
