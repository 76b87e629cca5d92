//! GPUs that an operator keeps new slices off. What is there already stays.

use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::id::GpuUuid;
use crate::word::word;

word! {
    /// Why an operator did something, in their words.
    Reason,
    "a reason",
    "1 to 200 characters, none of them a control character, not only blanks",
    |text| !text.trim().is_empty() && text.chars().count() <= 200 && !text.chars().any(char::is_control)
}

/// That no further slice is put on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cordon {
    /// The user who said so.
    pub by_uid: u32,
    /// Since when, in milliseconds since the Unix epoch.
    pub since_unix_ms: u64,
    /// Why, where somebody said it.
    pub reason: Option<Reason>,
    /// All of this in a sentence, as people write names and dates.
    pub told: String,
}

impl fmt::Display for Cordon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.told)
    }
}

/// A GPU, and whether it is cordoned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cordoned {
    /// NVML index.
    pub index: u32,
    /// UUID.
    pub uuid: GpuUuid,
    /// How it is now.
    pub cordon: Option<Cordon>,
    /// Whether it was otherwise before.
    pub changed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_a_line_that_harms_no_terminal() {
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
