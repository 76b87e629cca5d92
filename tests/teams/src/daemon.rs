//! `tranched` with its crash points: it dies at the one that its environment names.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    chaos::points::daemon_main()
}
