//! Devices and their primary contexts, which the runtime makes current in each thread that calls it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::driver;
use crate::status::{Outcome, Status};
use crate::wall::{Out, Text};

/// Version of the runtime, thousands for the major number.
///
/// It depends on the library that was made of this code.
static VERSION: AtomicI32 = AtomicI32::new(13000);

thread_local! {
    /// The device that the thread chose.
    static CHOSEN: Cell<i32> = const { Cell::new(0) };
}

/// Primary contexts that this library retains, by device.
static PRIMARY: Mutex<BTreeMap<i32, u64>> = Mutex::new(BTreeMap::new());

/// Sets the version, at the load of the library.
pub(crate) fn set_version(version: i32) {
    VERSION.store(version, Ordering::Relaxed);
}

/// `cudaRuntimeGetVersion`.
pub(crate) fn version() -> i32 {
    VERSION.load(Ordering::Relaxed)
}

/// Initialises the driver, once.
///
/// A driver of a lower major version than the runtime's, or none, is insufficient.
pub(crate) fn init() -> Outcome {
    static DONE: OnceLock<Outcome> = OnceLock::new();
    *DONE.get_or_init(|| {
        let mut found = 0;
        if driver::cuDriverGetVersion(Out::to(&mut found)).is_err() || found / 1000 < version() / 1000 {
            return Err(Status::INSUFFICIENT_DRIVER);
        }
        driver::cuInit(0)
    })
}

/// Version of the driver, 0 where there is none.
pub(crate) fn driver_version(out: Out<i32>) -> Outcome {
    let mut found = 0;
    let _ = driver::cuDriverGetVersion(Out::to(&mut found));
    out.put(found)
}

/// `cudaGetDeviceCount`.
pub(crate) fn count(out: Out<i32>) -> Outcome {
    out.check()?;
    init()?;
    driver::cuDeviceGetCount(out)
}

/// Refuses the ordinal of no device.
pub(crate) fn known(device: i32) -> Outcome {
    let mut all = 0;
    count(Out::to(&mut all))?;
    if (0..all).contains(&device) { Ok(()) } else { Err(Status::INVALID_DEVICE) }
}

/// The primary context of a device, retained once.
pub(crate) fn primary(device: i32) -> Outcome<u64> {
    known(device)?;
    let mut primary = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(context) = primary.get(&device) {
        return Ok(*context);
    }
    let mut context = 0;
    driver::cuDevicePrimaryCtxRetain(Out::to(&mut context), device)?;
    primary.insert(device, context);
    Ok(context)
}

/// Makes the primary context of the chosen device current, unless some context is.
pub(crate) fn ready() -> Outcome {
    init()?;
    let mut current = 0;
    driver::cuCtxGetCurrent(Out::to(&mut current))?;
    if current != 0 {
        return Ok(());
    }
    driver::cuCtxSetCurrent(primary(CHOSEN.get())?)
}

/// `cudaSetDevice`, which makes the primary context at once since CUDA 12.
pub(crate) fn set(device: i32) -> Outcome {
    driver::cuCtxSetCurrent(primary(device)?)?;
    CHOSEN.set(device);
    Ok(())
}

/// The device of the current context, or the chosen one.
pub(crate) fn current() -> Outcome<i32> {
    init()?;
    let mut device = 0;
    match driver::cuCtxGetDevice(Out::to(&mut device)) {
        Ok(()) => Ok(device),
        Err(_) => Ok(CHOSEN.get()),
    }
}

/// `cudaDeviceReset`: ends all that the current device's primary context holds.
pub(crate) fn reset() -> Outcome {
    driver::cuDevicePrimaryCtxReset_v2(current()?)
}

/// An attribute, or 0 where the device has none of that number.
pub(crate) fn attribute(device: i32, number: i32) -> i32 {
    let mut value = 0;
    let _ = driver::cuDeviceGetAttribute(Out::to(&mut value), number, device);
    value
}

/// `cudaDeviceGetAttribute`, whose numbers are the driver's.
pub(crate) fn get_attribute(out: Out<i32>, number: i32, device: i32) -> Outcome {
    known(device)?;
    driver::cuDeviceGetAttribute(out, number, device)
}

/// `cudaDeviceGetPCIBusId`.
pub(crate) fn bus_id(out: Out<i8>, room: i32, device: i32) -> Outcome {
    known(device)?;
    driver::cuDeviceGetPCIBusId(out, room, device)
}

/// `cudaDeviceGetByPCIBusId`.
pub(crate) fn by_bus_id(out: Out<i32>, name: Text) -> Outcome {
    init()?;
    driver::cuDeviceGetByPCIBusId(out, name)
}

/// `cudaDeviceCanAccessPeer`.
pub(crate) fn can_access_peer(out: Out<i32>, one: i32, other: i32) -> Outcome {
    known(one)?;
    known(other)?;
    driver::cuDeviceCanAccessPeer(out, one, other)
}

/// `cudaDeviceEnablePeerAccess`, of the current device to another.
pub(crate) fn enable_peer(other: i32, flags: u32) -> Outcome {
    ready()?;
    driver::cuCtxEnablePeerAccess(primary(other)?, flags)
}

/// `cudaDeviceDisablePeerAccess`.
pub(crate) fn disable_peer(other: i32) -> Outcome {
    ready()?;
    driver::cuCtxDisablePeerAccess(primary(other)?)
}

/// Address of a function of the driver, in a version; null with a reason where there is none.
pub(crate) fn entry_point(name: Text, out: Out<u64>, version: i32, flags: u64, status: Out<i32>) -> Outcome {
    out.check()?;
    name.get()?;
    init()?;
    let (mut address, mut answer) = (0, 0);
    driver::cuGetProcAddress_v2(name, Out::to(&mut address), version, flags, Out::to(&mut answer))?;
    let _ = status.put(answer);
    out.put(address)
}
