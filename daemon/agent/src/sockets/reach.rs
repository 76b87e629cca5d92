//! Scope of the daemon, and the modes of its sockets and directories that follow from it.

/// Scope of the daemon, which determines access to its sockets and the protection of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonScope {
    /// The whole node: the daemon runs as root, tenants as any user.
    Node,
    /// The user that the daemon runs as.
    User,
}

impl DaemonScope {
    /// Scope that this process's user allows.
    pub fn of_this_process() -> Self {
        if nix::unistd::geteuid().is_root() { Self::Node } else { Self::User }
    }

    pub(super) const fn directory_mode(self) -> u32 {
        match self {
            Self::Node => 0o755, // tenants of all users pass through to their slice's socket
            Self::User => 0o700,
        }
    }

    /// Mode of the gRPC socket. On a node every user may connect; each call is authorized by the peer's identity from
    /// the kernel.
    pub(crate) const fn door_mode(self) -> u32 {
        match self {
            Self::Node => 0o666,
            Self::User => 0o600,
        }
    }

    /// Mode of a slice's socket. On a node every user may connect; only descendants of the slice's roots are
    /// admitted, by the peer's identity from the kernel.
    pub(super) const fn attach_mode(self) -> u32 {
        match self {
            Self::Node => 0o666,
            Self::User => 0o600,
        }
    }
}
