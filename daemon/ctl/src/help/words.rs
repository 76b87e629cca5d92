//! Commands of other programs, and the commands here that do the same.

/// Words that are not commands here, each with advice.
const FOREIGN: [(&[&str], &str); 5] = [
    (
        &["stop", "pause"],
        "`tranche suspend NAME` stops a job until it is resumed, `tranche delete NAME` ends it for good, and \
         `tranche slice delete --force NAME` ends the programs of a slice",
    ),
    (
        &["cancel", "kill", "scancel"],
        "`tranche delete NAME` ends a job and deletes it, and `tranche slice delete --force NAME` ends the programs of a slice",
    ),
    (&["wait"], "`tranche logs -f NAME` ends when the job does, and `tranche run --wait 10m` waits for room"),
    (
        &["attach", "connect", "ssh", "sh"],
        "`tranche logs -f NAME` follows the output of a job, and `tranche bash NAME` opens a shell in its slice",
    ),
    (
        &["create", "apply", "start"],
        "`tranche run` runs a program in a slice, `tranche submit` submits a job, and `tranche slice create` and \
         `tranche project create` create slices and projects",
    ),
];

/// Advice for a command that exists in other programs.
pub(super) fn advice(word: &str) -> Option<&'static str> {
    FOREIGN.iter().find(|(words, _)| words.contains(&word)).map(|(_, advice)| *advice)
}
