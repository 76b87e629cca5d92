//! The configuration file's format, and its conversion to a [`Config`].

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use tranche_config::Keys;
use tranche_domain::compute::{Latency, Priority};
use tranche_domain::fault::Xid;
use tranche_domain::id::GpuSelector;
use tranche_domain::request::{ComputeMode, Share, SliceRequest};
use tranche_domain::units::{Bytes, Permille};
use tranche_exposition::Address;

use super::settings::{Config, IgnoredXids};
use crate::layout::{Division, Layout, LayoutScope};
use crate::profile::{Profile, ProfileName};

/// Default time for which a failed GPU has to be healthy before its devices are.
const RECOVERY: Duration = Duration::from_secs(60);

/// Content of the file.
#[derive(Deserialize)]
pub(super) struct Document {
    resource_domain: Option<String>,
    tranched_socket: Option<PathBuf>,
    kubelet_dir: Option<PathBuf>,
    pod_resources_socket: Option<PathBuf>,
    features_dir: Option<PathBuf>,
    log: Option<String>,
    metrics: Option<Address>,
    events: Option<bool>,
    service_account_dir: Option<PathBuf>,
    gpus: Option<Vec<Scalar>>,
    ignored_xids: Option<Xids>,
    recovery_s: Option<u64>,
    dynamic: Option<bool>,
    #[serde(default)]
    profile: Vec<ProfileTable>,
    #[serde(default)]
    layout: Vec<LayoutTable>,
}

#[derive(Deserialize)]
struct ProfileTable {
    name: String,
    fraction: Option<Scalar>,
    memory_mib: Option<u64>,
    compute: Option<Scalar>,
    limit: Option<Scalar>,
    #[serde(default)]
    compute_mode: ComputeMode,
    #[serde(default)]
    priority: i32,
    latency_ms: Option<Scalar>,
}

#[derive(Deserialize)]
struct LayoutTable {
    gpu: Option<Scalar>,
    model: Option<String>,
    profiles: Vec<String>,
}

/// Fault numbers, or `all`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Xids {
    Word(String),
    Numbers(BTreeSet<u64>),
}

/// A number or a string; either is natural for names and amounts.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Integer(i64),
    Float(f64),
    Text(String),
}

