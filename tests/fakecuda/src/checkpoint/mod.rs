//! Locks, checkpoints and restores of processes, from CUDA 12.8 on.
//!
//! The calls are requests; a thread in each process carries them out.
//!
//! Sources: "CUDA Checkpointing" of the driver API's pages (12.8, 13.0 and 13.4), the README and `r570-features.c` of
//! NVIDIA/cuda-checkpoint (commit 6ec728a), and what was seen of drivers: its issues 35, 42, 44, 48 and 53,
//! NVIDIA/cuda-python pull request 1983, and the measurements of gVisor's proposal "Multi-GPU CUDA
//! Checkpoint/Restore" on driver 610.57.04. Custom storage (13.4) and jobs of several processes (610) are not here.

pub(crate) mod calls;
mod host_copy;
mod obstacles;
pub(crate) mod serve;
