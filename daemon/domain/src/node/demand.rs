//! Translation of requests into placement demands; rejects contradictory requests.

use super::refusal::Refusal;
use crate::placement::{ComputeDemand, Demand, MemoryDemand};
use crate::request::{ComputeMode, Share, SliceRequest};
use crate::units::Permille;

/// Maximum number of GPUs in a slice; the shared regions have records for as many.
pub const MAX_GPUS: usize = 16;

pub(super) fn check_compute(compute: Permille, mode: ComputeMode) -> Result<(), Refusal> {
    match (compute == Permille::ZERO, mode == ComputeMode::BestEffort) {
        (true, false) => Err(Refusal::Contradiction(
            "a slice without any compute was asked for: give it at least 0.1 %, or make it best-effort",
        )),
        (false, true) => Err(Refusal::Contradiction(
            "a best-effort slice is guaranteed no compute, it runs when others do not: leave the compute request \
             out, or make the slice fair",
        )),
        _ => Ok(()),
    }
}

/// Compute limit of a slice.
///
/// It is the request itself in strict mode, otherwise the requested limit or the former one.
pub(super) fn limit(
    mode: ComputeMode,
    request: Permille,
    asked: Option<Permille>,
    before: Permille,
) -> Result<Permille, Refusal> {
    let strict = mode == ComputeMode::Strict;
    match asked {
        Some(Permille::ZERO) => Err(Refusal::Contradiction(
            "a limit of nothing would stop the slice's programs for good: `tranche slice freeze` stops them \
             for a while",
        )),
        Some(limit) if strict && limit != request => Err(Refusal::Contradiction(
            "the limit of a strict slice is its compute request: change that, or make the slice fair",
        )),
        _ if strict => Ok(request),
        _ => match asked.unwrap_or(before) {
            limit if limit < request => Err(Refusal::LimitBelowRequest { limit, request }),
            limit => Ok(limit),
        },
    }
}

/// The placement demand of a request.
pub(super) fn demand(request: &SliceRequest) -> Result<Demand, Refusal> {
    let idle_only = request.mode == ComputeMode::BestEffort;
    let asked = request.compute.or(idle_only.then_some(Permille::ZERO));
    if let Some(compute) = asked {
        check_compute(compute, request.mode)?;
    }
    if request.gpus.len() > MAX_GPUS {
        return Err(Refusal::Contradiction(TOO_MANY_GPUS));
    }
    let part = |memory, implied| Demand::Part {
        memory: request.memory.map_or(memory, MemoryDemand::Bytes),
        compute: asked.map_or(implied, ComputeDemand::Share),
    };
    match request.share {
        Share::Fraction(fraction) => {
            let share = fraction.permille();
            Ok(part(MemoryDemand::Share(share), ComputeDemand::Share(share)))
        }
        Share::Memory(bytes) => Ok(part(MemoryDemand::Bytes(bytes), ComputeDemand::LikeMemory)),
        Share::Whole(_) if request.memory.is_some() || request.compute.is_some() => {
            Err(Refusal::Contradiction(
                "whole GPUs are given entirely, with all their memory and compute: \
                 leave those out, or ask for a fraction",
            ))
        }
        Share::Whole(count) if count.get() as usize > MAX_GPUS => Err(Refusal::Contradiction(TOO_MANY_GPUS)),
        Share::Whole(count) if ![0, count.get() as usize].contains(&request.gpus.len()) => {
            Err(Refusal::Contradiction(
                "so many whole GPUs are asked for, and another number of them is named: \
                 name as many, or let the daemon choose",
            ))
        }
        Share::Whole(count) => Ok(Demand::Whole(count)),
    }
}

const TOO_MANY_GPUS: &str = "a slice has at most 16 GPUs: ask for fewer, or for several slices";
