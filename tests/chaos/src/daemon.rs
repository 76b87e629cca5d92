//! `tranched` with crash points: it records those that it passes, and dies at the one that is set.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    chaos::points::daemon_main()
}
