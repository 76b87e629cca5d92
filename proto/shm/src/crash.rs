//! Named instants at which a test can kill the process; empty unless built with `crash-points`.
//!
//! Either side of the protocol can die at any instruction. A point stands between two steps that other processes
//! observe, so that each point leaves a state of its own behind.

#[cfg(feature = "crash-points")]
static HOOK: std::sync::OnceLock<fn(&'static str)> = std::sync::OnceLock::new();

/// Calls the hook, if one is set, with the name of a point.
#[cfg(feature = "crash-points")]
pub fn point(name: &'static str) {
    if let Some(hook) = HOOK.get() {
        hook(name);
    }
}

/// Does nothing, in builds without `crash-points`.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub const fn point(_name: &'static str) {}

/// Sets the hook that every point calls. The first hook stays; later ones are ignored.
#[cfg(feature = "crash-points")]
pub fn hook(hook: fn(&'static str)) {
    let _ = HOOK.set(hook);
}
