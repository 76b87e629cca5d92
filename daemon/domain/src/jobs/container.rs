//! Containers of jobs: image, mounts, ports and the policy for pulling the image.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU16;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;
use crate::word::{named, word};

word! {
    /// Name of a container image: repository, with or without registry, tag and digest.
    ImageName,
    "the name of a container image",
    "[REGISTRY[:PORT]/]REPOSITORY[:TAG][@DIGEST], such as docker.io/jupyter/base-notebook:latest, with the repository in \
     small letters",
    is_image
}

/// Container in which the members of a job run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    /// Image of the container.
    pub image: ImageName,
    /// Folders and volumes of the node in the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<ContainerMount>,
    /// Ports of the container that the node publishes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PublishedPort>,
    /// Size of `/dev/shm`; `None` for podman's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shm: Option<Bytes>,
    /// Condition for pulling the image.
    #[serde(default)]
    pub pull: PullPolicy,
    /// Working directory in the container; `None` for the image's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Environment of podman itself, which the container does not get.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engine: Vec<(String, String)>,
}

impl ContainerSpec {
    /// Maximum number of mounts, and of ports.
    pub const MOST: usize = 64;
    /// Folder of Tranche's own files in containers.
    pub const OUR_HOME: &str = "/run/tranche";
}

/// Error of a container that podman could not make.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the error texts document them
pub enum BadContainer {
    #[error(
        "{0:?} is no mount: use HOST:PATH or NAME:PATH with an absolute PATH in the container, and :ro behind it for one \
         that is only read; a HOST that begins with / or ./ is a path of this node, and a NAME a volume of podman's"
    )]
    Mount(String),
    #[error(
        "{0:?} cannot be mounted at {home}, where the slice's own files are: choose another path in the container",
        home = ContainerSpec::OUR_HOME
    )]
    Occupied(String),
    #[error("{0:?} is no port: use PORT or HOST:CONTAINER, each from 1 to 65535")]
    Port(String),
    #[error("port {0} of the node would be published twice")]
    SamePort(NonZeroU16),
    #[error("a container has at most {} mounts and as many ports", ContainerSpec::MOST)]
    TooMany,
    #[error("{0:?} is no policy for pulling an image: use always, missing, never or newer")]
    Pull(String),
    #[error(
        "{0:?} is no name for a variable of a container: it has letters, digits and other signs, but no '*'"
    )]
    Variable(String),
    #[error("{0:?} is no absolute path, and a container's working directory has to be one")]
    Workdir(String),
}

/// A folder or volume of the node in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerMount {
    /// Absolute path on the node, or the name of a volume.
    pub source: String,
    /// Absolute path in the container.
    pub target: String,
    /// True if the container may not write there.
    #[serde(default)]
    pub read_only: bool,
}

impl ContainerMount {
    /// Tests if a folder or file of the node is mounted, and not a volume.
    pub fn is_path(&self) -> bool {
        self.source.starts_with('/')
    }

    /// Checks what podman would read otherwise than meant.
    ///
    /// # Errors
    /// If the source or the target is no such path or name.
    pub fn check(&self) -> Result<(), BadContainer> {
        let plain = |path: &str| path.starts_with('/') && !path.contains([':', '\0', '\n', '\r']);
        let source = if self.is_path() { plain(&self.source) } else { is_volume(&self.source) };
        let parts = self.target.split('/').filter(|part| !part.is_empty());
        if !source || !plain(&self.target) || parts.clone().any(|part| part == "..") {
            return Err(BadContainer::Mount(self.to_string()));
        }
        let home = ContainerSpec::OUR_HOME.split('/').filter(|part| !part.is_empty());
        let parts: Vec<&str> = parts.filter(|part| *part != ".").collect();
        let home: Vec<&str> = home.collect();
        match parts.starts_with(&home) || home.starts_with(&parts) {
            true => Err(BadContainer::Occupied(self.to_string())),
            false => Ok(()),
        }
    }
}

impl FromStr for ContainerMount {
    type Err = BadContainer;

    /// Parses `SOURCE:TARGET[:ro|rw]`. A source on the node has to be absolute here.
    fn from_str(text: &str) -> Result<Self, BadContainer> {
        let bad = || BadContainer::Mount(text.to_owned());
        let parts: Vec<&str> = text.split(':').collect();
        let (source, target, options) = match parts[..] {
            [source, target] => (source, target, "rw"),
            [source, target, options] => (source, target, options),
            _ => return Err(bad()),
        };
        let read_only = match options {
            "rw" => false,
            "ro" => true,
            _ => return Err(bad()),
        };
        let mount = Self { source: source.to_owned(), target: target.to_owned(), read_only };
        mount.check()?;
        Ok(mount)
    }
}

impl fmt::Display for ContainerMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}{}", self.source, self.target, if self.read_only { ":ro" } else { "" })
    }
}

/// A port of a container, and the node's port that leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedPort {
    /// Port of the node.
    pub host: NonZeroU16,
    /// Port in the container.
    pub container: NonZeroU16,
}

impl FromStr for PublishedPort {
    type Err = BadContainer;

    fn from_str(text: &str) -> Result<Self, BadContainer> {
        let (host, container) = text.split_once(':').unwrap_or((text, text));
        let port = |text: &str| text.parse().map_err(|_| BadContainer::Port(text.to_owned()));
        Ok(Self { host: port(host)?, container: port(container)? })
    }
}

impl fmt::Display for PublishedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.container)
    }
}

