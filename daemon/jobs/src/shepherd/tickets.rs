//! Store of the launcher: what each submitter attested, and the outcome of each member.
//!
//! The folder belongs to a separate user, the *keeper*: without CAP_DAC_OVERRIDE not even uid 0 can access
//! it. The process that serves submitters runs as the keeper; the one that starts members runs as root and
//! assumes the keeper's file identity for each access.

mod revoked;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::fcntl::{Flock, FlockArg};
use nix::libc::O_NOFOLLOW;
use nix::sys::statvfs::statvfs;
use nix::unistd::{Uid, setfsuid};
use serde::{Deserialize, Serialize};
use tranche_domain::jobs::{Attested, TicketId};

use crate::account::SubmitterAccount;

/// Maximum number of tickets of one user; each is for one job.
const MOST_TICKETS: usize = 4096;
/// Maximum size of one user's tickets in bytes.
const MOST_BYTES: u64 = 64 << 20;
/// Maximum size of a ticket in bytes.
const LONGEST_TICKET: u64 = 8 << 20;
/// Free disk space in bytes below which tickets are refused.
const RESERVE: u64 = 64 << 20;
/// Validity of a ticket in seconds, regardless of the job's progress: 180 days.
pub(crate) const VALID_S: u64 = 180 * 24 * 3600;
/// Failed starts permitted beyond the retries.
/// The daemon does not count failures during a requested stop.
const SLACK: usize = 8;

const FILE: &str = "ticket.json";
const UNFINISHED: &str = ".new-";

/// A job that a submitter permits the launcher to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchTicket {
    version: u32,
    pub(crate) id: TicketId,
    pub(crate) uid: u32,
    /// Gid of the submitter at submission.
    pub(crate) gid: u32,
    pub(crate) account: SubmitterAccount,
    /// Machine id of the node.
    node: String,
    expires_unix_s: u64,
    pub(crate) attested: Attested,
}

impl LaunchTicket {
    const VERSION: u32 = 1;
    /// Version of tickets with a container. An earlier launcher would run the command without one.
    const VERSION_WITH_CONTAINER: u32 = 2;

    pub(crate) fn new(uid: u32, gid: u32, account: SubmitterAccount, attested: Attested) -> io::Result<Self> {
        let id = format!("{uid}-{}", nonce()?).parse().map_err(io::Error::other)?;
        let expires_unix_s = now_unix_s().saturating_add(VALID_S);
        let version =
            if attested.launch.container.is_some() { Self::VERSION_WITH_CONTAINER } else { Self::VERSION };
        Ok(Self { version, id, uid, gid, account, node: node(), expires_unix_s, attested })
    }

    /// Reason for which the ticket is void, if it is.
    pub(crate) fn void(&self, now_unix_s: u64) -> Option<String> {
        let Self { version, node: of, expires_unix_s, .. } = self;
        match () {
            () if ![Self::VERSION, Self::VERSION_WITH_CONTAINER].contains(version) => {
                Some(format!("has version {version}, which this launcher cannot read"))
            }
            () if *of != node() => Some("was made on another node".into()),
            () if now_unix_s >= *expires_unix_s => {
                Some(format!("expired after {} days", VALID_S / (24 * 3600)))
            }
            () => None,
        }
    }
}

