//! The library between `nvmlInit` and the last `nvmlShutdown`, and the devices behind handles.
#![forbid(unsafe_code)]

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use simgpu::Node;

use crate::abi::Handle;
use crate::device::Device;
use crate::events::Listeners;
use crate::handle::FIRST_HANDLE;
use crate::session::Session;
use crate::status::{Answer, Failure};

struct Library {
    users: usize,
    session: Option<Arc<Session>>,
}

static LIBRARY: RwLock<Library> = RwLock::new(Library { users: 0, session: None });

/// Interval at which a call to a GPU that hangs checks whether it still does.
const HANGS_FOR: Duration = Duration::from_millis(20);

/// Attaches to the node at the first call; counts each.
pub(crate) fn init() -> Answer<()> {
    let mut library = LIBRARY.write().unwrap_or_else(PoisonError::into_inner);
    if library.session.is_none() {
        let node = Node::from_env().map_err(|_| Failure::DriverNotLoaded)?;
        library.session = Some(Arc::new(Session { node, listeners: Listeners::default() }));
    }
    library.users += 1;
    Ok(())
}

/// Undoes one `init`; the last detaches.
pub(crate) fn shutdown() -> Answer<()> {
    let mut library = LIBRARY.write().unwrap_or_else(PoisonError::into_inner);
    library.users = library.users.checked_sub(1).ok_or(Failure::Uninitialized)?;
    if library.users == 0 {
        library.session = None;
    }
    Ok(())
}

/// The session, if there is one.
pub(crate) fn session() -> Answer<Arc<Session>> {
    LIBRARY.read().unwrap_or_else(PoisonError::into_inner).session.clone().ok_or(Failure::Uninitialized)
}

/// Device of a handle, unless it is lost. Waits while the GPU hangs.
pub(crate) fn device(handle: Handle) -> Answer<Device> {
    let device = identity(handle)?;
    while device.session.node.settings(device.gpu).hangs {
        std::thread::sleep(HANGS_FOR);
    }
    device.present()
}

/// Device of a handle, even if it is lost.
pub(crate) fn identity(handle: Handle) -> Answer<Device> {
    let session = session()?;
    let index = handle.checked_sub(FIRST_HANDLE).ok_or(Failure::InvalidArgument)?;
    let gpu = session.node.gpu(index).ok_or(Failure::InvalidArgument)?;
    Ok(Device { session, gpu })
}
