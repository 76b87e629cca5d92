//! `tranched`, with its points: it dies at the one that it is told to.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    chaos::points::daemon_main()
}
