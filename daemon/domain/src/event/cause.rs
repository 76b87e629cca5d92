//! Rules by which the daemon acts without a user's request for that act.

use alloc::string::{String, ToString};
use core::fmt;

use serde::{Deserialize, Serialize};

/// Defines the causes, each with its stable name.
macro_rules! causes {
    ($($(#[$about:meta])* $cause:ident = $word:literal;)*) => {
        /// Rule by which the daemon ended, parked or brought back something, by its stable name.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum EventCause {
            $($(#[$about])* $cause,)*
            /// A rule of another version.
            Other(String),
        }

        impl EventCause {
            /// All causes that this version defines.
            pub const KNOWN: &[Self] = &[$(Self::$cause),*];

            /// Name in JSON and in lists, which never changes.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$cause => $word,)*
                    Self::Other(word) => word,
                }
            }
        }

        impl From<String> for EventCause {
            fn from(word: String) -> Self {
                match word.as_str() {
                    $($word => Self::$cause,)*
                    _ => Self::Other(word),
                }
            }
        }
    };
}

causes! {
    /// The slice did not use its GPUs for its idle time.
    IdleTime = "idle-time";
    /// The stay of a rotating slice was over, or began.
    Rotation = "rotation";
    /// A program of a slice that was parked for its idleness made a call.
    Call = "call";
    /// The quota scheduler gave the part of the GPUs to another, or back.
    QuotaScheduler = "quota-scheduler";
    /// A member of a job ended, and its slice with it.
    JobEnd = "job-end";
    /// The slice was over its cap for longer than the grace of `over_cap`.
    OverCap = "over-cap";
    /// `violations` ends who evades the limits.
    Violation = "violation";
    /// An operator drained the GPU.
    Drain = "drain";
    /// A user deleted the slice with force.
    ForcedDeletion = "forced-deletion";
    /// The driver could not restore a process.
    NotRestored = "not-restored";
    /// An earlier daemon left a slice on its way.
    Restart = "restart";
}

impl fmt::Display for EventCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<EventCause> for String {
    fn from(cause: EventCause) -> Self {
        cause.as_str().to_string()
    }
}