impl Scalar {
    fn text(self) -> String {
        match self {
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

/// All keys of each table.
pub(super) fn keys() -> Keys {
    Keys::of::<Document>().and::<ProfileTable>("profile").and::<LayoutTable>("layout")
}

impl Document {
    /// Converts the values, as far as each is valid by itself.
    pub(super) fn understand(self) -> Result<Config, String> {
        let path = |given: Option<PathBuf>, default: &str| given.unwrap_or_else(|| default.into());
        let division = match (self.dynamic.unwrap_or(false), self.layout) {
            (true, layouts) if layouts.is_empty() => Division::Dynamic,
            (true, _) => return Err("`dynamic = true` and a [[layout]] exclude each other: keep one".into()),
            (false, layouts) => Division::Static(layouts.into_iter().map(layout).collect::<Result<_, _>>()?),
        };
        Ok(Config {
            resource_domain: self.resource_domain.unwrap_or_else(|| "tranche.dev".into()),
            tranched_socket: path(self.tranched_socket, "/run/tranche/tranched.sock"),
            kubelet_dir: path(self.kubelet_dir, "/var/lib/kubelet/device-plugins"),
            pod_resources_socket: path(
                self.pod_resources_socket,
                "/var/lib/kubelet/pod-resources/kubelet.sock",
            ),
            features_dir: self.features_dir,
            log: self.log.unwrap_or_else(|| "info".into()),
            metrics: self.metrics.unwrap_or(Address::Off),
            events: self.events.unwrap_or(true),
            service_account_dir: path(
                self.service_account_dir,
                "/var/run/secrets/kubernetes.io/serviceaccount",
            ),
            gpus: self.gpus.map(|gpus| gpus.into_iter().map(gpu).collect::<Result<_, _>>()).transpose()?,
            ignored_xids: self.ignored_xids.map(xids).transpose()?.unwrap_or_default(),
            recovery: self.recovery_s.map_or(RECOVERY, Duration::from_secs),
            profiles: self.profile.into_iter().map(profile).collect::<Result<_, _>>()?,
            division,
        })
    }
}

fn xids(given: Xids) -> Result<IgnoredXids, String> {
    match given {
        Xids::Word(word) if word == "all" => Ok(IgnoredXids::All),
        Xids::Word(word) => {
            Err(format!("ignored_xids {word:?} is neither \"all\" nor a list of numbers such as [48, 79]"))
        }
        Xids::Numbers(numbers) => Ok(IgnoredXids::AndThese(numbers.into_iter().map(Xid::new).collect())),
    }
}

fn profile(table: ProfileTable) -> Result<Profile, String> {
    let name: ProfileName = table.name.parse().map_err(|bad| format!("{bad}"))?;
    let of = |what: String| format!("profile {name}: {what}");
    let memory = table.memory_mib.map(Bytes::mib);
    if memory.is_some_and(|memory| memory == Bytes::ZERO) {
        return Err(of("memory_mib is 0; the smallest slice is 1 MiB".into()));
    }
    let (share, memory) = match (table.fraction, memory) {
        (Some(fraction), memory) => (share(fraction).map_err(of)?, memory),
        (None, Some(memory)) => (Share::Memory(memory), None),
        (None, None) => return Err(of("give it a fraction, memory_mib, or both".into())),
    };
    let part = |key: &str, given: Option<Scalar>| {
        given.map(|given| compute(given).map_err(|bad| of(format!("{key}: {bad}"))))
    };
    let request = SliceRequest {
        memory,
        compute: part("compute", table.compute).transpose()?,
        limit: part("limit", table.limit).transpose()?,
        mode: table.compute_mode,
        priority: Priority::try_from(table.priority).map_err(|bad| of(bad.to_string()))?,
        latency: table.latency_ms.map(latency).transpose().map_err(of)?,
        ..SliceRequest::of(share)
    };
    Ok(Profile { name, request })
}

fn share(fraction: Scalar) -> Result<Share, String> {
    match fraction.text().parse().map_err(|bad| format!("fraction: {bad}"))? {
        Share::Whole(count) if count.get() > 1 => Err(format!(
            "fraction: {count} GPUs are not one; a device is at most one GPU (1), and a pod may ask for several devices"
        )),
        share => Ok(share),
    }
}

/// A compute share in the syntax of fractions; zero is invalid.
fn compute(given: Scalar) -> Result<Permille, String> {
    match given.text().parse().map_err(|bad| format!("{bad}"))? {
        Share::Fraction(fraction) => Ok(fraction.permille()),
        Share::Whole(count) if count.get() == 1 => Ok(Permille::WHOLE),
        more => Err(format!("{more} is more than one GPU: write 0.001 to 1")),
    }
}

/// A latency target in milliseconds, to the microsecond.
fn latency(given: Scalar) -> Result<Latency, String> {
    let text = given.text();
    let micros = text.parse::<f64>().map_or(f64::NAN, |millis| (millis * 1000.0).round());
    if !(0.0..=f64::from(u32::MAX)).contains(&micros) {
        return Err(format!("latency_ms: {text:?} is no number of milliseconds such as 8 or 2.5"));
    }
    // In range, so the cast truncates nothing.
    Latency::try_from(micros as u32).map_err(|bad| format!("latency_ms: {bad}"))
}

fn layout(table: LayoutTable) -> Result<Layout, String> {
    let of = match (table.gpu, table.model) {
        (Some(_), Some(_)) => return Err("a layout is for a `gpu` or a `model`, not for both".into()),
        (Some(given), None) => LayoutScope::Gpu(gpu(given)?),
        (None, Some(model)) => LayoutScope::Model(model),
        (None, None) => LayoutScope::Any,
    };
    let names = table.profiles.iter().map(|name| name.parse().map_err(|bad| format!("{bad}")));
    Ok(Layout { of, profiles: names.collect::<Result<_, _>>()? })
}

fn gpu(given: Scalar) -> Result<GpuSelector, String> {
    given.text().parse().map_err(|bad| format!("{bad}, nor an index such as 0"))
}
