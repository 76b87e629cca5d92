//! Launches, and what there is to know of a kernel.

use std::cell::RefCell;

use crate::code::kernel;
use crate::device::{current, ready};
use crate::driver;
use crate::shapes::{Config, DriverConfig, Sides};
use crate::status::{Outcome, Status};
use crate::wall::{In, Out};

/// A launch that the compiler has split in two calls: grid, block, bytes, stream.
pub(crate) type Call = (Sides, Sides, usize, u64);

thread_local! {
    /// Launches that are configured and not yet made.
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
}

/// `__cudaPushCallConfiguration`.
pub(crate) fn push(call: Call) {
    CALLS.with_borrow_mut(|calls| calls.push(call));
}

/// `__cudaPopCallConfiguration`.
pub(crate) fn pop() -> Outcome<Call> {
    CALLS.with_borrow_mut(Vec::pop).ok_or(Status::INVALID_VALUE)
}

fn bytes(shared: usize) -> Outcome<u32> {
    u32::try_from(shared).map_err(|_| Status::INVALID_VALUE)
}

/// `cudaLaunchKernel`.
pub(crate) fn launch(
    host: u64,
    grid: Sides,
    block: Sides,
    arguments: u64,
    shared: usize,
    stream: u64,
) -> Outcome {
    let function = kernel(host)?;
    let shared = bytes(shared)?;
    driver::cuLaunchKernel(
        function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, arguments, 0,
    )
}

/// `cudaLaunchCooperativeKernel`.
pub(crate) fn cooperative(
    host: u64,
    grid: Sides,
    block: Sides,
    arguments: u64,
    shared: usize,
    stream: u64,
) -> Outcome {
    let function = kernel(host)?;
    let shared = bytes(shared)?;
    driver::cuLaunchCooperativeKernel(
        function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, arguments,
    )
}

/// `cudaLaunchKernelExC`.
pub(crate) fn configured(config: In<Config>, host: u64, arguments: u64) -> Outcome {
    let config = config.get()?;
    let function = kernel(host)?;
    let config = DriverConfig {
        grid: config.grid,
        block: config.block,
        shared: bytes(config.shared)?,
        stream: config.stream,
        attributes: config.attributes,
        count: config.count,
    };
    driver::cuLaunchKernelEx(In::of(&config), function, arguments, 0)
}

/// `cudaGetFuncBySymbol`: the driver's function of a kernel in the current context.
pub(crate) fn function(host: u64) -> Outcome<u64> {
    let kernel = kernel(host)?;
    let mut function = 0;
    driver::cuKernelGetFunction(Out::to(&mut function), kernel)?;
    Ok(function)
}

/// `cudaFuncAttributes`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Attributes {
    sizes: [usize; 3],
    numbers: [i32; 13],
    reserved: [i32; 16],
}

/// `cudaFuncGetAttributes`.
pub(crate) fn attributes(out: Out<Attributes>, host: u64) -> Outcome {
    out.check()?;
    let function = function(host)?;
    let of = |number: i32| {
        let mut value = 0;
        driver::cuFuncGetAttribute(Out::to(&mut value), number, function).map_or(0, |()| value)
    };
    // In the order of the structure, by the numbers of CUfunction_attribute.
    let sizes = [1, 2, 3].map(|number| of(number) as usize);
    let numbers = [0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 14].map(of);
    out.put(Attributes { sizes, numbers, reserved: [0; 16] })
}

/// `cudaFuncSetAttribute`, whose numbers are the driver's.
pub(crate) fn set_attribute(host: u64, attribute: i32, value: i32) -> Outcome {
    driver::cuFuncSetAttribute(function(host)?, attribute, value)
}

/// `cudaFuncSetCacheConfig`.
pub(crate) fn set_cache_config(host: u64, config: i32) -> Outcome {
    driver::cuFuncSetCacheConfig(function(host)?, config)
}

/// `cudaKernelSetAttributeForDevice`.
pub(crate) fn set_kernel_attribute(handle: u64, attribute: i32, value: i32, device: i32) -> Outcome {
    driver::cuKernelSetAttribute(attribute, value, kernel(handle)?, device)
}

/// `cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags`.
pub(crate) fn active_blocks(out: Out<i32>, host: u64, threads: i32, shared: usize, flags: u32) -> Outcome {
    let function = function(host)?;
    driver::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, function, threads, shared, flags)
}

/// `cudaOccupancyAvailableDynamicSMemPerBlock`.
pub(crate) fn available_shared(out: Out<usize>, host: u64, blocks: i32, threads: i32) -> Outcome {
    driver::cuOccupancyAvailableDynamicSMemPerBlock(out, function(host)?, blocks, threads)
}

/// `cudaDeviceGetLimit`.
pub(crate) fn limit(out: Out<usize>, limit: i32) -> Outcome {
    ready()?;
    driver::cuCtxGetLimit(out, limit)
}

/// `cudaDeviceSetLimit`.
pub(crate) fn set_limit(limit: i32, value: usize) -> Outcome {
    ready()?;
    driver::cuCtxSetLimit(limit, value)
}

/// `cudaGetDeviceFlags`.
pub(crate) fn device_flags(out: Out<u32>) -> Outcome {
    let mut active = 0;
    driver::cuDevicePrimaryCtxGetState(current()?, out, Out::to(&mut active))
}

/// `cudaSetDeviceFlags`.
pub(crate) fn set_device_flags(flags: u32) -> Outcome {
    driver::cuDevicePrimaryCtxSetFlags_v2(current()?, flags)
}
