//! User that makes a request.

/// User that makes a request, as the daemon knows it from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Uid of the user.
    pub uid: u32,
    /// True if the user administers the node.
    pub admin: bool,
}
