//! Files with jobs, in TOML, whose keys are the long options of `tranche submit`.
//!
//! Each table becomes the arguments of one `tranche submit`, so that a file has the options, values and errors of the
//! command line, and no second list of them.

use std::path::{Path, PathBuf};

use clap::{Args, FromArgMatches};
use toml::{Table, Value};

use crate::cli::SubmitArgs;

/// Keys that are no long option: the position of the name, and the program with its arguments.
const NAME: &str = "name";
const COMMAND: &str = "command";

/// Reason for which a file with jobs was rejected; no job of it was submitted.
#[derive(Debug, thiserror::Error)]
pub enum JobFileError {
    /// The file could not be read.
    #[error("cannot read the jobs of {}: {cause}", .path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the read.
        cause: std::io::Error,
    },
    /// The file is no TOML, or a table is no job.
    #[error("{}: {why}; no job of it was submitted", .path.display())]
    Invalid {
        /// Path of the file.
        path: PathBuf,
        /// Table or line, and what is invalid there.
        why: String,
    },
}

/// Arguments of each job of a file. What the command line has beside the file holds for jobs that do not set it.
pub(super) fn jobs(path: &Path, line: &SubmitArgs) -> Result<Vec<SubmitArgs>, JobFileError> {
    let text =
        std::fs::read_to_string(path).map_err(|cause| JobFileError::Read { path: path.into(), cause })?;
    let jobs = parse(&text).map_err(|why| JobFileError::Invalid { path: path.into(), why })?;
    let completed = |mut job: SubmitArgs| {
        job.project = job.project.or_else(|| line.project.clone());
        job.output.json |= line.output.json;
        job
    };
    Ok(jobs.into_iter().map(completed).collect())
}

fn parse(text: &str) -> Result<Vec<SubmitArgs>, String> {
    let mut file: Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let jobs = file.remove("job").ok_or("it has no job: each is a table [[job]]")?;
    if let Some(key) = file.keys().next() {
        return Err(format!("{key:?} is outside of a job: each job is a table [[job]]"));
    }
    let Value::Array(jobs) = jobs else { return Err("job is no list of tables: write [[job]]".into()) };
    let numbered = jobs.iter().enumerate();
    numbered.map(|(at, job)| one(job).map_err(|why| format!("job {}: {why}", at + 1))).collect()
}

fn one(job: &Value) -> Result<SubmitArgs, String> {
    let job = job.as_table().ok_or("it is no table")?;
    let parser = SubmitArgs::augment_args(clap::Command::new("job")).no_binary_name(true);
    known(job, &parser)?;
    let (mut options, mut name, mut command) = (Vec::new(), None, Vec::new());
    for (key, value) in job {
        match (key.as_str(), value) {
            (NAME, value) => name = Some(word(key, value)?),
            (COMMAND, Value::Array(words)) => {
                command = words.iter().map(|value| word(key, value)).collect::<Result<_, _>>()?;
            }
            (COMMAND, _) => {
                return Err("command is a list of words, such as [\"python\", \"train.py\"]".into());
            }
            ("file", _) => return Err("a file with jobs names no other file".into()),
            (_, Value::Boolean(set)) => options.extend(set.then(|| format!("--{key}"))),
            (_, Value::Array(values)) => {
                for value in values {
                    options.push(format!("--{key}={}", word(key, value)?));
                }
            }
            (_, value) => options.push(format!("--{key}={}", word(key, value)?)),
        }
    }
    let separator = (!command.is_empty()).then(|| "--".to_owned());
    let arguments = options.into_iter().chain(name).chain(separator).chain(command);
    let matches = parser.try_get_matches_from(arguments);
    matches.and_then(|matches| SubmitArgs::from_arg_matches(&matches)).map_err(|error| plain(&error))
}

/// Refuses keys that are no option, with those that begin alike.
fn known(job: &Table, parser: &clap::Command) -> Result<(), String> {
    let options = parser.get_arguments().filter_map(|option| option.get_long());
    let keys: Vec<&str> = options.chain([NAME, COMMAND]).collect();
    let Some(key) = job.keys().find(|key| !keys.contains(&key.as_str())) else { return Ok(()) };
    let begins = |known: &&&str| key.get(..2).is_some_and(|begin| known.starts_with(begin));
    let alike: Vec<&str> = keys.iter().filter(begins).copied().collect();
    let alike = if alike.is_empty() { String::new() } else { format!("; there are {}", alike.join(", ")) };
    Err(format!(
        "{key:?} is no key of a job: the keys are name, command and the long options of `tranche submit`{alike}"
    ))
}

/// A value as a word of a command line.
fn word(key: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        _ => Err(format!("{key} has a value that no option takes: {value}")),
    }
}

/// The parser's error without its prefix and usage.
fn plain(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let first = text.split("\n\n").next().unwrap_or(text);
    first.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOBS: &str = r#"
        [[job]]
        name = "prepare"
        gpus = 0.25
        command = ["sh", "-c", "python prepare.py --all"]

        [[job]]
        gpus = 2
        after = ["prepare"]
        env = ["A=1", "B"]
        gang = true
        interactive = false
        retries = 2
        max-runtime = "12h"
        command = ["python", "train.py", "--lr=0.1"]
    "#;

    #[test]
    fn tables_are_submissions_with_the_options_of_the_command_line() {
        let jobs = parse(JOBS).unwrap();
        let [prepare, train] = &jobs[..] else { panic!("{jobs:?}") };
        assert_eq!(prepare.name.as_ref().unwrap().as_str(), "prepare");
        assert_eq!(prepare.command, ["sh", "-c", "python prepare.py --all"]);
        assert_eq!(
            (train.name.is_none(), train.gang, train.interactive, train.retries),
            (true, true, false, 2)
        );
        assert_eq!((train.after.len(), &train.env[..]), (1, &["A=1".to_owned(), "B".to_owned()][..]));
        assert_eq!(train.command, ["python", "train.py", "--lr=0.1"]);
    }

    #[test]
    fn invalid_file_is_rejected_with_the_place_and_the_reason() {
        let cases = [
            ("[[job]\n", "line 1"),
            ("", "[[job]]"),
            ("gpus = 1\n[[job]]\ngpus = 1\n", "outside"),
            ("[job]\ngpus = 1\n", "[[job]]"),
            ("[[job]]\ngpus = 1\ncommand = \"train\"\n", "list of words"),
            ("[[job]]\ngpus = 1\ncommand = [\"a\"]\n[[job]]\ngpu = 1\ncommand = [\"a\"]\n", "job 2"),
            ("[[job]]\ngpus = 1\nspeed = 1\ncommand = [\"a\"]\n", "\"speed\" is no key"),
            ("[[job]]\ngpus = 1\ncomand = [\"a\"]\n", ", command"),
            ("[[job]]\ncommand = [\"a\"]\n", "--gpus"),
            ("[[job]]\ngpus = 1\n", "CMD"),
            ("[[job]]\ngpus = -1\ncommand = [\"a\"]\n", "-1"),
            ("[[job]]\ngpus = 1\nfile = \"x\"\ncommand = [\"a\"]\n", "no other file"),
            ("[[job]]\ngpus = {a = 1}\ncommand = [\"a\"]\n", "no option takes"),
            ("[[job]]\ngpus = 1\nname = \"Big_Name\"\ncommand = [\"a\"]\n", "name of a job"),
        ];
        for (text, part) in cases {
            let why = parse(text).unwrap_err();
            assert!(why.contains(part), "{text:?}: {why}");
        }
    }
}
