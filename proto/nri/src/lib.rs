//! Node resource interface (NRI): messages between a container runtime and a plugin.
//!
//! A connection has two streams of ttrpc calls: the plugin's to the runtime, and the runtime's to the plugin. The same
//! code is either side, so a test can be the runtime. Only calls with one request and one response exist.
//!
//! Law: the numbers and names of the definitions are the interface's; nothing is decided here. Input of any content
//! yields messages or an error.
#![forbid(unsafe_code)]

pub mod wire;

/// Messages of NRI `v1alpha1`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::unwrap_used)]
pub mod api {
    include!(concat!(env!("OUT_DIR"), "/nri.pkg.api.v1alpha1.rs"));

    /// Service of the plugin, called by the runtime.
    pub const PLUGIN: &str = "nri.pkg.api.v1alpha1.Plugin";
    /// Service of the runtime, called by the plugin.
    pub const RUNTIME: &str = "nri.pkg.api.v1alpha1.Runtime";
    /// Default path of the runtime's socket.
    pub const SOCKET: &str = "/var/run/nri/nri.sock";
}

/// Requests and responses of ttrpc, the calls of containerd.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::unwrap_used)]
pub mod ttrpc {
    include!(concat!(env!("OUT_DIR"), "/ttrpc.rs"));
}
