//! Choice of the output, as several commands take it.

use clap::Args;

/// Choice between text and JSON output.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputArgs {
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}
