//! Lengths of operations: bytes over the model's bandwidths, and a kernel's name or argument.

use std::time::Duration;

use simgpu::Gpu;

use crate::driver::Driver;
use crate::state::stream::Op;

/// Length of a kernel whose name states none.
const KERNEL: Duration = Duration::from_micros(5);
/// Time of any copy or fill besides that of its bytes.
const TRANSFER: Duration = Duration::from_micros(2);

/// The time an operation has the GPU.
pub(crate) fn duration(driver: &Driver, gpu: Gpu, op: &Op) -> Duration {
    let model = &driver.node().gpu_spec(gpu).model;
    let memory = model.memory.gigabytes_per_second;
    match op {
        Op::Kernel(duration) => *duration,
        Op::Copy(copy) if copy.crosses_the_bus() => {
            TRANSFER + at_rate(copy.bytes(), model.link.pcie_gigabytes_per_second)
        }
        // Each byte is read and written.
        Op::Copy(copy) => TRANSFER + at_rate(2 * copy.bytes(), memory),
        Op::Fill(fill) => TRANSFER + at_rate(fill.width * fill.height, memory),
        _ => Duration::ZERO,
    }
}

/// The time that bytes take over the bus of a GPU.
pub(crate) fn over_the_bus(driver: &Driver, gpu: Gpu, bytes: u64) -> Duration {
    at_rate(bytes, driver.node().gpu_spec(gpu).model.link.pcie_gigabytes_per_second)
}

/// One gigabyte per second is one byte per nanosecond.
fn at_rate(bytes: u64, gigabytes_per_second: u64) -> Duration {
    Duration::from_nanos(bytes / gigabytes_per_second.max(1))
}

/// Length of a kernel, by its name.
///
/// `spin_ns` takes its first argument, `..._spin_us_250` (or `_ns_`, `_ms_`) the time in the name, and any other
/// [`KERNEL`].
pub(crate) fn kernel(name: &str, first_argument: Option<u64>) -> Duration {
    if name == "spin_ns" {
        return first_argument.map_or(KERNEL, Duration::from_nanos);
    }
    [("spin_ns_", 1), ("spin_us_", 1_000), ("spin_ms_", 1_000_000)]
        .iter()
        .find_map(|(mark, unit)| {
            let (_, rest) = name.split_once(mark)?;
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            Some(Duration::from_nanos(digits.parse::<u64>().ok()?.saturating_mul(*unit)))
        })
        .unwrap_or(KERNEL)
}

#[cfg(test)]
mod tests {
    use super::{KERNEL, at_rate, kernel};
    use std::time::Duration;

    #[test]
    fn argument_or_name_decides_the_length_of_a_kernel() {
        assert_eq!(kernel("spin_ns", Some(1234)), Duration::from_nanos(1234));
        assert_eq!(kernel("my_spin_us_250", None), Duration::from_micros(250));
        assert_eq!(kernel("spin_ms_3_more", None), Duration::from_millis(3));
        assert_eq!(kernel("vector_add", Some(7)), KERNEL);
    }

    #[test]
    fn a_gigabyte_at_a_gigabyte_per_second_takes_a_second() {
        assert_eq!(at_rate(1_000_000_000, 1), Duration::from_secs(1));
    }
}
