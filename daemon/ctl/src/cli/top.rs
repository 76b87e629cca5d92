//! Arguments of `tranche top`.

use std::time::Duration;

use clap::Args;
use tranche_nodes::NodeAddress;

use super::quantity;

/// Keys of `tranche top`, above its options.
const KEYS: &str = "\
Keys: q leaves, ? lists the keys; f freezes or thaws a slice, c cordons a GPU, d deletes a slice or a job. \
    Each of these three asks first.";

/// `tranche top`.
#[derive(Args, Debug)]
#[command(before_help = KEYS)]
pub struct TopArgs {
    /// Time between two looks: seconds, or a duration such as 500ms; 100ms to 1h
    #[arg(short = 'd', long, value_name = "SECS", default_value = "1s", value_parser = quantity::interval)]
    pub delay: Duration,
    /// Begin with your own slices and jobs only
    #[arg(short = 'm', long)]
    pub mine: bool,
    /// Another node by its name and the address of its page, such as gpu2=http://gpu2:9465; may be repeated
    #[arg(long = "node", value_name = "NAME=URL", env = "TRANCHE_NODES", value_delimiter = ',')]
    pub nodes: Vec<NodeAddress>,
    /// Print a single frame as text, in the size of COLUMNS and LINES or else of the terminal
    #[arg(long)]
    pub once: bool,
}
