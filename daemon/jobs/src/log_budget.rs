//! Disk budgets of logs, for each user and for all. Over budget, the oldest output is discarded first: the
//! beginnings of logs of ended jobs, then of running ones.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{FallocateFlags, fallocate};
use nix::libc::O_NOFOLLOW;

use crate::clock::JobTime;

/// Budgets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// For the jobs of one user.
    pub(crate) of_user: u64,
    /// For all jobs together.
    pub(crate) of_all: u64,
}

/// Disk use of a member's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogUse {
    pub(crate) path: PathBuf,
    pub(crate) uid: u32,
    /// End of its job, if ended.
    pub(crate) ended: Option<JobTime>,
    /// Bytes on the disk.
    pub(crate) bytes: u64,
}

/// A log to be cut to its last bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) path: PathBuf,
    pub(crate) uid: u32,
    pub(crate) save: u64,
}

/// Bytes that remain of a cut log, of an ended job and of a running one.
const KEPT: [u64; 2] = [64 << 10, 1 << 20];
/// Fraction of a budget that is freed in addition, so that cuts are rare.
const SLACK: u64 = 8;

impl Budget {
    /// Budgets for a disk of this size in bytes.
    pub(crate) fn on_disk(size: u64) -> Self {
        Self { of_user: (4 << 30).min(size / 16), of_all: (32 << 30).min(size / 4) }
    }

    /// Cuts that bring all logs within budget, as far as cuts can.
    pub(crate) fn cuts(self, logs: Vec<LogUse>) -> Vec<Cut> {
        let mut of_users: BTreeMap<u32, Vec<LogUse>> = BTreeMap::new();
        logs.into_iter().for_each(|log| of_users.entry(log.uid).or_default().push(log));
        let mut users: Vec<UserLogs> = of_users.into_values().map(UserLogs::new).collect();
        let mut cuts = Vec::new();
        for user in users.iter_mut().filter(|user| user.bytes > self.of_user) {
            while user.bytes > self.of_user - self.of_user / SLACK && user.cut(&mut cuts) {}
        }
        let all = |users: &[UserLogs]| users.iter().fold(0, |sum: u64, user| sum.saturating_add(user.bytes));
        if all(&users) > self.of_all {
            while all(&users) > self.of_all - self.of_all / SLACK {
                // The user with the most output has the most to cut.
                let Some(user) =
                    users.iter_mut().filter(|user| user.has_more()).max_by_key(|user| user.bytes)
                else {
                    break;
                };
                user.cut(&mut cuts);
            }
        }
        cuts
    }
}

/// Logs of one user in reverse order of cutting.
struct UserLogs {
    logs: Vec<LogUse>,
    bytes: u64,
}

impl UserLogs {
    fn new(mut logs: Vec<LogUse>) -> Self {
        // Ended jobs first, oldest first; then running ones, longest log first.
        logs.sort_by_key(|log| (log.ended.is_none(), log.ended, u64::MAX - log.bytes));
        logs.reverse();
        let bytes = logs.iter().fold(0, |sum: u64, log| sum.saturating_add(log.bytes));
        let mut user = Self { logs, bytes };
        user.skip();
        user
    }

    /// Skips logs that a cut would not shorten.
    fn skip(&mut self) {
        while self.logs.last().is_some_and(|log| log.bytes <= Self::kept(log).saturating_mul(2)) {
            self.logs.pop();
        }
    }

    fn kept(log: &LogUse) -> u64 {
        KEPT[usize::from(log.ended.is_none())]
    }

    fn has_more(&self) -> bool {
        !self.logs.is_empty()
    }

    /// Cuts the next log; false if there is none.
    fn cut(&mut self, cuts: &mut Vec<Cut>) -> bool {
        let Some(log) = self.logs.pop() else { return false };
        let save = Self::kept(&log);
        self.bytes = self.bytes.saturating_sub(log.bytes.saturating_sub(save));
        cuts.push(Cut { path: log.path, uid: log.uid, save });
        self.skip();
        true
    }
}

/// Disk space of a log in bytes.
pub(crate) fn on_disk(path: &Path) -> u64 {
    std::fs::symlink_metadata(path).map_or(0, |file| file.blocks().saturating_mul(512))
}

/// Frees the disk space of a log's beginning, and marks the gap at the start of the remainder.
pub(crate) fn cut(cut: &Cut) -> io::Result<()> {
    /// Granularity of holes in a file.
    const BLOCK: u64 = 4096;
    const GONE: &[u8] =
        b"[tranche: what was printed before this is gone, as logs took more than there is room for]\n";
    let file = OpenOptions::new().write(true).custom_flags(O_NOFOLLOW).open(&cut.path)?;
    let from = file.metadata()?.len().saturating_sub(cut.save) / BLOCK * BLOCK;
    let how = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let length = i64::try_from(from).map_err(io::Error::other)?;
    if length > 0 {
        fallocate(&file, how, 0, length)?;
        file.write_all_at(GONE, from)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;
    use std::time::Duration;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn log(name: &str, uid: u32, ended: Option<u64>, mib: u64) -> LogUse {
        let ended = ended.map(|at| JobTime(Duration::from_secs(at)));
        LogUse { path: name.into(), uid, ended, bytes: mib * MIB }
    }

    fn cuts(of_user: u64, of_all: u64, logs: Vec<LogUse>) -> Vec<String> {
        let budget = Budget { of_user: of_user * MIB, of_all: of_all * MIB };
        budget.cuts(logs).iter().map(|cut| cut.path.display().to_string()).collect()
    }

    #[test]
    fn logs_within_budget_are_not_cut() {
        assert_eq!(cuts(10, 20, vec![log("a", 1, None, 10), log("b", 2, Some(1), 10)]), [""; 0]);
    }

    #[test]
    fn user_over_budget_loses_own_oldest_output() {
        let logs = vec![
            log("runs", 1, None, 5),
            log("new", 1, Some(9), 5),
            log("old", 1, Some(1), 5),
            log("other", 2, Some(0), 9),
        ];
        assert_eq!(cuts(12, 99, logs.clone()), ["old"]);
        assert_eq!(cuts(9, 99, logs.clone()), ["old", "new"]);
        assert_eq!(cuts(4, 99, logs), ["old", "new", "runs", "other"]);
    }

    #[test]
    fn over_common_budget_largest_user_is_cut_first() {
        let logs = vec![log("small", 1, Some(0), 3), log("large", 2, Some(9), 20), log("runs", 2, None, 20)];
        assert_eq!(cuts(99, 30, logs), ["large"]);
    }

    #[test]
    fn short_logs_are_not_cut_again() {
        let many: Vec<_> = (0..100).map(|n| log(&n.to_string(), 1, None, 2)).collect();
        assert_eq!(cuts(1, 1, many), [""; 0]);
    }

    #[test]
    fn cut_log_frees_disk_and_marks_the_gap() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        File::create(&path).unwrap().write_all(&vec![b'x'; 3 << 20]).unwrap();
        cut(&Cut { path: path.clone(), uid: 1, save: 64 << 10 }).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 3 << 20, "what stays keeps its place");
        assert!(on_disk(&path) <= 128 << 10, "{}", on_disk(&path));
        let (text, _) = crate::folder::read_log(&path, 0, 1 << 20).unwrap();
        assert!(text.starts_with(b"[tranche: what was printed before this is gone"), "{:?}", &text[..80]);
        assert!(text.ends_with(b"xxx"));
    }
}
