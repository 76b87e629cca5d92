//! simgpu
