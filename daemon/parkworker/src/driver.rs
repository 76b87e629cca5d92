//! The driver's checkpoint calls, by `dlsym`.
//!
//! Results and states are plain numbers here: a later driver may have codes that this version does not know, which no
//! enumeration of bindings could hold.

use std::ffi::CStr;
use std::mem::transmute;
use std::ptr::null_mut;

use libc::{c_int, c_void};

use crate::protocol::{DriverState, ParkCall, WorkerReply};

const LIBRARY: &CStr = c"libcuda.so.1";
const SUCCESS: c_int = 0;
/// The process has not initialised the driver.
const NOT_INITIALIZED: c_int = 3;

/// `CUcheckpointLockArgs`
#[repr(C)]
struct LockArguments {
    timeout_ms: u32,
    reserved: u32,
    more_reserved: [u64; 7],
}

const _: () = assert!(size_of::<LockArguments>() == 64);

type Init = unsafe extern "C" fn(u32) -> c_int;
type GetState = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
type Lock = unsafe extern "C" fn(c_int, *mut LockArguments) -> c_int;
type Plain = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;

/// An initialised driver that has the calls.
#[derive(Clone, Copy)]
pub(crate) struct CheckpointDriver {
    state: GetState,
    lock: Lock,
    checkpoint: Plain,
    restore: Plain,
    unlock: Plain,
}

impl CheckpointDriver {
    /// Loads and initialises the driver; a reply for every request where that is not possible.
    pub(crate) fn load() -> Result<Self, WorkerReply> {
        // SAFETY: the name is a C string. Loading runs the library's initialisers; those of libcuda have no
        // preconditions, and this process exists to load it. It is never unloaded.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err(WorkerReply::Unsupported);
        }
        let symbol = |name: &CStr| {
            // SAFETY: the handle is that of a loaded library, and the name is a C string.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            if address.is_null() { Err(WorkerReply::Unsupported) } else { Ok(address) }
        };
        let plain = |name| {
            // SAFETY: not null, so it is the driver's function of this name, and each of the three called with it takes
            // a pid and the address of 64 bytes of arguments, or null, by the driver's header.
            symbol(name).map(|address| unsafe { transmute::<*mut c_void, Plain>(address) })
        };
        // SAFETY: not null, so these are the driver's functions of these names, with the signatures of its header.
        let (init, driver) = unsafe {
            let init = transmute::<*mut c_void, Init>(symbol(c"cuInit")?);
            let driver = Self {
                state: transmute::<*mut c_void, GetState>(symbol(c"cuCheckpointProcessGetState")?),
                lock: transmute::<*mut c_void, Lock>(symbol(c"cuCheckpointProcessLock")?),
                checkpoint: plain(c"cuCheckpointProcessCheckpoint")?,
                restore: plain(c"cuCheckpointProcessRestore")?,
                unlock: plain(c"cuCheckpointProcessUnlock")?,
            };
            (init, driver)
        };
        // SAFETY: cuInit takes a number, which has to be zero, and may be called at any time.
        done(unsafe { init(0) }).map(|()| driver)
    }

    /// Carries out a request about the process with this pid; may not return.
    pub(crate) fn call(self, verb: ParkCall, pid: u32) -> WorkerReply {
        let Ok(pid) = c_int::try_from(pid) else { return WorkerReply::NotOfASlice };
        let plain = |call: Plain| {
            // SAFETY: `call` is one of the driver's three functions to which null arguments mean defaults.
            reply(unsafe { call(pid, null_mut()) })
        };
        match verb {
            ParkCall::State => self.state_of(pid),
            ParkCall::Lock(timeout) => {
                let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
                let mut arguments = LockArguments { timeout_ms, reserved: 0, more_reserved: [0; 7] };
                // SAFETY: the arguments are a local with the layout of the driver's header, zero where it is reserved.
                reply(unsafe { (self.lock)(pid, &raw mut arguments) })
            }
            ParkCall::Checkpoint => plain(self.checkpoint),
            ParkCall::Restore => plain(self.restore),
            ParkCall::Unlock => plain(self.unlock),
        }
    }

    fn state_of(self, pid: c_int) -> WorkerReply {
        let mut state = 0;
        // SAFETY: the state is a local of the size of the driver's enumeration, an int.
        match unsafe { (self.state)(pid, &raw mut state) } {
            SUCCESS => WorkerReply::State(match state {
                0 => DriverState::Running,
                1 => DriverState::Locked,
                2 => DriverState::Checkpointed,
                3 => DriverState::Failed,
                // From CUDA 13.4 on: a checkpoint or restore is under way.
                _ => DriverState::Busy,
            }),
            NOT_INITIALIZED => WorkerReply::State(DriverState::Uninitialized),
            error => reply(error),
        }
    }
}

fn reply(result: c_int) -> WorkerReply {
    done(result).map_or_else(|error| error, |()| WorkerReply::Done)
}

fn done(result: c_int) -> Result<(), WorkerReply> {
    if result == SUCCESS { Ok(()) } else { Err(WorkerReply::Driver(result.unsigned_abs())) }
}
