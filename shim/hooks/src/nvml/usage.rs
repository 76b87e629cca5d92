//! What processes do, one by one: of what NVML lists, what the slice's own do, by the pids they know themselves by.

use core::ffi::{c_char, c_int, c_void};

use tranche_policy::Ledger;
use tranche_shm::Slot;
use tranche_shm::control::Identity;

use super::list::{deliver, listed};
use super::process::visible_pid;
use super::{
    DRIVER_NOT_LOADED, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_FOUND, SUCCESS, VERSION_MISMATCH, slot,
};
use crate::attach;

/// `nvmlProcessUtilizationSample_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pid: u32,
    time_us: u64,
    multiprocessors: u32,
    memory: u32,
    encoder: u32,
    decoder: u32,
}

/// `nvmlProcessUtilizationInfo_v1_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LongSample {
    time_us: u64,
    pid: u32,
    /// Multiprocessors, memory, encoder, decoder, JPEG decoder, optical flow.
    percent: [u32; 6],
}

/// `nvmlProcessesUtilizationInfo_v1_t`
#[repr(C)]
pub(crate) struct Samples {
    version: u32,
    count: u32,
    since: u64,
    rows: *mut LongSample,
}

impl Samples {
    /// Version 1 in the top byte, the size below.
    const VERSION: u32 = 1 << 24 | size_of::<Self>() as u32;
}

/// A session of an encoder or of a capture of the screen: its number, whose it is, and `N` words about it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Session<const N: usize> {
    number: u32,
    pid: u32,
    about: [u32; N],
}

/// `nvmlEncoderSessionInfo_t`
pub(crate) type EncoderSession = Session<6>;
/// `nvmlFBCSessionInfo_t`
pub(crate) type CaptureSession = Session<10>;

/// Something that NVML says of one process.
trait OfProcess: Copy {
    fn pid(&self) -> u32;
    /// The same, of a process that the program knows by another pid.
    fn with(self, pid: u32) -> Self;
}

macro_rules! of_process {
    ($([$($parameter:tt)*] $type:ty;)*) => {$(
        impl $($parameter)* OfProcess for $type {
            fn pid(&self) -> u32 {
                self.pid
            }
            fn with(self, pid: u32) -> Self {
                Self { pid, ..self }
            }
        }
    )*};
}
of_process! {
    [] Sample;
    [] LongSample;
    [<const N: usize>] Session<N>;
}

impl OfProcess for u32 {
    fn pid(&self) -> u32 {
        *self
    }
    fn with(self, pid: u32) -> Self {
        pid
    }
}

pub(crate) unsafe fn process_utilization(
    real: unsafe extern "C" fn(u64, *mut Sample, *mut u32, u64) -> c_int,
    device: u64,
    samples: *mut Sample,
    count: *mut u32,
    since: u64,
) -> c_int {
    // SAFETY: the program's own call, with room of our own; the program promises what `keep_samples` asks.
    unsafe { keep_samples(device, count, samples, |count, rows| real(device, rows, count, since)) }
}

pub(crate) unsafe fn processes_utilization(
    real: unsafe extern "C" fn(u64, *mut Samples) -> c_int,
    device: u64,
    samples: *mut Samples,
) -> c_int {
    // SAFETY: the program promises that `samples` is null or a structure of the version that it begins with, and
    // what `keep_samples` asks; NVML is given a structure and room of our own.
    unsafe {
        if samples.is_null() {
            return real(device, samples);
        }
        if (*samples).version != Samples::VERSION {
            return VERSION_MISMATCH;
        }
        let since = (*samples).since;
        keep_samples(device, &raw mut (*samples).count, (*samples).rows, |count, rows| {
            let mut asked = Samples { version: Samples::VERSION, count: *count, since, rows };
            let result = real(device, &mut asked);
            *count = asked.count;
            result
        })
    }
}

/// Samples of the slice's processes. Who brings no array is told how many there are; that there are none is an
/// error, as with NVML.
///
/// # Safety
/// As [`keep`] wants it.
unsafe fn keep_samples<T: OfProcess>(
    device: u64,
    count: *mut u32,
    rows: *mut T,
    ask: impl FnMut(&mut u32, *mut T) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if rows.is_null() && !count.is_null() {
            *count = 0;
        }
        match keep(device, count, rows, ask) {
            SUCCESS if *count == 0 => NOT_FOUND,
            result => result,
        }
    }
}

pub(crate) unsafe fn accounting_pids(
    real: unsafe extern "C" fn(u64, *mut u32, *mut u32) -> c_int,
    device: u64,
    count: *mut u32,
    pids: *mut u32,
) -> c_int {
    // SAFETY: the program's own call, with room of our own; the program promises what `keep` asks.
    unsafe { keep(device, count, pids, |count, rows| real(device, count, rows)) }
}

