//! Job runner: runs the command of one member of a job as its submitter.
//! It keeps the output, stops the command on request, records the outcome, and outlives the daemon.
//!
//! Without arguments, a daemon starts it for the daemon's own user, and with `remove` to clean up after one that was
//! killed. The other two modes are the *job
//! launcher* of a node, started by systemd: `attest` issues tickets to submitters, and `launch` runs what a
//! ticket permits for a daemon that presents it.
#![deny(unsafe_code)]

mod account;
mod attest;
mod container;
mod descendants;
mod document;
mod engine;
mod failures;
mod health;
mod identity;
mod launch;
mod leftovers;
mod limits;
mod log;
mod member;
#[allow(unsafe_code)] // calls libpam, a C library
mod pam;
mod peer;
mod status_file;
mod supervision;
mod tickets;

use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;

use nix::unistd::{Uid, User, geteuid};
use tranche_jobs::runner_protocol::{
    CommandOrder, LaunchAnswer, LeftContainer, RunnerReady, RunnerSetup, StatusLine, receive_message,
    send_message,
};

use crate::log::Log;
use crate::status_file::{StatusFile, append_to};
use crate::supervision::Site;
use crate::tickets::Tickets;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        [] => shepherd(),
        ["attest", folder] => attest(folder),
        ["remove"] => remove(),
        ["launch", folder, keeper] => launch(folder, keeper),
        _ => Err(io::Error::other("unknown arguments")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "tranche-shepherd: {error}; it is started by tranched or by systemd, and does nothing by itself"
            );
            ExitCode::FAILURE
        }
    }
}

/// Runner started by a daemon for its own user.
fn shepherd() -> io::Result<()> {
    let daemon = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    identity::is_own(&daemon)?;
    let mut stream = BufReader::new(daemon.try_clone()?);
    let setup: RunnerSetup = receive_message(&mut stream)?;
    if setup.uid != geteuid().as_raw() {
        let (uid, own) = (setup.uid, geteuid());
        return Err(io::Error::other(format!(
            "cannot run anything as user {uid}: this process is user {own}'s"
        )));
    }
    let mut status = StatusFile::lock(append_to(&setup.attempt)?)?;
    let log = Log { to: append_to(&setup.log)?, kept: setup.kept };
    let shepherd = identity::own()?;
    let (place, unlimited) = match limits::of_service(setup.limits) {
        Ok(place) => (place, None),
        Err(why) => (None, Some(why.to_string())),
    };
    let is_refused = unlimited.is_some();
    status.write(&StatusLine::Shepherd(shepherd))?;
    send_message(&mut &daemon, &RunnerReady { shepherd, limits: setup.limits, unlimited })?;
    if is_refused {
        return Ok(());
    }
    // No order: the daemon ended or cancelled the start.
    let Ok(order) = receive_message::<CommandOrder>(&mut stream) else { return Ok(()) };
    drop((stream, daemon));
    member::run(order, status, Site { log, place }, |_, _| {})
}

/// Removes a container that a killed runner of this user left.
fn remove() -> io::Result<()> {
    let daemon = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    identity::is_own(&daemon)?;
    let left: LeftContainer = receive_message(BufReader::new(&daemon))?;
    let why = leftovers::remove(&left.name, &left.engine)?;
    send_message(&mut &daemon, &LaunchAnswer::Removed(why))
}

/// Serves submitters; standard input is the listening socket.
fn attest(folder: &str) -> io::Result<()> {
    let listener = UnixListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    attest::serve(&listener, &Tickets::open(folder.into(), geteuid())?)
}

/// Serves the daemon; standard input is one connection.
fn launch(folder: &str, keeper: &str) -> io::Result<()> {
    let daemon = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let keeper = uid_of(keeper)?;
    launch::run(&daemon, &Tickets::open(Path::new(folder).into(), keeper)?)
}

fn uid_of(name: &str) -> io::Result<Uid> {
    let user = User::from_name(name)?;
    user.map(|user| user.uid).ok_or_else(|| io::Error::other(format!("there is no user {name}")))
}
