//! The command line with grouped commands and examples in its help.

mod examples;
mod words;

use std::ffi::OsString;
use std::fmt::Write;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches};

use crate::cli::Cli;
pub use examples::{Example, examples};
use words::advice;

/// Headings of the commands in `tranche --help`.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run programs", &["run", "submit", "exec", "bash"]),
    ("Jobs", &["list", "describe", "logs", "notify", "suspend", "resume", "delete"]),
    ("Who has what", &["smi", "top", "history", "report", "events"]),
    ("GPUs, slices and quota", &["slice", "gpu", "project"]),
    ("The node", &["doctor", "config", "demo", "play"]),
];
/// Heading of commands that are in no group.
const OTHERS: &str = "Other commands";

/// Parses a command line.
///
/// # Errors
/// The parser's answer, which may be help. A command of another program is answered with the one to use.
pub fn parse(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Cli, clap::Error> {
    let matches = command().try_get_matches_from(args).map_err(|error| advised(&error).unwrap_or(error))?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command()))
}

/// The error with advice, for a command that exists in other programs.
fn advised(error: &clap::Error) -> Option<clap::Error> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let text = format!("there is no command '{word}': {}\n", advice(word)?);
    Some(clap::Error::raw(ErrorKind::InvalidSubcommand, text))
}

/// Commands under the same heading as this one.
pub fn relatives(name: &str) -> &'static [&'static str] {
    GROUPS.iter().find(|(_, names)| names.contains(&name)).map_or(&[], |(_, names)| names)
}

/// The definition of the command line, the source of parsing, help, completions and man pages.
pub fn command() -> Command {
    let command = with_examples(Cli::command(), "tranche");
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}{{after-help}}\n",
        groups(&command)
    );
    command.help_template(template)
}

fn with_examples(command: Command, page: &str) -> Command {
    let command = command.mut_subcommands(|sub| {
        let page = format!("{page}-{}", sub.get_name());
        with_examples(sub, &page)
    });
    match examples(page).as_slice() {
        [] => command,
        some => command.after_help(some.iter().fold("Examples:".to_owned(), |text, (line, remark)| {
            text + &format!("\n  # {remark}\n  {line}")
        })),
    }
}

/// The commands under their headings, each with the first line of its help.
fn groups(command: &Command) -> String {
    let shown: Vec<&Command> = command.get_subcommands().filter(|sub| !sub.is_hide_set()).collect();
    let width = shown.iter().map(|sub| sub.get_name().len()).max().unwrap_or(0);
    let named = |name: &str| shown.iter().find(|sub| sub.get_name() == name).copied();
    let grouped = GROUPS
        .iter()
        .map(|(heading, names)| (*heading, names.iter().filter_map(|name| named(name)).collect()));
    let is_grouped = |sub: &&&Command| GROUPS.iter().any(|(_, names)| names.contains(&sub.get_name()));
    let others: Vec<&Command> = shown.iter().filter(|sub| !is_grouped(sub)).copied().collect();
    let mut text = String::new();
    for (heading, commands) in grouped.chain([(OTHERS, others)]).filter(|(_, commands)| !commands.is_empty())
    {
        let _ = writeln!(text, "{heading}:"); // infallible for a String
        for sub in commands {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {:width$}  {about}", sub.get_name());
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of an example, without a shell's quotes.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut is_quoted = false;
        for letter in line.chars() {
            match letter {
                '\'' => is_quoted = !is_quoted,
                ' ' if !is_quoted => words.push(String::new()),
                _ => words.last_mut().unwrap().push(letter),
            }
        }
        words
    }

    /// Pages of the commands without further commands.
    fn leaves(command: &Command, page: &str) -> Vec<String> {
        if !command.has_subcommands() {
            return vec![page.to_owned()];
        }
        let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        shown.flat_map(|sub| leaves(sub, &format!("{page}-{}", sub.get_name()))).collect()
    }

    /// Command lines of all commands, each with one option that has this value.
    fn with_each_option(command: &Command, path: &[String], value: &str) -> Vec<Vec<String>> {
        let options = command.get_arguments().filter(|arg| arg.get_action().takes_values());
        let options = options.filter_map(|arg| Some(format!("--{}={value}", arg.get_long()?)));
        let own = options.map(|option| path.iter().cloned().chain([option]).collect());
        let subs = command.get_subcommands().flat_map(|sub| {
            let path = [path, &[sub.get_name().to_owned()]].concat();
            with_each_option(sub, &path, value)
        });
        own.chain(subs).collect()
    }

    #[test]
    fn no_option_answers_with_the_raw_message_of_a_parser() {
        for value in ["x", "", "0", "-1", "0.5", "99999999999999999999"] {
            for line in with_each_option(&Cli::command(), &["tranche".to_owned()], value) {
                let answer = parse(line.clone()).err().map(|error| error.to_string()).unwrap_or_default();
                for raw in
                    ["invalid digit", "would be zero", "number too", "empty string", "invalid float", "..="]
                {
                    assert!(!answer.contains(raw), "{}: {answer}", line.join(" "));
                }
            }
        }
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        for page in leaves(&Cli::command(), "tranche").iter().map(String::as_str).chain(["tranche"]) {
            let examples = examples(page);
            assert!((1..=5).contains(&examples.len()), "{page} has {} examples", examples.len());
            for (line, remark) in examples {
                if let Err(error) = parse(words(line)) {
                    panic!("{line}\n{error}");
                }
                let start = page.replace('-', " ").replace("forget reserves", "forget-reserves");
                assert!(
                    line.starts_with(&start) && line.len() <= 90 && remark.len() <= 78,
                    "{line} # {remark}"
                );
            }
        }
    }

    #[test]
    fn definition_is_consistent_and_groups_are_complete() {
        command().debug_assert();
        let help = command().render_help().to_string();
        for (heading, _) in GROUPS {
            assert!(help.contains(&format!("\n{heading}:\n")), "{help}");
        }
        assert!(!help.contains(OTHERS), "a group of {} lacks a command:\n{help}", file!());
        assert!(help.lines().all(|line| line.len() <= 100) && help.contains("--socket"), "{help}");
    }

    #[test]
    fn words_of_other_programs_lead_to_commands_here() {
        for (line, same) in [
            ("tranche ls -A", "list"),
            ("tranche ps", "list"),
            ("tranche get", "list"),
            ("tranche rm a", "delete"),
        ] {
            let matches = command().try_get_matches_from(words(line)).unwrap();
            assert_eq!(matches.subcommand_name(), Some(same));
        }
        for (word, there) in
            [("stop", "suspend"), ("cancel", "delete"), ("wait", "logs -f"), ("attach", "bash")]
        {
            let error = parse(["tranche", word, "a"]).unwrap_err();
            assert!(
                error.use_stderr() && error.to_string().contains(&format!("`tranche {there}")),
                "{error}"
            );
        }
        assert!(parse(["tranche", "lits"]).unwrap_err().to_string().contains("'list'"));
    }
}
