//! Looks after one member of a job: runs its command as the user who submitted it, keeps what it prints, stops it when told
//! to, and writes down how it ended. It is started by the daemon, or by systemd for a daemon that is not the user's own, and
//! outlives it.
#![forbid(unsafe_code)]

mod identity;
mod kin;
mod log;
mod tend;

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use nix::fcntl::{Flock, FlockArg};
use tranche_jobs::flock::{Hail, Hello, Line, Order, Outcome, hear, tell};

fn main() -> ExitCode {
    match shepherd() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tranche-shepherd: {error}; it is started by tranched, and does nothing by itself");
            ExitCode::FAILURE
        }
    }
}

fn shepherd() -> io::Result<()> {
    let daemon = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    identity::is_trusted(&daemon)?;
    let mut stream = BufReader::new(daemon.try_clone()?);
    let hail: Hail = hear(&mut stream)?;
    let mut book = Book::open(&hail.attempt)?;
    let log = log::Log { to: append_to(&hail.log)?, kept: hail.kept };
    let shepherd = identity::own()?;
    book.write(&Line::Shepherd(shepherd))?;
    identity::become_user(hail.uid, hail.gid)?;
    tell(&mut &daemon, &Hello { shepherd })?;
    // Without an order nothing runs: the daemon went away, or changed its mind.
    let Ok(order) = hear::<Order>(&mut stream) else { return Ok(()) };
    // Whoever tells it to stop from now on is heard.
    let pen = tend::Pen::new()?;
    book.write(&Line::Ran)?;
    drop((stream, daemon));
    let outcome = pen.run(order, log, || drop(book.write(&Line::Told)));
    book.write(&Line::Ended(outcome.unwrap_or_else(|error| Outcome::NotStarted(error.to_string()))))
}

/// Where it writes down what happens. It is locked for as long as there is a shepherd.
struct Book(Flock<File>);

impl Book {
    fn open(path: &Path) -> io::Result<Self> {
        let locked = Flock::lock(append_to(path)?, FlockArg::LockExclusiveNonblock);
        locked.map(Self).map_err(|(_, errno)| errno.into())
    }

    /// Each line in one write, so that none is ever seen in part.
    fn write(&mut self, line: &Line) -> io::Result<()> {
        self.0.write_all(format!("{line}\n").as_bytes())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(path)
}
