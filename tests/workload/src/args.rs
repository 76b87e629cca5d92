//! Command line of the program.

use std::path::PathBuf;
use std::str::FromStr;

use bytesize::ByteSize;
use clap::Parser;
use tranche_domain::units::Bytes;

/// Take GPU memory, launch timed kernels, and report as JSON what happened
#[derive(Debug, Parser)]
#[command(name = "workload", version)]
pub(crate) struct Args {
    /// CUDA ordinal of the GPU
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) device: i32,
    /// Allocate this much, in one piece
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "fill")]
    pub(crate) memory: Option<Bytes>,
    /// Allocate until nothing is left, in ever smaller pieces
    #[arg(long)]
    pub(crate) fill: bool,
    /// After that, request this much more and report the answer; may be repeated
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) beyond: Vec<Bytes>,
    /// Length of each kernel in nanoseconds
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub(crate) kernel_ns: u64,
    /// Number of kernels that each thread launches
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    pub(crate) launches: Option<u64>,
    /// Seconds for which each thread launches kernels
    #[arg(long, value_name = "S")]
    pub(crate) seconds: Option<f64>,
    /// Launch kernels for as long as this file exists
    #[arg(long, value_name = "FILE", conflicts_with_all = ["launches", "seconds"])]
    pub(crate) while_exists: Option<PathBuf>,
    /// Record the progress in this file, at the end and when SIGUSR1 ends it before; begin from there. Earlier launches
    /// count for --launches
    #[arg(long, value_name = "FILE", conflicts_with_all = ["interactive", "nvml"])]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Wait for the GPU after each launch, after every N, or at the end
    #[arg(long, default_value = "each", value_name = "each|end|N")]
    pub(crate) sync: Sync,
    /// Number of threads that launch, each on a stream of its own
    #[arg(long, default_value_t = 1, value_name = "T")]
    pub(crate) threads: usize,
    /// Stay for this long before the end, holding the memory
    #[arg(long, value_name = "SECONDS")]
    pub(crate) hold: Option<f64>,
    /// File for the report, or - for standard output
    #[arg(long, default_value = "-", value_name = "FILE")]
    pub(crate) report: PathBuf,
    /// Obey lines on standard input: alloc SIZE, fill, free, start, stop, info, rate, nvml, quit
    #[arg(long)]
    pub(crate) interactive: bool,
    /// Report NVML's view and touch no GPU
    #[arg(long)]
    pub(crate) nvml: bool,
}

/// Moment at which a thread waits for the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// After each group of this many launches.
    Every(u64),
    /// After the last launch.
    End,
}

impl FromStr for Sync {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("each", _) => Ok(Self::Every(1)),
            ("end", _) => Ok(Self::End),
            (_, Ok(every)) if every > 0 => Ok(Self::Every(every)),
            _ => Err(format!("{text:?} is not `each`, `end` or a number of launches of at least 1")),
        }
    }
}

/// An amount of memory: `100Mi`, `16GiB`, `1536`.
pub(crate) fn size(text: &str) -> Result<Bytes, String> {
    let spelled = if text.ends_with('i') { format!("{text}B") } else { text.to_string() };
    let size: ByteSize =
        spelled.parse().map_err(|_| format!("{text:?} is not an amount of memory such as 100Mi"))?;
    Ok(Bytes::new(size.as_u64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_written_as_people_write_it() {
        assert_eq!(size("100Mi"), Ok(Bytes::mib(100)));
        assert_eq!(size("2GiB"), Ok(Bytes::mib(2048)));
        assert_eq!(size("1536"), Ok(Bytes::new(1536)));
        assert!(size("much").is_err());
    }

    #[test]
    fn a_wait_after_no_launch_is_refused() {
        assert_eq!("each".parse(), Ok(Sync::Every(1)));
        assert_eq!("16".parse(), Ok(Sync::Every(16)));
        assert!("0".parse::<Sync>().is_err());
    }
}