named! {
    /// Condition for pulling an image.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum PullPolicy {
        /// Each start pulls the image.
        Always = "always",
        /// A start pulls it if it is not on the node.
        #[default]
        Missing = "missing",
        /// The image has to be on the node.
        Never = "never",
        /// A start pulls it if the registry has a newer one.
        Newer = "newer",
    }
}

impl FromStr for PullPolicy {
    type Err = BadContainer;

    fn from_str(text: &str) -> Result<Self, BadContainer> {
        let found = Self::ALL.iter().find(|policy| policy.as_str() == text);
        found.copied().ok_or_else(|| BadContainer::Pull(text.to_owned()))
    }
}

/// Tests if a text is the name of a volume, as podman requires it.
fn is_volume(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

/// Tests if a text is the name of an image, in the grammar of `containers/image`.
fn is_image(text: &str) -> bool {
    let (name, digest) = match text.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (text, None),
    };
    // A colon before the last slash belongs to the registry's port.
    let repository_end = name.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match name[repository_end..].find(':') {
        Some(colon) => (&name[..repository_end + colon], Some(&name[repository_end + colon + 1..])),
        None => (name, None),
    };
    let (first, others) = name.split_once('/').map_or((None, name), |(first, rest)| (Some(first), rest));
    let (registry, path) = match first {
        Some(first) if first.contains(['.', ':']) || first == "localhost" => (Some(first), others),
        _ => (None, name),
    };
    text.len() <= 255
        && registry.is_none_or(is_registry)
        && path.split('/').all(is_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest)
}

fn is_registry(text: &str) -> bool {
    let (host, port) = text.split_once(':').unwrap_or((text, "1"));
    let label = |label: &str| {
        !label.starts_with('-')
            && !label.ends_with('-')
            && !label.is_empty()
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    host.split('.').all(label) && port.parse::<NonZeroU16>().is_ok()
}

/// Tests a part of a repository: small letters and digits, with `.`, `_`, `__` or dashes between.
fn is_component(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separators = text.split(plain).filter(|between| !between.is_empty());
    let ends = text.starts_with(plain) && text.ends_with(plain);
    ends && separators
        .clone()
        .all(|between| [".", "_", "__"].contains(&between) || between.chars().all(|c| c == '-'))
}

fn is_tag(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(word) && text.len() <= 128 && text.chars().all(|c| word(c) || ".-".contains(c))
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    algorithm.starts_with(|c: char| c.is_ascii_alphabetic())
        && algorithm.chars().all(|c| c.is_ascii_alphanumeric() || "+._-".contains(c))
        && hex.len() >= 32
        && hex.chars().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_names_follow_the_grammar_of_registries() {
        let digest = "a".repeat(64);
        for good in [
            "busybox",
            "jupyter/base-notebook",
            "quickstart-hpo",
            "gcr.io/run-ai-demo/quickstart",
            "nvcr.io/nvidia/pytorch:24.05-py3",
            "localhost:5000/a/b_c/d__e:V1",
            &alloc::format!("docker.io/library/x@sha256:{digest}"),
        ] {
            assert!(good.parse::<ImageName>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "-x",
            "--privileged",
            "A/b",
            "a//b",
            "/a",
            "a/",
            "a:b:c",
            "a:",
            "a b",
            "a\nb",
            "a@sha256:12",
            "a;b",
            "docker://a",
            "../a",
            "a.:5/x",
            "host:0/x",
            "oci-archive:/tmp/x",
        ] {
            assert!(bad.parse::<ImageName>().is_err(), "{bad:?}");
        }
        let refused = "A/b".parse::<ImageName>().unwrap_err().to_string();
        assert!(refused.contains("small letters"), "{refused}");
    }

    #[test]
    fn mount_is_a_path_or_a_volume() {
        let mount = |text: &str| text.parse::<ContainerMount>();
        let nfs = mount("/nfs:/data:ro").unwrap();
        assert!(nfs.is_path() && nfs.read_only && nfs.to_string() == "/nfs:/data:ro");
        let volume = mount("claim:/path").unwrap();
        assert!(!volume.is_path() && !volume.read_only && volume.to_string() == "claim:/path");
        for bad in [
            "/nfs",
            "",
            ":",
            "/a:b",
            "a b:/c",
            "-a:/c",
            "/a:/b:rw,exec",
            "/a:/b:z",
            "a/b:/c",
            "/a:/b/../c",
            "x:/\n",
        ] {
            assert!(matches!(mount(bad), Err(BadContainer::Mount(_))), "{bad:?}");
        }
        for occupied in
            ["/a:/run/tranche", "/a:/run/tranche/slice", "/a:/run", "/a://run/./tranche/x", "/a:/"]
        {
            assert!(matches!(mount(occupied), Err(BadContainer::Occupied(_))), "{occupied}");
        }
        assert!(mount("/a:/run/tranches").is_ok());
    }

    #[test]
    fn port_is_one_number_or_two() {
        let port = |text: &str| text.parse::<PublishedPort>().map(|port| port.to_string());
        assert_eq!(port("8888").unwrap(), "8888:8888");
        assert_eq!(port("80:8888").unwrap(), "80:8888");
        for bad in ["", "0", "1:", ":1", "65536", "1:2:3", "a", "127.0.0.1:1:2", "-1"] {
            assert!(port(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn pull_policy_is_podmans() {
        for text in ["always", "missing", "never", "newer"] {
            assert_eq!(text.parse::<PullPolicy>().unwrap().to_string(), text);
        }
        assert!("Always".parse::<PullPolicy>().unwrap_err().to_string().contains("missing"));
    }
}
