//! Pods: the container that an orchestrator created a slice for, in Kubernetes' terms and bounds.
//!
//! This is information for display. Access decisions use the peer's credentials from the kernel.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::word::{BadWord, is_label, is_subdomain, word};

/// A container of a pod; as text `namespace/pod/container`, without the uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodContainer {
    /// Namespace of the pod in Kubernetes.
    pub namespace: DnsLabel,
    /// Name within the namespace.
    pub name: PodName,
    /// Container within the pod.
    pub container: DnsLabel,
    /// The pod's uid, if known. Unlike names, uids are not reused.
    #[serde(default)]
    pub uid: Option<PodUid>,
}

/// Maximum length of a Kubernetes name in bytes.
const LONGEST: usize = 253;

word! {
    /// Name of a namespace or container.
    ///
    /// It has 1 to 63 of `a-z 0-9 -`, beginning and ending with a letter or digit.
    DnsLabel,
    "the name of a namespace or container",
    "1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit",
    is_label
}

word! {
    /// Name of a pod: DNS labels separated by dots, at most 253 bytes.
    PodName,
    "the name of a pod",
    "at most 253 of a-z, 0-9, '-' and '.', each part between dots beginning and ending with a letter or digit",
    |text| is_subdomain(text, LONGEST)
}

word! {
    /// Uid of a pod: a UUID, or the hash of a static pod's manifest; 1 to 63 of `a-z A-Z 0-9 -`.
    PodUid,
    "the uid of a pod",
    "1 to 63 of a-z, A-Z, 0-9 and '-'",
    |text| (1..=63).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

impl FromStr for PodContainer {
    type Err = BadWord;

    fn from_str(text: &str) -> Result<Self, BadWord> {
        let mut parts = text.split('/');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(namespace), Some(name), Some(container), None) => Ok(Self {
                namespace: namespace.parse()?,
                name: name.parse()?,
                container: container.parse()?,
                uid: None,
            }),
            _ => Err(BadWord::new(text, "a container of a pod", "NAMESPACE/POD/CONTAINER")),
        }
    }
}

impl fmt::Display for PodContainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.name, self.container)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::format;
    use std::string::{String, ToString};

    #[test]
    fn displayed_container_parses_back() {
        let text = "default/train-7d.x/main";
        let container: PodContainer = text.parse().unwrap();
        assert_eq!(container.to_string(), text);
        assert_eq!((container.name.as_str(), container.uid), ("train-7d.x", None));
    }

    #[test]
    fn invalid_kubernetes_name_is_rejected() {
        for bad in ["", "a/b", "a/b/c/d", "a//c", "A/b/c", "a/b./c", "-a/b/c", "a/b/c.d", "a/b/\u{1b}[0m"] {
            assert!(bad.parse::<PodContainer>().is_err(), "{bad:?}");
        }
        let refused = "a/b".parse::<PodContainer>().unwrap_err().to_string();
        assert!(refused.contains("NAMESPACE/POD/CONTAINER"), "{refused}");
    }

    #[test]
    fn names_and_their_errors_are_bounded() {
        let long = |count| "a".repeat(count);
        assert!(long(63).parse::<DnsLabel>().is_ok() && long(64).parse::<DnsLabel>().is_err());
        assert!(long(253).parse::<PodName>().is_ok() && long(254).parse::<PodName>().is_err());
        assert!(long(63).parse::<PodUid>().is_ok() && long(64).parse::<PodUid>().is_err());
        assert!(long(1 << 20).parse::<PodName>().unwrap_err().to_string().len() < 500);
    }

    proptest! {
        #[test]
        fn parsing_a_container_never_panics(text: String) {
            let _ = text.parse::<PodContainer>();
            let _ = text.parse::<PodUid>();
        }

        #[test]
        fn parsed_container_displays_alike(text in "[a-z0-9./-]{0,12}") {
            if let Ok(container) = text.parse::<PodContainer>() {
                prop_assert_eq!(format!("{container}"), text);
            }
        }
    }
}
