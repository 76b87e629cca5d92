//! Named instants at which a test may kill the process: nothing at all unless built with `crash-points`.
//!
//! Either side of the protocol may die at any instruction. A point stands between two steps of which each is
//! seen by others, so that dying there leaves what no other place leaves.

#[cfg(feature = "crash-points")]
static HOOK: std::sync::OnceLock<fn(&'static str)> = std::sync::OnceLock::new();

/// The process has come to the point of that name.
#[cfg(feature = "crash-points")]
pub fn point(name: &'static str) {
    if let Some(hook) = HOOK.get() {
        hook(name);
    }
}

/// The process has come to the point of that name, and nobody cares.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub const fn point(_name: &'static str) {}

/// From now on `hook` is called at each point. The first hook stays.
#[cfg(feature = "crash-points")]
pub fn hook(hook: fn(&'static str)) {
    let _ = HOOK.set(hook);
}
