//! Arguments of `tranche slice`.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use tranche_domain::compute::Priority;
use tranche_domain::id::SliceName;
use tranche_domain::pod::{PodContainer, PodUid};
use tranche_domain::request::Fraction;
use tranche_domain::units::{Bytes, Permille};

use super::output::{ListingArgs, OutputArgs};
use super::quantity::{self, NewLatency};
use super::size::SizeArgs;

/// `tranche slice`.
#[derive(Debug, Subcommand)]
pub enum SliceCommand {
    /// Create a slice that exists until it is deleted
    Create(CreateArgs),
    /// List the slices of the node
    #[command(visible_alias = "ls")]
    List(ListingArgs),
    /// Show a slice and its processes
    Show(ShowArgs),
    /// Change a slice's size, limit, priority or latency target while it is in use
    Resize(ResizeArgs),
    /// Hold the launches of a slice's programs until it is thawed
    Freeze(ShowArgs),
    /// Release the launches of a frozen slice
    Thaw(ShowArgs),
    /// Move a slice's GPU memory to host memory, and free its part of the GPUs
    Park(ShowArgs),
    /// Bring a parked slice back to its GPUs
    Unpark(UnparkArgs),
    /// Set the pod container that a slice is for
    Label(LabelArgs),
    /// Delete a slice, with --force also one in use
    #[command(visible_alias = "rm")]
    Delete(DeleteArgs),
}

/// `tranche slice create`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("size").args(["share", "memory"]).required(true).multiple(true))]
pub struct CreateArgs {
    /// Name of the slice; chosen by the daemon if absent
    #[arg(value_name = "NAME")]
    pub name: Option<SliceName>,
    /// The same as NAME
    #[arg(long = "name", value_name = "NAME", conflicts_with = "name")]
    pub named: Option<SliceName>,
    /// Size and place of the slice
    #[command(flatten)]
    pub size: SizeArgs,
    /// Pod of the slice
    #[command(flatten)]
    pub pod: PodArgs,
    /// Let several containers use it at a time; without this, one at a time
    #[arg(long)]
    pub several_containers: bool,
    /// Output format: text or JSON
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The pod container of a slice.
#[derive(Args, Clone, Debug)]
pub struct PodArgs {
    /// Container that the slice is for
    #[arg(long = "pod", value_name = "NAMESPACE/POD/CONTAINER")]
    pub container: Option<PodContainer>,
    /// Uid of the pod
    #[arg(long = "pod-uid", value_name = "UID", requires = "container")]
    pub uid: Option<PodUid>,
}

impl PodArgs {
    /// The container with the uid.
    pub fn pod(self) -> Option<PodContainer> {
        self.container.map(|container| PodContainer { uid: self.uid, ..container })
    }
}

/// `tranche slice label`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("label").args(["container", "remove"]).required(true))]
pub struct LabelArgs {
    /// Name of the slice
    pub name: SliceName,
    /// Pod of the slice
    #[command(flatten)]
    pub pod: PodArgs,
    /// Remove the label of the slice
    #[arg(long)]
    pub remove: bool,
    /// Output format: text or JSON
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche slice show`, `freeze`, `thaw` and `park`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Name of the slice
    pub name: SliceName,
    /// Output format: text or JSON
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche slice unpark`.
#[derive(Args, Debug)]
pub struct UnparkArgs {
    /// Name of the slice
    pub name: SliceName,
    /// Longest wait for room on its GPUs, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = quantity::time)]
    pub wait: Option<Duration>,
    /// Output format: text or JSON
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche slice resize`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("change").args(["fraction", "memory", "compute", "limit", "priority", "latency"]).required(true).multiple(true))]
pub struct ResizeArgs {
    /// Name of the slice
    pub name: SliceName,
    /// New part of its GPU, such as 0.3, for memory and compute unless these are given
    #[arg(short = 'g', long = "gpus", value_name = "SHARE", allow_negative_numbers = true, value_parser = quantity::fraction)]
    pub fraction: Option<Fraction>,
    /// New memory on each GPU, such as 16Gi
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = quantity::memory)]
    pub memory: Option<Bytes>,
    /// New compute on each GPU, such as 30% or 0.3
    #[arg(long, value_name = "SHARE", value_parser = quantity::compute)]
    pub compute: Option<Permille>,
    /// New compute limit on each GPU, such as 60%
    #[arg(long, value_name = "SHARE", value_parser = quantity::compute)]
    pub limit: Option<Permille>,
    /// New priority, -128 to 127
    #[arg(long, value_name = "N", value_parser = quantity::priority, allow_negative_numbers = true)]
    pub priority: Option<Priority>,
    /// New longest wait for the GPU while the slice is within its share, 2ms to 10s; none: no target
    #[arg(long, value_name = "DURATION", value_parser = quantity::new_latency)]
    pub latency: Option<NewLatency>,
    /// Output format: text or JSON
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche slice delete`.
#[derive(Args, Debug)]
pub struct DeleteArgs {
    /// Names of the slices
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<SliceName>,
    /// Kill all processes in it first, also those without use of a GPU, and in containers
    #[arg(long)]
    pub force: bool,
    /// Output format: text or JSON
    #[command(flatten)]
    pub output: OutputArgs,
}
