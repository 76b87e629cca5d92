//! Address of the metrics endpoint: off, a Unix socket, or TCP.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Address of the metrics endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// No address: nothing listens.
    Off,
    /// A Unix socket, protected by its permissions.
    Unix(PathBuf),
    /// An IP address and port.
    Tcp(SocketAddr),
}

/// Error for a text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no place to serve metrics at: write an address with a port such as \"127.0.0.1:9464\" or \"[::1]:9464\", \
     the absolute path of a socket, or \"off\""
)]
pub struct BadAddress(pub String);

impl Address {
    /// Tests if other machines may reach it.
    pub fn is_reachable_from_outside(&self) -> bool {
        matches!(self, Self::Tcp(address) if !address.ip().to_canonical().is_loopback())
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        if text == "off" {
            return Ok(Self::Off);
        }
        if Path::new(text).is_absolute() {
            return Ok(Self::Unix(text.into()));
        }
        text.parse().map(Self::Tcp).map_err(|_| BadAddress(text.to_owned()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Address;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address with a port, the absolute path of a socket, or \"off\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Address, E> {
                text.parse().map_err(E::custom)
            }
        }
        from.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn address_path_and_off_parse() {
        for text in ["off", "127.0.0.1:9464", "[::1]:9464", "/run/tranche/metrics.sock", "0.0.0.0:0"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("/a".parse(), Ok(Address::Unix("/a".into())));
    }

    #[test]
    fn invalid_address_error_lists_the_forms() {
        for text in
            ["", "of", "9464", ":9464", "localhost:9464", "::1:9464", "run/metrics.sock", "127.0.0.1:99999"]
        {
            let refused = text.parse::<Address>().unwrap_err().to_string();
            assert!(refused.contains(&format!("{text:?}")) && refused.contains("\"off\""), "{refused}");
        }
    }

    #[test]
    fn only_loopback_and_sockets_are_local() {
        let outside = |text: &str| text.parse::<Address>().unwrap().is_reachable_from_outside();
        for inside in ["off", "/s", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(!outside(inside), "{inside}");
        }
        for open in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[fe80::1]:1"] {
            assert!(outside(open), "{open}");
        }
    }

    proptest! {
        #[test]
        fn displayed_address_parses_back(text in ".{0,40}") {
            if let Ok(address) = text.parse::<Address>() {
                prop_assert_eq!(address.to_string().parse(), Ok(address));
            }
        }
    }
}
