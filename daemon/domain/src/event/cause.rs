//! Rules by which the daemon acts without a user's request for that act.

use crate::word::extensible;

extensible! {
    /// Rule by which the daemon ended, parked or brought back something, by its stable name.
    pub enum EventCause {
        /// The slice did not use its GPUs for its idle time.
        IdleTime = "idle-time",
        /// The stay of a rotating slice was over, or began.
        Rotation = "rotation",
        /// A program of a slice that was parked for its idleness made a call.
        Call = "call",
        /// The quota scheduler gave the part of the GPUs to another, or back.
        QuotaScheduler = "quota-scheduler",
        /// A member of a job ended, and its slice with it.
        JobEnd = "job-end",
        /// The slice was over its cap for longer than the grace of `over_cap`.
        OverCap = "over-cap",
        /// `violations` ends who evades the limits.
        Violation = "violation",
        /// An operator drained the GPU.
        Drain = "drain",
        /// A user deleted the slice with force.
        ForcedDeletion = "forced-deletion",
        /// The driver could not restore a process.
        NotRestored = "not-restored",
        /// An earlier daemon left a slice on its way.
        Restart = "restart",
    }
}
