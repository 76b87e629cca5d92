//! `tranche`: command line for slices, jobs and diagnosis.
//!
//! Law: it is a client of the daemon and decides nothing about memory, placement or limits, and it starts no
//! program outside the reach of the limits.
#![forbid(unsafe_code)]

pub mod cli;
pub mod client;
pub mod complete;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod errors;
pub mod events;
pub mod generate;
pub mod gpu;
pub mod help;
pub mod jobs;
pub mod listing;
pub mod notify;
pub mod out;
pub mod owners;
pub mod room;
pub mod run;
#[cfg(test)]
#[path = "tests/sample.rs"]
mod sample;
pub mod slice;
pub mod smi;
pub mod table;
pub mod terminal;
pub mod top;
pub mod users;
pub mod waiting;
pub mod when;

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap_complete::env::CompleteEnv;
use tranche_domain::text::visible_bytes;

use cli::{Cli, Command};
use errors::Failure;
use when::Clock;

/// Maximum length of an argument repeated in an error, in characters.
const LONGEST_WORD: usize = 200;

/// Parses the command line, carries it out, and returns the exit status.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let completion = CompleteEnv::with_factory(complete::completing).var(complete::VARIABLE);
    match completion.try_complete(args.iter().cloned(), env::current_dir().ok().as_deref()) {
        Ok(false) => (),
        // A shell in the middle of a line has no use for an error.
        Ok(true) | Err(_) => return ExitCode::SUCCESS,
    }
    let cli = match help::parse(&args) {
        Ok(cli) => cli,
        Err(answer) => {
            // Arguments with invisible characters are repeated in escaped form.
            let answer = in_visible_words(&args).unwrap_or_else(|| not_visible(&answer));
            // A closed pipe while printing help is no error.
            let _ = answer.print();
            return ExitCode::from(u8::try_from(answer.exit_code()).unwrap_or(2));
        }
    };
    match carry_out(cli) {
        Ok(status) => ExitCode::from(status),
        Err(failure) if failure.is_reader_gone() => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_told() {
                eprintln!("tranche: {}", out::visible_lines(&failure.to_string()));
            }
            ExitCode::from(failure.exit_status())
        }
    }
}

/// The parser's error for the escaped arguments.
/// The error repeats the arguments, which may be untrusted.
fn in_visible_words(args: &[OsString]) -> Option<clap::Error> {
    let shown = args.iter().map(|word| visible_bytes(word.as_bytes(), LONGEST_WORD));
    help::parse(shown).err()
}

/// The parser's error without the arguments, for those that cannot be repeated.
fn not_visible(answer: &clap::Error) -> clap::Error {
    let about = if answer.use_stderr() {
        "a word of the command line has characters that are not visible\n".to_owned()
    } else {
        answer.render().to_string()
    };
    clap::Error::raw(answer.kind(), about)
}

fn carry_out(cli: Cli) -> Result<u8, Failure> {
    let socket = client::socket(cli.socket);
    let clock = if cli.utc { Clock::Utc } else { Clock::Local };
    match cli.command {
        Command::Run(args) => return run::run(&args, &socket),
        Command::Slice(command) => slice::slice(command, clock, &socket)?,
        Command::Gpu(command) => gpu::gpu(command, &socket)?,
        Command::Submit(args) => jobs::submit(&args, &socket)?,
        Command::List(args) => jobs::list(&args, &socket)?,
        Command::Describe(args) => jobs::describe(&args, clock, &socket)?,
        Command::Logs(args) => jobs::logs(&args, &socket)?,
        Command::Exec(args) => return jobs::exec(args, &socket),
        Command::Bash(args) => return jobs::bash(args, &socket),
        Command::Suspend(args) => jobs::suspend(&args, true, &socket)?,
        Command::Resume(args) => jobs::suspend(&args, false, &socket)?,
        Command::Delete(args) => jobs::delete(&args, &socket)?,
        Command::History(args) => jobs::history(&args, clock, &socket)?,
        Command::Report(args) => jobs::report(&args, clock, &socket)?,
        Command::Project(command) => jobs::project(command, &socket)?,
        Command::Config(command) => config::config(command, &socket)?,
        Command::Smi(args) => smi::smi(&args, clock, &socket)?,
        Command::Top(args) => return top::top(&args, &socket),
        Command::Events(args) => events::events(&args, clock, &socket)?,
        Command::Notify(args) => notify::notify(&args, &socket)?,
        Command::Demo(args) => return Err(demo::demo(&args).into()),
        Command::Play => return Err(demo::play().into()),
        Command::Doctor(args) => doctor::doctor(&args, &socket)?,
        Command::Generate(args) => generate::generate(&args)?,
    }
    Ok(0)
}
