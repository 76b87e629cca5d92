//! `tranche slice`, word by word.

use clap::{ArgGroup, Args, Subcommand};
use tranche_domain::compute::Priority;
use tranche_domain::id::SliceName;
use tranche_domain::pod::{PodContainer, PodUid};
use tranche_domain::request::Fraction;
use tranche_domain::units::{Bytes, Permille};

use super::{OutputArgs, SizeArgs, quantity};

/// `tranche slice`.
#[derive(Debug, Subcommand)]
pub enum SliceCommand {
    /// Create a slice that stays until it is deleted
    Create(CreateArgs),
    /// List the slices
    #[command(visible_alias = "ls")]
    List(OutputArgs),
    /// Show one slice
    Show(ShowArgs),
    /// Change a slice's size, limit or priority while it is in use
    Resize(ResizeArgs),
    /// Hold the launches of a slice's programs until it is thawed
    Freeze(ShowArgs),
    /// Let a frozen slice's programs go on
    Thaw(ShowArgs),
    /// Say which pod's container a slice is for
    Label(LabelArgs),
    /// Delete a slice
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
    /// The slice's size and place
    #[command(flatten)]
    pub size: SizeArgs,
    /// Whom it is for
    #[command(flatten)]
    pub pod: PodArgs,
    /// How to print
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Which pod's container a slice is for.
#[derive(Args, Clone, Debug)]
pub struct PodArgs {
    /// The container that it is for
    #[arg(long = "pod", value_name = "NAMESPACE/POD/CONTAINER")]
    pub container: Option<PodContainer>,
    /// The uid of that pod
    #[arg(long = "pod-uid", value_name = "UID", requires = "container")]
    pub uid: Option<PodUid>,
}

impl PodArgs {
    /// Both together.
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
    /// Whom it is for
    #[command(flatten)]
    pub pod: PodArgs,
    /// For nobody in particular
    #[arg(long)]
    pub remove: bool,
    /// How to print
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche slice show`, `freeze` and `thaw`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Name of the slice
    pub name: SliceName,
    /// How to print
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche slice resize`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("change").args(["fraction", "memory", "compute", "limit", "priority"]).required(true).multiple(true))]
pub struct ResizeArgs {
    /// Name of the slice
    pub name: SliceName,
    /// New part of its GPU, such as 0.3: memory and compute, where not given apart
    #[arg(short = 'g', long = "gpus", value_name = "SHARE", allow_negative_numbers = true, value_parser = quantity::fraction)]
    pub fraction: Option<Fraction>,
    /// New memory on each GPU, such as 16Gi
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = quantity::memory)]
    pub memory: Option<Bytes>,
    /// New compute on each GPU, such as 30% or 0.3
    #[arg(long, value_name = "SHARE", value_parser = quantity::compute)]
    pub compute: Option<Permille>,
    /// New ceiling of compute on each GPU, such as 60%
    #[arg(long, value_name = "SHARE", value_parser = quantity::compute)]
    pub limit: Option<Permille>,
    /// New priority, -128 to 127
    #[arg(long, value_name = "N", value_parser = quantity::priority, allow_negative_numbers = true)]
    pub priority: Option<Priority>,
    /// How to print
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `tranche slice delete`.
#[derive(Args, Debug)]
pub struct DeleteArgs {
    /// Name of the slice
    pub name: SliceName,
    /// Kill the processes that use it first
    #[arg(long)]
    pub force: bool,
    /// How what was done is told
    #[command(flatten)]
    pub output: OutputArgs,
}
