//! Plain device memory: `cuMemAlloc`, pitch, managed, and what frees them.

use crate::driver::driver;
use crate::memory::place::allocate;
use crate::memory::ranges::Kind;
use crate::memory::release::drop_range;
use crate::status::{Outcome, Status};
use crate::wall::Out;

/// Rows of pitched memory begin at multiples of this.
const PITCH: u64 = 512;

fn get(size: usize, kind: Kind) -> Outcome<u64> {
    if size == 0 {
        return Err(Status::InvalidValue);
    }
    let driver = driver()?;
    crate::capture::unsafe_call(driver)?;
    allocate(driver, &mut driver.table(), size as u64, kind)
}

pub(crate) fn alloc(out: Out<u64>, size: usize) -> Outcome {
    out.check()?;
    out.put(get(size, Kind::Device)?)
}

/// The 32-bit form, whose addresses fit into 32 bits.
pub(crate) fn alloc_low(out: Out<u32>, size: u32) -> Outcome {
    out.check()?;
    out.put(get(size as usize, Kind::Low)? as u32)
}

pub(crate) fn alloc_pitch(
    out: Out<u64>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    element: u32,
) -> Outcome {
    out.check()?;
    pitch.check()?;
    let (bytes, row) = pitched(width, height, element)?;
    out.put(get(bytes, Kind::Device)?)?;
    pitch.put(row)
}

pub(crate) fn alloc_pitch_low(
    out: Out<u32>,
    pitch: Out<u32>,
    width: u32,
    height: u32,
    element: u32,
) -> Outcome {
    out.check()?;
    pitch.check()?;
    let (bytes, row) = pitched(width as usize, height as usize, element)?;
    out.put(get(bytes, Kind::Low)? as u32)?;
    pitch.put(row as u32)
}

fn pitched(width: usize, height: usize, element: u32) -> Outcome<(usize, usize)> {
    if width == 0 || height == 0 || ![4, 8, 16].contains(&element) {
        return Err(Status::InvalidValue);
    }
    let row = width.checked_next_multiple_of(PITCH as usize).ok_or(Status::OutOfMemory)?;
    Ok((row.checked_mul(height).ok_or(Status::OutOfMemory)?, row))
}

/// `CU_MEM_ATTACH_GLOBAL` or `CU_MEM_ATTACH_HOST`.
pub(crate) fn alloc_managed(out: Out<u64>, size: usize, flags: u32) -> Outcome {
    out.check()?;
    if flags != 1 && flags != 2 {
        return Err(Status::InvalidValue);
    }
    out.put(get(size, Kind::Managed)?)
}

/// Waits for the work of the context that the memory is of, as the real one does, then frees it.
///
/// Any context may be current, or none. Address 0 is nothing to free.
pub(crate) fn free(address: u64) -> Outcome {
    let driver = driver()?;
    let current = driver.table().current().ok().map(|(current, _)| current);
    if address == 0 {
        return Ok(());
    }
    let owner = {
        let table = driver.table();
        let range = table.ranges.at(address).ok_or(Status::InvalidValue)?;
        let freeable = matches!(
            range.kind,
            Kind::Device
                | Kind::Low
                | Kind::Managed
                | Kind::Pool(_)
                | Kind::Graph
                | Kind::External(_)
                | Kind::Lent(_)
        );
        if !freeable {
            return Err(Status::InvalidValue);
        }
        range.context
    };
    match crate::context::wait_for(driver, owner) {
        Err(Status::CaptureUnsupported) => return Err(Status::CaptureUnsupported),
        // Memory of a pool or graph may outlive the context that made it.
        Err(Status::InvalidHandle) => {
            current.map_or(Ok(()), |current| crate::context::wait_for(driver, current))?;
        }
        _ => {}
    }
    let mut table = driver.table();
    if table.ranges.at(address).is_none() {
        return Err(Status::InvalidValue);
    }
    drop_range(driver, &mut table, address);
    crate::memory::reserve::trim_to_thresholds(driver, &mut table);
    Ok(())
}

pub(crate) fn free_low(address: u32) -> Outcome {
    free(u64::from(address))
}

/// Free and total memory of the current device: what any process uses is not free.
///
/// Either place may be null, as programs have it that run on real drivers (HAMi-core issues 321, 322 and 333, llama.cpp
/// 20499). For both no source states anything: that is taken as a query without an answer.
pub(crate) fn info(free: Out<usize>, total: Out<usize>) -> Outcome {
    let driver = driver()?;
    let table = driver.table();
    let (_, device) = table.current_device()?;
    let gpu = table.gpu(device);
    crate::fault::check(driver, gpu)?;
    let capacity = driver.node().capacity(gpu);
    free.offer(capacity.saturating_sub(driver.node().used(gpu)).bytes() as usize);
    total.offer(capacity.bytes() as usize);
    Ok(())
}

/// The 32-bit form: what does not fit is shown as the most that fits.
pub(crate) fn info_low(free: Out<u32>, total: Out<u32>) -> Outcome {
    let (mut wide_free, mut wide_total) = (0, 0);
    info(Out::to(&mut wide_free), Out::to(&mut wide_total))?;
    let narrow = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    free.offer(narrow(wide_free));
    total.offer(narrow(wide_total));
    Ok(())
}
