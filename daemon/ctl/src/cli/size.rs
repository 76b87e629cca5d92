//! Size and place of a slice, as several commands take them.

use std::time::Duration;

use clap::Args;
use tranche_domain::compute::{GangName, Latency, Priority};
use tranche_domain::id::{GpuSelector, SliceName};
use tranche_domain::jobs::ProjectName;
use tranche_domain::park::IdleTime;
use tranche_domain::request::{ComputeMode, Share, SliceRequest};
use tranche_domain::units::{Bytes, Permille};

use super::quantity;

/// Use of compute beyond the request of a slice.
const MODES: [(&str, &str, ComputeMode); 3] = [
    ("fair", "At least the request, plus a share of idle time, up to the limit", ComputeMode::Fair),
    ("strict", "The request and never more", ComputeMode::Strict),
    ("best-effort", "No request: idle time only", ComputeMode::BestEffort),
];

/// Size, place and bounds of a slice.
#[derive(Args, Clone, Debug, Default)]
pub struct SizeArgs {
    /// Part of one GPU, such as 0.5, 50% or 1/2, or whole GPUs, such as 2
    #[arg(short = 'g', long = "gpus", value_name = "SHARE", allow_negative_numbers = true, value_parser = quantity::share)]
    pub share: Option<Share>,
    /// Memory on each GPU, such as 16Gi; alone, the compute share follows from it
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = quantity::memory)]
    pub memory: Option<Bytes>,
    /// Compute on each GPU, such as 30% or 0.3
    #[arg(long, value_name = "SHARE", value_parser = quantity::compute)]
    pub compute: Option<Permille>,
    /// Compute limit on each GPU, such as 60% [default: by the mode]
    #[arg(long, value_name = "SHARE", value_parser = quantity::compute)]
    pub limit: Option<Permille>,
    /// Scheduling priority on a GPU, -128 to 127, higher first
    #[arg(long, value_name = "N", value_parser = quantity::priority, allow_negative_numbers = true, default_value_t)]
    pub priority: Priority,
    /// Longest wait for the GPU while the slice is within its share, 2ms to 10s; longer ones are counted
    #[arg(long, value_name = "DURATION", value_parser = quantity::latency)]
    pub latency: Option<Latency>,
    /// Gang of the slice: those of one owner and gang have their turns on the GPU at the same time
    #[arg(long, value_name = "NAME")]
    pub gang: Option<GangName>,
    /// Project that the slice counts for [default: one of yours, else `default`]
    #[arg(long, short, value_name = "PROJECT")]
    pub project: Option<ProjectName>,
    /// Use of compute beyond the request
    #[arg(long = "compute-mode", alias = "mode", value_name = "MODE", value_parser = quantity::choice(&MODES), default_value_t)]
    pub mode: ComputeMode,
    /// GPU to use, an index or a UUID; with several, such as 0,3, the slice has its part of each
    #[arg(long, value_name = "GPU", value_delimiter = ',', value_parser = quantity::gpu)]
    pub gpu: Vec<GpuSelector>,
    /// Idle time after which the slice is parked, such as 15m; it returns at the next call of its programs
    #[arg(long, value_name = "DURATION", value_parser = quantity::idle_time)]
    pub park_idle: Option<IdleTime>,
    /// Rotate: without room beside other rotating slices, have stays on the GPU in turn with them
    #[arg(long)]
    pub rotate: bool,
    /// Longest wait for room, such as 30s or 5m
    #[arg(long, value_name = "DURATION", value_parser = quantity::time)]
    pub wait: Option<Duration>,
}

impl SizeArgs {
    /// Request for a slice of this size that is not ephemeral. Memory alone is a share of its own.
    pub fn request(&self, name: Option<SliceName>) -> SliceRequest {
        let (share, memory) = match (self.share, self.memory) {
            (Some(share), memory) => (share, memory),
            (None, Some(memory)) => (Share::Memory(memory), None),
            (None, None) => unreachable!("the command line requires a share or memory"),
        };
        SliceRequest {
            name,
            memory,
            compute: self.compute,
            limit: self.limit,
            mode: self.mode,
            priority: self.priority,
            latency: self.latency,
            gang: self.gang.clone(),
            project: self.project.clone(),
            gpus: self.gpu.clone(),
            park_idle: self.park_idle,
            rotates: self.rotate,
            ..SliceRequest::of(share)
        }
    }
}
