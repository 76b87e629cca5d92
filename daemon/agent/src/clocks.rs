//! Clocks of processes: a time namespace shifts CLOCK_MONOTONIC for the processes in it, and times that they write are of
//! that clock. The kernel tells by how much.

use std::io::Read;
use std::sync::LazyLock;

use tranche_domain::id::HostPid;
use tranche_privileged::ProcessFile;

use crate::privileges;

/// The longest file that is read: it has two lines.
const LONGEST: u64 = 4096;

/// By how many nanoseconds the clock of a process is ahead of the daemon's. Zero for one that has ended, and where the kernel
/// knows no time namespaces. The kernel's file is of the namespace in which the children of the process are to be, which
/// is its own except between `unshare(2)` and its next program.
pub(crate) fn ahead_ns(pid: HostPid) -> i64 {
    static OWN: LazyLock<i64> = LazyLock::new(|| offset_of(std::process::id()));
    offset_of(pid.get()).saturating_sub(*OWN)
}

fn offset_of(pid: u32) -> i64 {
    let mut text = String::new();
    let file = privileges::process_file(pid, ProcessFile::TimensOffsets);
    let read = file.and_then(|file| file.take(LONGEST).read_to_string(&mut text));
    read.ok().and_then(|_| monotonic_offset(&text)).unwrap_or_default()
}

/// The offset of CLOCK_MONOTONIC, from a line of the clock's name or number, seconds and nanoseconds.
fn monotonic_offset(text: &str) -> Option<i64> {
    let line = text.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let line = line.into_iter().find(|words| matches!(words.first(), Some(&("monotonic" | "1"))))?;
    let number = |at: usize| line.get(at)?.parse::<i64>().ok();
    number(1)?.saturating_mul(1_000_000_000).checked_add(number(2)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_is_that_of_the_monotonic_clock_in_either_direction() {
        let offset = |line: &str| monotonic_offset(&format!("{line}\nboottime          7         0\n"));
        assert_eq!(offset("monotonic        1000         5"), Some(1_000_000_000_005));
        // Nanoseconds are counted up from whole seconds.
        assert_eq!(offset("monotonic          -3 500000000"), Some(-2_500_000_000));
        assert_eq!(offset("1 2 3"), Some(2_000_000_003));
        for odd in ["", "monotonic", "monotonic x 0", "monotonic 1"] {
            assert_eq!(offset(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn this_process_has_the_daemons_clock() {
        assert_eq!(ahead_ns(HostPid::new(std::process::id())), 0);
        assert_eq!(ahead_ns(HostPid::new(u32::MAX)), offset_of(std::process::id()).saturating_neg());
    }
}
