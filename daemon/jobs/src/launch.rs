//! How a shepherd is started: by the daemon itself for its own user, and by systemd for everybody's.

use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use tranche_domain::slice::ProcessId;

use crate::entry::Owner;
use crate::flock::{Hail, Hello, Order, hear, tell};

/// How long a shepherd may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where shepherds come from.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The program, for members that run as the daemon's own user.
    pub program: PathBuf,
    /// Where systemd starts them as whoever they are to be; where there is no such socket, only the daemon's own user can
    /// have jobs.
    pub socket: PathBuf,
}

/// A shepherd that waits for its order.
#[derive(Debug)]
pub(crate) struct Shepherd {
    pub(crate) process: ProcessId,
    stream: UnixStream,
}

impl Launcher {
    /// Starts a shepherd; it waits for its order.
    pub(crate) fn start(&self, hail: &Hail) -> Result<Shepherd, String> {
        let stream = self.connect(Owner { uid: hail.uid, gid: hail.gid })?;
        let hello = greet(&stream, hail);
        let Hello { shepherd } =
            hello.map_err(|error| format!("the process that is to look after it did not start: {error}"))?;
        Ok(Shepherd { process: shepherd, stream })
    }

    fn connect(&self, owner: Owner) -> Result<UnixStream, String> {
        match UnixStream::connect(&self.socket) {
            Ok(stream) => return Ok(stream),
            Err(_) if owner.uid == nix::unistd::geteuid().as_raw() => {}
            Err(error) => {
                let (socket, uid) = (self.socket.display(), owner.uid);
                return Err(format!(
                    "cannot run anything as user {uid}: nobody answers at {socket} ({error}); jobs of others than the \
                     daemon's own user are started by systemd: `systemctl enable --now tranche-job.socket`"
                ));
            }
        }
        self.spawn().map_err(|error| format!("cannot start {}: {error}", self.program.display()))
    }

    fn spawn(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(&self.program);
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).process_group(0).env_clear();
        let mut child = command.spawn()?;
        // Whose child it is has to take note of its end; nothing else follows from that.
        thread::Builder::new().name("shepherd".into()).spawn(move || child.wait())?;
        Ok(ours)
    }
}

fn greet(stream: &UnixStream, hail: &Hail) -> io::Result<Hello> {
    stream.set_read_timeout(Some(PATIENCE))?;
    tell(&mut &*stream, hail)?;
    hear(BufReader::new(stream))
}

impl Shepherd {
    /// Lets it begin.
    pub(crate) fn order(self, order: &Order) -> Result<ProcessId, String> {
        tell(&mut &self.stream, order).map_err(|error| format!("cannot tell it what to run: {error}"))?;
        Ok(self.process)
    }
}
