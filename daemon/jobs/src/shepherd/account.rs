//! Account of a job's user: recorded at submission, compared and checked at each start.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::unistd::{Uid, User};
use serde::{Deserialize, Serialize};

/// File with passwords and expiry dates of local accounts.
const SHADOW: &str = "/etc/shadow";

/// An account at submission. A later account with the same uid or name is a different one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SubmitterAccount {
    pub(crate) name: String,
    home: PathBuf,
    /// Inode and birth time of the home folder, if the account owns it; differs for a new account.
    home_made: Option<(u64, Option<Duration>)>,
    /// True if its shell permits logins.
    logs_in: bool,
}

/// Reason for which an account may not run anything now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Barred {
    /// Permanent: the job has to be submitted again.
    ForGood(String),
    /// Temporary: a later start may succeed.
    ForNow(String),
}

impl SubmitterAccount {
    /// The account with this uid.
    pub(crate) fn of(uid: u32) -> Result<(Self, User), Barred> {
        let user = lookup(User::from_uid(Uid::from_raw(uid)))?
            .ok_or_else(|| Barred::ForGood(format!("uid {uid} has no account on this node")))?;
        let named = lookup(User::from_name(&user.name))?;
        if named.is_none_or(|named| named.uid != user.uid) {
            return Err(Barred::ForGood(format!(
                "uid {uid} and the name {} are not of one account",
                user.name
            )));
        }
        let account = Self {
            name: user.name.clone(),
            home: user.dir.clone(),
            home_made: made(&user.dir, uid),
            logs_in: logs_in(&user.shell),
        };
        Ok((account, user))
    }

    /// The current entry of the account, if it is the same account and may run programs.
    pub(crate) fn again(&self, uid: u32) -> Result<User, Barred> {
        let (now, user) = Self::of(uid)?;
        if now.name != self.name {
            return Err(Barred::ForGood(format!(
                "uid {uid} was {} when the job was submitted and is {} now",
                self.name, now.name
            )));
        }
        let another = || {
            Barred::ForGood(format!(
                "the account {} is not the one that submitted the job: its home folder is another",
                self.name
            ))
        };
        match (self.home_made, now.home_made) {
            _ if now.home != self.home => return Err(another()),
            (Some(then), Some(now)) if then != now => return Err(another()),
            (Some(_), None) => {
                let home = self.home.display();
                return Err(Barred::ForNow(format!(
                    "the home folder {home} of {} cannot be seen",
                    self.name
                )));
            }
            _ => {}
        }
        if self.logs_in && !now.logs_in {
            return Err(Barred::ForGood(format!("the account {} has no login shell any more", self.name)));
        }
        may_run(&self.name, Path::new(SHADOW), today())?;
        Ok(user)
    }
}

fn lookup(answer: nix::Result<Option<User>>) -> Result<Option<User>, Barred> {
    answer.map_err(|errno| Barred::ForNow(format!("cannot look up the account: {errno}")))
}

fn made(home: &Path, uid: u32) -> Option<(u64, Option<Duration>)> {
    let folder = fs::metadata(home).ok().filter(|home| home.is_dir() && home.uid() == uid)?;
    let born = folder.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    Some((folder.ino(), born))
}

fn logs_in(shell: &Path) -> bool {
    let program = shell.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    !matches!(program, "nologin" | "false")
}

/// Days since the epoch.
fn today() -> i64 {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    i64::try_from(seconds / (24 * 3600)).unwrap_or(i64::MAX)
}

/// Checks a local account in /etc/shadow; accounts of directory services are not in it.
fn may_run(name: &str, shadow: &Path, today: i64) -> Result<(), Barred> {
    let text = match fs::read_to_string(shadow) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            let shadow = shadow.display();
            return Err(Barred::ForNow(format!(
                "cannot read {shadow}, where locked accounts stand: {error}"
            )));
        }
    };
    let line = text.lines().find(|line| line.split(':').next() == Some(name));
    match line.and_then(|line| bar(line, today)) {
        Some(why) => Err(Barred::ForGood(format!("the account {name} {why}"))),
        None => Ok(()),
    }
}

/// Reason for which the account of a /etc/shadow line may not run programs.
fn bar(line: &str, today: i64) -> Option<&'static str> {
    let fields: Vec<&str> = line.split(':').collect();
    let hash = fields.get(1).copied().unwrap_or_default();
    // `passwd -l` and `usermod -L` prepend "!". "!" or "!!" alone is an account that never had a password,
    // for example one that logs in by key.
    if hash.starts_with('!') && !hash.trim_start_matches('!').is_empty() {
        return Some("is locked");
    }
    let days = |field: usize| fields.get(field).and_then(|days| days.parse::<i64>().ok());
    if days(7).is_some_and(|expires| expires <= today) {
        return Some("has expired");
    }
    let (changed, most, inactive) = (days(2)?, days(4)?, days(6)?);
    let gone = changed.checked_add(most).and_then(|aged| aged.checked_add(inactive));
    (changed > 0 && gone.is_some_and(|gone| gone < today))
        .then_some("has a password that expired too long ago")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_and_expired_accounts_are_barred() {
        let why = |line: &str| bar(line, 20_000);
        for free in [
            "a:$6$salt$hash:19000:0:99999:7:::",
            "a:!:19000:0:99999:7:::",
            "a:!!:19000::::::",
            "a:*:19000:0:99999:7:::",
            "a::::::::",
            "a",
            "a:$6$x:19000:0:99999:7::20001:",
            "a:$6$x:19000:0:900:7:200::",
        ] {
            assert_eq!(why(free), None, "{free}");
        }
        assert_eq!(why("a:!$6$salt$hash:19000:0:99999:7:::"), Some("is locked"));
        assert_eq!(why("a:!*:19000:0:99999:7:::"), Some("is locked"));
        assert_eq!(why("a:$6$x:19000:0:99999:7::20000:"), Some("has expired"));
        assert_eq!(why("a:!:19000:0:99999:7::1:"), Some("has expired"));
        assert!(why("a:$6$x:19000:0:900:7:30::").is_some());
    }

    #[test]
    fn an_unreadable_shadow_file_bars_for_now() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(may_run("a", folder.path(), 0), Err(Barred::ForNow(_))));
        assert_eq!(may_run("a", &folder.path().join("none"), 0), Ok(()));
    }

    #[test]
    fn changed_name_or_home_is_another_account() {
        let (root, _) = SubmitterAccount::of(0).unwrap();
        assert_eq!(root.name, "root");
        let renamed = SubmitterAccount { name: "someone".into(), ..root.clone() };
        assert!(matches!(renamed.again(0), Err(Barred::ForGood(why)) if why.contains("was someone")));
        let moved = SubmitterAccount { home: "/nonexistent".into(), ..root.clone() };
        assert!(matches!(moved.again(0), Err(Barred::ForGood(why)) if why.contains("home folder")));
        let remade = SubmitterAccount { home_made: Some((1, None)), ..root };
        assert!(remade.again(0).is_err());
        assert!(
            matches!(SubmitterAccount::of(u32::MAX - 7), Err(Barred::ForGood(why)) if why.contains("no account"))
        );
    }

    #[test]
    fn nologin_shells_are_recognised() {
        for (shell, expected) in
            [("/usr/sbin/nologin", false), ("/bin/false", false), ("/bin/bash", true), ("", true)]
        {
            assert_eq!(logs_in(Path::new(shell)), expected, "{shell}");
        }
    }
}
