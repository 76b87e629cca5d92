//! Launches whose arguments stand in a structure.

/// The head of `CUlaunchConfig`.
#[repr(C)]
pub(crate) struct LaunchConfig {
    shape: [u32; 7],
    stream: u64,
}

/// Stream in a launch's description; the driver refuses a launch without one.
pub(crate) fn stream_of(config: *const LaunchConfig) -> Option<u64> {
    // SAFETY: null, or a description that the driver itself is about to read, so readable by the launch's contract.
    unsafe { config.as_ref() }.map(|config| config.stream)
}
