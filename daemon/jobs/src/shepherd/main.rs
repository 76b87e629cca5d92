//! Looks after one member of a job: runs its command as the user who submitted it, keeps what it prints, stops it when told
//! to, and writes down how it ended. It outlives the daemon.
//!
//! Without arguments it is started by a daemon for the daemon's own user. The other two are the *job launcher* of a node,
//! started by systemd: `attest` gives submitters tickets for what they let it run, `launch` runs what a ticket says for a
//! daemon that presents it.
#![deny(unsafe_code)]

mod account;
mod attest;
mod book;
mod identity;
mod kin;
mod launch;
mod log;
mod member;
#[allow(unsafe_code)] // asks libpam, which speaks C
mod pam;
mod peer;
mod tend;
mod tickets;

use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;

use nix::unistd::{Uid, User, geteuid};
use tranche_jobs::flock::{Hail, Hello, Order, hear, tell};

use crate::book::{Book, append_to};
use crate::log::Log;
use crate::tickets::Tickets;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        [] => shepherd(),
        ["attest", folder] => attest(folder),
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

/// A daemon's own user's.
fn shepherd() -> io::Result<()> {
    let daemon = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    identity::is_own(&daemon)?;
    let mut stream = BufReader::new(daemon.try_clone()?);
    let hail: Hail = hear(&mut stream)?;
    if hail.uid != geteuid().as_raw() {
        let (uid, own) = (hail.uid, geteuid());
        return Err(io::Error::other(format!(
            "cannot run anything as user {uid}: this process is user {own}'s"
        )));
    }
    let mut book = Book::open(&hail.attempt)?;
    let log = Log { to: append_to(&hail.log)?, kept: hail.kept };
    let shepherd = identity::own()?;
    book.note_shepherd(shepherd)?;
    tell(&mut &daemon, &Hello { shepherd })?;
    // Without an order nothing runs: the daemon went away, or changed its mind.
    let Ok(order) = hear::<Order>(&mut stream) else { return Ok(()) };
    drop((stream, daemon));
    member::run(order, book, log, |_, _| {})
}

/// The submitters' side of the launcher; standard input listens.
fn attest(folder: &str) -> io::Result<()> {
    let listener = UnixListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    attest::serve(&listener, &Tickets::open(folder.into(), geteuid())?)
}

/// The daemon's side of the launcher; standard input is one connection.
fn launch(folder: &str, keeper: &str) -> io::Result<()> {
    let daemon = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let keeper = uid_of(keeper)?;
    launch::run(&daemon, &Tickets::open(Path::new(folder).into(), keeper)?)
}

fn uid_of(name: &str) -> io::Result<Uid> {
    let user = User::from_name(name)?;
    user.map(|user| user.uid).ok_or_else(|| io::Error::other(format!("there is no user {name}")))
}
