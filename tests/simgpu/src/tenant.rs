//! A process that holds memory and keeps a GPU busy without any driver library: what tests kill.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use simgpu::{Blocks, Lane, Node, Work, WorkKind};

use crate::failure::{Failure, find};

#[derive(Args)]
pub(crate) struct Tenant {
    /// Path of the node's file
    file: PathBuf,
    /// Index of the GPU
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Memory to hold besides the context
    #[arg(long, default_value_t = 0)]
    mib: u64,
    /// Length of the kernels to submit without end; none if 0
    #[arg(long, default_value_t = 0)]
    kernel_us: u64,
    /// Point at which to die by itself
    #[arg(long)]
    crash: Option<Crash>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Crash {
    /// Holding the GPU's lock, with its sums wrong.
    Locked,
}

impl Tenant {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let node = Node::attach(&self.file)?;
        let gpu = find(&node, self.file.clone(), self.gpu)?;
        let process = node.register()?;
        let context = process.create_context(gpu)?;
        process.take_blocks(gpu, Blocks::holding_mib(self.mib))?;
        writeln!(io::stdout(), "ready")?;
        if let Some(Crash::Locked) = self.crash {
            node.die_holding_the_lock(gpu);
        }
        let duration = Duration::from_micros(self.kernel_us);
        let kernel = Work { lane: Lane::Blocking(1), kind: WorkKind::Kernel, duration, after: None };
        loop {
            match self.kernel_us {
                0 => std::thread::park(),
                _ => process.submit(context, kernel).map(drop)?,
            }
        }
    }
}
