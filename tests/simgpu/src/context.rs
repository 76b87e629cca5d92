//! The name of a context: its GPU, its place there, and a serial number that none had before.
#![forbid(unsafe_code)]

use crate::units::Gpu;

/// A context of this process on a GPU. A plain name: destroying it is [`crate::Process::destroy_context`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Context {
    pub(crate) gpu: Gpu,
    pub(crate) slot: u32,
    pub(crate) serial: u64,
}

impl Context {
    /// The GPU it is on.
    pub const fn gpu(self) -> Gpu {
        self.gpu
    }

    /// A number that no other context of the node's GPU ever had.
    pub const fn serial(self) -> u64 {
        self.serial
    }
}
