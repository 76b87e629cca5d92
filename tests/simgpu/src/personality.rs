//! Driver personalities as data: in which answers one version of the driver differs from another.
//!
//! A node has one, chosen when the node is made. The library of the driver API is staged once for each, as a machine has
//! the library of its driver installed; NVML reads the node's.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

/// The environment variable that names the personality of nodes made from now on.
pub const DRIVER_VARIABLE: &str = "SIMGPU_DRIVER";
/// The personality of a node whose preset names none.
pub const DEFAULT_PERSONALITY: &str = "550";

/// Answers of one driver version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Personality {
    /// Key, such as `550`.
    #[serde(default)]
    pub key: String,
    /// Version of the driver, as NVML gives it.
    pub version: String,
    /// CUDA version, as `cuDriverGetVersion` gives it. Functions and enumerators that are newer do not exist.
    pub cuda: i32,
    /// Addresses that `cuGetProcAddress` answers.
    pub look_up: LookUp,
    /// Least growth of a memory pool in MiB, a multiple of 2.
    pub pool_step_mib: u64,
    /// Moment at which code reaches a context, unless CUDA_MODULE_LOADING sets another.
    pub loading: Loading,
    /// State of a process whose restore found no room, which no driver mends.
    #[serde(default)]
    pub starved_restore: StarvedRestore,
}

/// State of a process whose restore found no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StarvedRestore {
    /// It seems to be checkpointed still, and every further restore fails.
    #[default]
    Checkpointed,
    /// It is shown as failed, and nothing is possible but its end.
    Failed,
}

/// Addresses that `cuGetProcAddress` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LookUp {
    /// Addresses of exported functions.
    Exported,
    /// Others, one for each function, that do the same.
    Foreign,
}

/// Moment at which a library's code reaches a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loading {
    /// All contexts at once, and each later one when it is made.
    Eager,
    /// Each context when something of the library is first needed there.
    Lazy,
}

impl Default for Personality {
    /// The one of [`DEFAULT_PERSONALITY`], which nodes had before there were others.
    fn default() -> Self {
        Self::named(DEFAULT_PERSONALITY).expect("a test reads all personalities that are built in")
    }
}

impl Personality {
    /// The personality with a key.
    pub fn named(key: &str) -> Option<Self> {
        personalities().find(|personality| personality.key == key)
    }

    /// True if something that came with a CUDA version exists.
    pub const fn has(&self, since: i32) -> bool {
        since <= self.cuda
    }

    /// The keys of all, for messages.
    pub fn keys() -> String {
        PERSONALITIES.map(|(key, _)| key).join(", ")
    }
}

const PERSONALITIES: [(&str, &str); 5] = [
    ("535", include_str!("../drivers/535.toml")),
    ("550", include_str!("../drivers/550.toml")),
    ("570", include_str!("../drivers/570.toml")),
    ("580", include_str!("../drivers/580.toml")),
    ("610", include_str!("../drivers/610.toml")),
];

/// Every personality, oldest first.
pub fn personalities() -> impl Iterator<Item = Personality> {
    PERSONALITIES.iter().map(|(key, text)| {
        let personality = toml::from_str(text).expect("built in: a test reads them all");
        Personality { key: (*key).into(), ..personality }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_personality_is_named_by_its_branch() {
        for personality in personalities() {
            assert_eq!(personality.version.split('.').next(), Some(personality.key.as_str()));
            assert_eq!(personality.pool_step_mib % 2, 0, "{}", personality.key);
        }
    }

    #[test]
    fn personalities_are_ordered_by_their_cuda_version() {
        assert!(personalities().map(|personality| personality.cuda).is_sorted());
        assert_eq!(Personality::default().cuda, 12_040);
        assert!(personalities().filter(|personality| personality.look_up == LookUp::Foreign).count() >= 2);
    }
}