/// Sixteen random bytes, as hexadecimal digits.
pub(crate) fn nonce() -> io::Result<String> {
    let mut random = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(crate) fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn node() -> String {
    fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().into()
}

/// Folder of tickets, and the only user that can write to it.
#[derive(Clone, Debug)]
pub(crate) struct Tickets {
    folder: PathBuf,
    keeper: Uid,
}

impl Tickets {
    /// Opens the folder after checking that only its keeper can write to it.
    pub(crate) fn open(folder: PathBuf, keeper: Uid) -> io::Result<Self> {
        let found = fs::symlink_metadata(&folder)?;
        if !found.is_dir() || found.uid() != keeper.as_raw() || found.mode() & 0o077 != 0 {
            let folder = folder.display();
            return Err(io::Error::other(format!(
                "{folder} has to be a folder of mode 0700 that belongs to uid {keeper}"
            )));
        }
        Ok(Self { folder, keeper })
    }

    /// Accesses the folder with the keeper's file permissions.
    fn as_keeper<T>(&self, work: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        // The process of the keeper has them already, and its seccomp filter may forbid setfsuid.
        if Uid::effective() == self.keeper {
            return work(&self.folder);
        }
        let before = setfsuid(self.keeper);
        // setfsuid reports no errors; the second call returns the value in force.
        if setfsuid(self.keeper) != self.keeper {
            return Err(io::Error::other(format!("cannot take the rights of uid {} to files", self.keeper)));
        }
        let done = work(&self.folder);
        setfsuid(before);
        done
    }

    /// Stores a ticket durably.
    pub(crate) fn issue(&self, ticket: &LaunchTicket) -> io::Result<()> {
        let text = serde_json::to_vec(ticket)?;
        self.as_keeper(|folder| {
            revoked::purge(folder, &owned(folder, ticket.uid)?)?;
            let (count, bytes) = used(folder, ticket.uid)?;
            if count >= MOST_TICKETS || bytes.saturating_add(text.len() as u64) > MOST_BYTES {
                return Err(io::Error::other(format!(
                    "user {} has {count} tickets that take {bytes} bytes, and may have {MOST_TICKETS} of {MOST_BYTES}: \
                     delete jobs that have ended",
                    ticket.uid
                )));
            }
            let disk = statvfs(folder)?;
            if disk.blocks_available().saturating_mul(disk.fragment_size()) < RESERVE {
                return Err(io::Error::other(format!("the disk of {} is nearly full", folder.display())));
            }
            let (unfinished, whole) = (folder.join(format!("{UNFINISHED}{}", ticket.id)), folder.join(ticket.id.as_str()));
            let written = write(&unfinished, &text).and_then(|()| fs::rename(&unfinished, &whole));
            written.inspect_err(|_| drop(fs::remove_dir_all(&unfinished)))?;
            File::open(folder)?.sync_all()
        })
    }

    /// Removes unfinished tickets of a crashed launcher, and those that were revoked long ago.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        self.as_keeper(|folder| {
            for name in names(folder)?.iter().filter(|name| name.starts_with(UNFINISHED)) {
                fs::remove_dir_all(folder.join(name))?;
            }
            revoked::purge(folder, &names(folder)?)
        })
    }

    /// The ticket with this id, if it exists and has not been revoked.
    pub(crate) fn find(&self, id: &TicketId) -> io::Result<Option<LaunchTicket>> {
        self.as_keeper(|folder| valid(&folder.join(id.as_str()), self.keeper))
    }

    /// The ticket with this id, revoked or not. It permits the removal of the job's containers.
    pub(crate) fn find_for_removal(&self, id: &TicketId) -> io::Result<Option<LaunchTicket>> {
        self.as_keeper(|folder| read(&folder.join(id.as_str()), self.keeper))
    }

    /// Revokes a ticket; returns whether it was valid.
    pub(crate) fn revoke(&self, id: &TicketId) -> io::Result<bool> {
        self.as_keeper(|folder| {
            let path = folder.join(id.as_str());
            // An unreadable ticket permits nothing.
            match read(&path, self.keeper).ok().flatten() {
                Some(ticket) if ticket.attested.launch.container.is_some() => {
                    let was_valid = !revoked::is_marked(&path);
                    revoked::mark(&path).map(|()| was_valid)
                }
                _ => forget(&path),
            }
        })
    }

    /// All tickets of a user.
    pub(crate) fn of(&self, uid: u32) -> io::Result<Vec<LaunchTicket>> {
        self.as_keeper(|folder| {
            let names = owned(folder, uid)?;
            // An unreadable ticket permits nothing.
            Ok(names
                .iter()
                .filter_map(|name| valid(&folder.join(name), self.keeper).ok().flatten())
                .collect())
        })
    }

    /// Locks a member's record, so that the member runs once at a time.
    /// The inner error is the reason for a refusal.
    pub(crate) fn member(
        &self,
        ticket: &LaunchTicket,
        index: u32,
    ) -> io::Result<Result<MemberRecord, NoRecord>> {
        if index >= ticket.attested.completions.get() {
            let count = ticket.attested.completions;
            let why = format!("the job has {count} members, and number {index} is none of them");
            return Ok(Err(NoRecord::Over(why)));
        }
        let file = self.as_keeper(|folder| {
            let path = folder.join(ticket.id.as_str()).join(index.to_string());
            let mut how = OpenOptions::new();
            how.create(true).read(true).append(true).mode(0o600).custom_flags(O_NOFOLLOW).open(path)
        })?;
        let Ok(mut file) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else {
            return Ok(Err(NoRecord::Runs(format!("member {index} runs already"))));
        };
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let failures = text.lines().filter(|line| *line == MemberRecord::FAILED).count();
        let most = (ticket.attested.retries as usize).saturating_add(1 + SLACK);
        Ok(match () {
            () if text.lines().any(|line| line == MemberRecord::DONE) => {
                Err(NoRecord::Over(format!("member {index} has come to a good end, and does so once")))
            }
            () if failures >= most => {
                Err(NoRecord::Over(format!("member {index} has failed {failures} times")))
            }
            () => Ok(MemberRecord(file)),
        })
    }
}

