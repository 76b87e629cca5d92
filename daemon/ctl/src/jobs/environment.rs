//! What of this process's environment a job begins with.

use std::env;

use crate::errors::Failure;

/// What a program needs to find others and its home, when nothing else is to be taken along.
const FEW: [&str; 6] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "SHELL"];

/// Variables that lead a program into a slice, and are the job's own.
fn is_ours(name: &str) -> bool {
    name.starts_with("TRANCHE_") || name == "CUDA_VISIBLE_DEVICES"
}

/// All that are set here, or few, and those that are asked for.
pub(super) fn of_job(asked: &[String], clean: bool) -> Result<Vec<(String, String)>, Failure> {
    let inherited = env::vars_os().filter_map(|(name, value)| {
        // One that is no text could not be written down; the shells' own functions are no loss.
        Some((name.into_string().ok()?, value.into_string().ok()?))
    });
    let wanted = |name: &str| !is_ours(name) && (!clean || FEW.contains(&name));
    let mut variables: Vec<_> = inherited.filter(|(name, _)| wanted(name)).collect();
    for variable in asked {
        let (name, value) = asked_for(variable)?;
        variables.retain(|(known, _)| *known != name);
        variables.push((name, value));
    }
    Ok(variables)
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
    fn what_is_asked_for_replaces_what_is_there() {
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
