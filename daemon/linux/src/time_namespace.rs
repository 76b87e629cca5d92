//! Clock offsets of processes. A time namespace shifts CLOCK_MONOTONIC for its processes, and so the times that they
//! write.

use std::sync::LazyLock;

use tranche_domain::id::HostPid;
use tranche_privileged::ProcessFile;

use crate::process::{self, ENOUGH};

/// Nanoseconds by which a process's CLOCK_MONOTONIC is ahead of the daemon's. Zero for a process that has ended, and
/// on kernels without time namespaces. The kernel's file describes the namespace for the process's children, which is
/// its own except between `unshare(2)` and the next `execve(2)`.
pub fn ahead_ns(pid: HostPid) -> i64 {
    static OWN: LazyLock<i64> = LazyLock::new(|| offset_of(std::process::id()));
    offset_of(pid.get()).saturating_sub(*OWN)
}

fn offset_of(pid: u32) -> i64 {
    let mut buffer = [0; ENOUGH];
    let lines = process::start_of(process::file(HostPid::new(pid), ProcessFile::TimensOffsets), &mut buffer);
    let lines = lines.and_then(|lines| std::str::from_utf8(lines).ok());
    lines.and_then(monotonic_offset).unwrap_or_default()
}

/// Offset of CLOCK_MONOTONIC in nanoseconds.
///
/// A line has the clock's name or number, seconds and nanoseconds.
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
    fn offset_of_the_monotonic_clock_may_be_negative() {
        let offset = |line: &str| monotonic_offset(&format!("{line}\nboottime          7         0\n"));
        assert_eq!(offset("monotonic        1000         5"), Some(1_000_000_000_005));
        // Nanoseconds count up from whole seconds.
        assert_eq!(offset("monotonic          -3 500000000"), Some(-2_500_000_000));
        assert_eq!(offset("1 2 3"), Some(2_000_000_003));
        for odd in ["", "monotonic", "monotonic x 0", "monotonic 1"] {
            assert_eq!(offset(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn own_clock_has_no_offset() {
        assert_eq!(ahead_ns(HostPid::new(std::process::id())), 0);
        assert_eq!(ahead_ns(HostPid::new(u32::MAX)), offset_of(std::process::id()).saturating_neg());
    }
}
