//! GPU time without a result: what the stand-ins of the mathematics libraries put into a stream.

use std::sync::OnceLock;

use crate::device::{attribute, current, ready};
use crate::driver;
use crate::status::Outcome;
use crate::wall::{In, Out, Text};

/// A kernel that takes the nanoseconds of its argument, on the simulated driver.
const SPIN: &[u8] = b".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry spin_ns(.param .u64 spin_ns_0) { ret; }\n\0";
/// Time of the least work, in nanoseconds.
const LEAST: u64 = 5000;
/// Operations of a multiprocessor in a cycle: 128 lanes that multiply and add.
const PER_CYCLE: u64 = 256;
/// Attributes of a device: clock in kHz, number of multiprocessors.
const CLOCK: i32 = 13;
const MULTIPROCESSORS: i32 = 16;

fn spin() -> Outcome<u64> {
    static KERNEL: OnceLock<Outcome<u64>> = OnceLock::new();
    *KERNEL.get_or_init(|| {
        let (mut library, mut kernel) = (0, 0);
        let image = SPIN.as_ptr() as u64;
        driver::cuLibraryLoadData(
            Out::to(&mut library),
            image,
            In::NULL,
            In::NULL,
            0,
            In::NULL,
            In::NULL,
            0,
        )?;
        driver::cuLibraryGetKernel(Out::to(&mut kernel), library, Text::of(c"spin_ns"))?;
        Ok(kernel)
    })
}

/// Takes the time of a number of operations in a stream.
pub(crate) fn operations(stream: u64, count: u64) -> Outcome {
    ready()?;
    let device = current()?;
    let per_microsecond = (attribute(device, CLOCK) / 1000).max(1) as u64
        * attribute(device, MULTIPROCESSORS).max(1) as u64
        * PER_CYCLE;
    let nanoseconds = LEAST.max((u128::from(count) * 1000 / u128::from(per_microsecond)) as u64);
    let arguments = [&raw const nanoseconds as u64];
    driver::cuLaunchKernel(spin()?, 1, 1, 1, 1, 1, 1, 0, stream, arguments.as_ptr() as u64, 0)
}