/// Only of processes that are in the slice now.
pub(crate) unsafe fn accounting_stats(
    real: unsafe extern "C" fn(u64, u32, *mut c_void) -> c_int,
    device: u64,
    pid: u32,
    statistics: *mut c_void,
) -> c_int {
    let Ok(ledger) = attach::ledger() else { return DRIVER_NOT_LOADED };
    if statistics.is_null() {
        // SAFETY: NVML refuses a null pointer itself.
        return unsafe { real(device, pid, statistics) };
    }
    match members(&ledger).find(|member| visible_pid(*member) == pid) {
        // SAFETY: the program's own call, with the pid by which NVML knows the process.
        Some(member) => unsafe { real(device, member.pid, statistics) },
        None => NOT_FOUND,
    }
}

/// The same, where the structure begins with the pid.
pub(crate) unsafe fn accounting_stats_v2(
    real: unsafe extern "C" fn(u64, *mut u32) -> c_int,
    device: u64,
    statistics: *mut u32,
) -> c_int {
    let Ok(ledger) = attach::ledger() else { return DRIVER_NOT_LOADED };
    if statistics.is_null() {
        // SAFETY: NVML refuses a null pointer itself.
        return unsafe { real(device, statistics) };
    }
    // SAFETY: the program's own call, with the pid by which NVML knows the process until it has answered; the
    // program promises that `statistics`, not null, is the structure.
    unsafe {
        let pid = *statistics;
        let Some(member) = members(&ledger).find(|member| visible_pid(*member) == pid) else {
            return NOT_FOUND;
        };
        *statistics = member.pid;
        let result = real(device, statistics);
        *statistics = pid;
        result
    }
}

/// Sessions of the slice's processes. Who brings no array is told how many there are, and that is no error.
pub(crate) unsafe fn sessions<const N: usize>(
    real: unsafe extern "C" fn(u64, *mut u32, *mut Session<N>) -> c_int,
    device: u64,
    count: *mut u32,
    sessions: *mut Session<N>,
) -> c_int {
    // SAFETY: the program's own call, with room of our own; the program promises what `keep` asks, and that `count`
    // can be written if there is no array.
    unsafe {
        if sessions.is_null() && !count.is_null() {
            *count = 0;
        }
        match keep(device, count, sessions, |count, rows| real(device, count, rows)) {
            INSUFFICIENT_SIZE if sessions.is_null() => SUCCESS,
            result => result,
        }
    }
}

/// Only of processes that are in the slice now.
pub(crate) unsafe fn process_name(
    real: unsafe extern "C" fn(u32, *mut c_char, u32) -> c_int,
    pid: u32,
    name: *mut c_char,
    length: u32,
) -> c_int {
    let Ok(ledger) = attach::ledger() else { return DRIVER_NOT_LOADED };
    if !members(&ledger).any(|member| visible_pid(member) == pid) {
        return NOT_FOUND;
    }
    // SAFETY: the program's own call.
    unsafe { real(pid, name, length) }
}

/// Of what NVML lists about a device, what is of the slice's processes.
///
/// # Safety
/// `count` must be null or valid, `rows` null or as long as it says, and `ask` as [`listed`] wants it.
unsafe fn keep<T: OfProcess>(
    device: u64,
    count: *mut u32,
    rows: *mut T,
    ask: impl FnMut(&mut u32, *mut T) -> c_int,
) -> c_int {
    if count.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller's promise.
    let listed = match unsafe { listed(ask) } {
        Ok(listed) => listed,
        Err(error) => return error,
    };
    let Ok(ledger) = attach::ledger() else { return DRIVER_NOT_LOADED };
    if slot(&ledger, device).is_none() {
        return INVALID_ARGUMENT;
    }
    let own = |row: &T| member(members(&ledger), row.pid()).map(|pid| row.with(pid));
    // SAFETY: the caller's promise.
    unsafe { deliver(listed.iter().filter_map(own), count, rows) }
}

/// The slice's processes.
fn members(ledger: &Ledger<'static>) -> impl Iterator<Item = Identity> + use<> {
    let control = ledger.tenant().control;
    (0..control.slots_high()).filter_map(Slot::new).filter_map(move |slot| control.identity(slot))
}

/// The pid by which the slice knows the process that NVML calls `pid`.
fn member(mut members: impl Iterator<Item = Identity>, pid: u32) -> Option<u32> {
    members.find(|identity| identity.pid == pid).map(visible_pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_known_by_the_pid_that_it_has_where_it_lives() {
        let outside = Identity { pid: 500, start_time: 1, inner_pid: 0 };
        let inside = Identity { pid: 501, start_time: 1, inner_pid: 7 };
        let known = |pid| member([outside, inside].into_iter(), pid);
        assert_eq!((known(500), known(501), known(7)), (Some(500), Some(7), None));
    }

    #[test]
    fn structures_are_as_large_as_programs_have_them() {
        assert_eq!((size_of::<Sample>(), size_of::<LongSample>()), (32, 40));
        assert_eq!((size_of::<EncoderSession>(), size_of::<CaptureSession>()), (32, 48));
        assert_eq!(Samples::VERSION, 0x100_0018);
    }
}