/// Reason for which a member is not started, for its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoRecord {
    /// Another job runner has the record.
    Runs(String),
    /// The member is not one that the ticket permits to start again.
    Over(String),
}

impl NoRecord {
    pub(crate) fn into_reason(self) -> String {
        match self {
            Self::Runs(why) | Self::Over(why) => why,
        }
    }
}

/// Record of a member's outcomes, locked while the member runs.
pub(crate) struct MemberRecord(Flock<File>);

impl MemberRecord {
    const DONE: &str = "done";
    const FAILED: &str = "failed";

    /// Records that the member ended by itself.
    pub(crate) fn ended(&mut self, success: bool) -> io::Result<()> {
        let word = if success { Self::DONE } else { Self::FAILED };
        self.0.write_all(format!("{word}\n").as_bytes())
    }
}

fn write(unfinished: &Path, text: &[u8]) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(unfinished)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(unfinished.join(FILE))?;
    file.write_all(text)?;
    file.sync_all()
}

fn read(folder: &Path, keeper: Uid) -> io::Result<Option<LaunchTicket>> {
    let mut how = OpenOptions::new();
    let file = match how.read(true).custom_flags(O_NOFOLLOW).open(folder.join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != keeper.as_raw() {
        return Err(io::Error::other(format!("{} is not the launcher's own", folder.display())));
    }
    let mut text = Vec::new();
    file.take(LONGEST_TICKET).read_to_end(&mut text)?;
    let ticket: LaunchTicket = serde_json::from_slice(&text)?;
    // A ticket under another name is void.
    Ok(Some(ticket).filter(|ticket| folder.file_name().is_some_and(|name| name == ticket.id.as_str())))
}

fn forget(path: &Path) -> io::Result<bool> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn valid(folder: &Path, keeper: Uid) -> io::Result<Option<LaunchTicket>> {
    if revoked::is_marked(folder) { Ok(None) } else { read(folder, keeper) }
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

fn owned(folder: &Path, uid: u32) -> io::Result<Vec<String>> {
    let prefix = format!("{uid}-");
    Ok(names(folder)?.into_iter().filter(|name| name.starts_with(&prefix)).collect())
}

/// Number and total bytes of a user's tickets.
fn used(folder: &Path, uid: u32) -> io::Result<(usize, u64)> {
    let names = owned(folder, uid)?;
    let sizes =
        names.iter().map(|name| fs::metadata(folder.join(name).join(FILE)).map_or(0, |file| file.len()));
    Ok((names.len(), sizes.fold(0, u64::saturating_add)))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::os::unix::fs::PermissionsExt;

    use nix::unistd::geteuid;
    use tranche_domain::jobs::LaunchSpec;

    use super::*;

    fn folder() -> (tempfile::TempDir, Tickets) {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let tickets = Tickets::open(folder.path().into(), geteuid()).unwrap();
        (folder, tickets)
    }

    fn ticket(uid: u32) -> LaunchTicket {
        let launch = LaunchSpec {
            command: vec!["true".into()],
            environment: vec![],
            workdir: "/".into(),
            container: None,
        };
        let attested = Attested {
            project: "a".parse().unwrap(),
            job: "j".parse().unwrap(),
            completions: NonZeroU32::new(2).unwrap(),
            retries: 1,
            service: None,
            launch,
        };
        LaunchTicket::new(uid, 0, SubmitterAccount::of(0).unwrap().0, attested).unwrap()
    }

    #[test]
    fn ticket_is_found_until_revoked() {
        let (_folder, tickets) = folder();
        let (mine, others) = (ticket(1000), ticket(100));
        tickets.issue(&mine).unwrap();
        tickets.issue(&others).unwrap();
        assert_eq!(tickets.find(&mine.id).unwrap(), Some(mine.clone()));
        assert_eq!(
            tickets.of(1000).unwrap(),
            std::slice::from_ref(&mine),
            "those of uid 100 are not of uid 1000"
        );
        assert!(tickets.revoke(&mine.id).unwrap());
        assert_eq!((tickets.find(&mine.id).unwrap(), tickets.revoke(&mine.id).unwrap()), (None, false));
        assert_eq!(tickets.find(&others.id).unwrap(), Some(others));
    }

    #[test]
    fn ticket_under_another_name_is_void() {
        let (folder, tickets) = folder();
        let (mine, other) = (ticket(1000), ticket(0));
        tickets.issue(&mine).unwrap();
        fs::rename(folder.path().join(mine.id.as_str()), folder.path().join(other.id.as_str())).unwrap();
        assert_eq!(tickets.find(&other.id).unwrap(), None);
    }

    #[test]
    fn folder_open_to_others_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o750)).unwrap();
        assert!(Tickets::open(folder.path().into(), geteuid()).is_err());
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(Tickets::open(folder.path().into(), Uid::from_raw(geteuid().as_raw() + 1)).is_err());
        assert!(Tickets::open(folder.path().into(), geteuid()).is_ok());
    }

    #[test]
    fn ticket_expires_and_belongs_to_one_node() {
        let ticket = ticket(1000);
        assert_eq!(ticket.void(now_unix_s()), None);
        assert!(ticket.void(now_unix_s() + VALID_S + 5).unwrap().contains("180 days"));
        let moved = LaunchTicket { node: "another".into(), ..ticket.clone() };
        assert!(moved.void(now_unix_s()).unwrap().contains("another node"));
        assert!(LaunchTicket { version: 3, ..ticket }.void(0).unwrap().contains("version 3"));
    }

    #[test]
    fn member_succeeds_once_and_never_runs_twice() {
        let (_folder, tickets) = folder();
        let ticket = ticket(1000);
        tickets.issue(&ticket).unwrap();
        let mut first = tickets.member(&ticket, 0).unwrap().unwrap();
        let refused = |index| {
            let refused = tickets.member(&ticket, index).unwrap().err();
            refused.map(NoRecord::into_reason).unwrap_or_default()
        };
        assert!(matches!(tickets.member(&ticket, 0).unwrap(), Err(NoRecord::Runs(_))));
        assert!(refused(0).contains("runs already"), "{}", refused(0));
        assert!(refused(2).contains("2 members"), "{}", refused(2));
        first.ended(true).unwrap();
        drop(first);
        assert!(refused(0).contains("good end"), "{}", refused(0));
        for _ in 0..2 + SLACK {
            tickets.member(&ticket, 1).unwrap().unwrap().ended(false).unwrap();
        }
        assert!(refused(1).contains("failed 10 times"), "{}", refused(1));
    }

    #[test]
    fn tickets_of_a_user_are_limited() {
        let (folder, tickets) = folder();
        let large = ticket(1000);
        tickets.issue(&large).unwrap();
        let file =
            OpenOptions::new().write(true).open(folder.path().join(large.id.as_str()).join(FILE)).unwrap();
        file.set_len(MOST_BYTES).unwrap();
        assert!(tickets.issue(&ticket(1000)).unwrap_err().to_string().contains("delete jobs"));
        tickets.issue(&ticket(1001)).unwrap();
    }
}
