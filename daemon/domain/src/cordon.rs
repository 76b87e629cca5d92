//! Cordons: GPUs that take no new slices by order of an operator. Existing slices stay.

use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::id::GpuUuid;
use crate::word::word;

word! {
    /// An operator's reason for an action, in free text.
    Reason,
    "a reason",
    "1 to 200 characters, none of them a control character, not only blanks",
    |text| !text.trim().is_empty() && text.chars().count() <= 200 && !text.chars().any(char::is_control)
}

/// An operator's order that a GPU takes no new slices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cordon {
    /// Uid of the operator.
    pub by_uid: u32,
    /// Time of the order, in milliseconds since the Unix epoch.
    pub since_unix_ms: u64,
    /// The operator's reason, if given.
    pub reason: Option<Reason>,
    /// Message with user, time and reason, made when the order was given.
    pub told: String,
}

impl fmt::Display for Cordon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.told)
    }
}

/// Result of a cordon or uncordon for one GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cordoned {
    /// Index as NVML counts GPUs.
    pub index: u32,
    /// UUID as NVML reports it.
    pub uuid: GpuUuid,
    /// The cordon now in force.
    pub cordon: Option<Cordon>,
    /// True if this differs from before.
    pub changed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_one_line_without_control_characters() {
        for good in ["fan is loud", "ä", "x: y; z"] {
            assert!(good.parse::<Reason>().is_ok(), "{good}");
        }
        let long = "x".repeat(201);
        for bad in ["", "  ", "a\nb", "\x1b[2J", &long] {
            let refused = bad.parse::<Reason>().unwrap_err();
            assert!(alloc::format!("{refused}").contains("1 to 200 characters"), "{bad:?}");
        }
    }
}
