//! Parameters of a slice, as a DeviceClass or a claim gives them to the driver.

use k8s_openapi::api::resource::v1::DeviceAllocationConfiguration;
use serde::Deserialize;
use tranche_domain::compute::{Latency, Priority};
use tranche_domain::request::ComputeMode;
use tranche_domain::units::Permille;

/// Version and kind that parameters carry.
pub(crate) const API_VERSION: &str = "gpu.tranche.dev/v1";
pub(crate) const KIND: &str = "SliceParameters";

/// Parameters of a slice beside its size; what is absent has the daemon's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SliceParameters {
    pub(crate) mode: Option<ComputeMode>,
    /// Compute limit on each GPU.
    pub(crate) limit: Option<Permille>,
    pub(crate) priority: Option<Priority>,
    pub(crate) latency: Option<Latency>,
}

/// The document with its units.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ParameterDocument {
    api_version: String,
    kind: String,
    compute_mode: Option<ComputeMode>,
    limit_permille: Option<u32>,
    priority: Option<i32>,
    latency_ms: Option<u32>,
}

/// Reason for which parameters are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadSliceParameters {
    #[error(
        "parameters of {source_name} cannot be read: {why}; the fields are apiVersion, kind, computeMode, limitPermille, priority and latencyMs"
    )]
    Unreadable { source_name: String, why: String },
    #[error("parameters of {source_name} are {given}; {API_VERSION} {KIND} is known here")]
    Version { source_name: String, given: String },
    #[error("parameters of {source_name}: {why}")]
    Value { source_name: String, why: String },
}

impl SliceParameters {
    /// Parameters of one request: those of its class, replaced field by field by the claim's.
    pub(crate) fn of(
        driver: &str,
        request: &str,
        configurations: &[DeviceAllocationConfiguration],
    ) -> Result<Self, BadSliceParameters> {
        let concerns = |config: &&DeviceAllocationConfiguration| {
            let requests = config.requests.as_deref().unwrap_or_default();
            // The name of a request covers its subrequests.
            let main = request.split('/').next().unwrap_or(request);
            requests.is_empty() || requests.iter().any(|name| name == request || name == main)
        };
        let mut all = Self::default();
        for source in ["FromClass", "FromClaim"] {
            for config in configurations.iter().filter(|config| config.source == source).filter(concerns) {
                let Some(opaque) = config.opaque.as_ref().filter(|opaque| opaque.driver == driver) else {
                    continue;
                };
                let source_name = if source == "FromClass" { "the DeviceClass" } else { "the claim" };
                all = all.replaced_by(read(source_name, &opaque.parameters.0)?);
            }
        }
        Ok(all)
    }

    fn replaced_by(self, later: Self) -> Self {
        Self {
            mode: later.mode.or(self.mode),
            limit: later.limit.or(self.limit),
            priority: later.priority.or(self.priority),
            latency: later.latency.or(self.latency),
        }
    }
}

fn read(source_name: &str, parameters: &serde_json::Value) -> Result<SliceParameters, BadSliceParameters> {
    let source_name = source_name.to_owned();
    let document = match ParameterDocument::deserialize(parameters) {
        Ok(document) => document,
        Err(error) => return Err(BadSliceParameters::Unreadable { source_name, why: error.to_string() }),
    };
    if document.api_version != API_VERSION || document.kind != KIND {
        let given = format!("{} {}", document.api_version, document.kind);
        return Err(BadSliceParameters::Version { source_name, given });
    }
    let bad = |why: String| BadSliceParameters::Value { source_name: source_name.clone(), why };
    let micros = |millis: u32| {
        millis.checked_mul(1000).ok_or_else(|| bad(format!("latencyMs {millis} is above 10000")))
    };
    let latency = document.latency_ms.map(micros).transpose()?;
    Ok(SliceParameters {
        mode: document.compute_mode,
        limit: document
            .limit_permille
            .map(Permille::try_from)
            .transpose()
            .map_err(|why| bad(why.to_string()))?,
        priority: document
            .priority
            .map(Priority::try_from)
            .transpose()
            .map_err(|why| bad(why.to_string()))?,
        latency: latency.map(Latency::try_from).transpose().map_err(|why| bad(why.to_string()))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::resource::v1::OpaqueDeviceConfiguration;
    use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
    use serde_json::{Value, json};

    fn given(source: &str, requests: &[&str], mut parameters: Value) -> DeviceAllocationConfiguration {
        if let Some(fields) = parameters.as_object_mut() {
            fields.entry("apiVersion").or_insert(API_VERSION.into());
            fields.entry("kind").or_insert(KIND.into());
        }
        DeviceAllocationConfiguration {
            source: source.into(),
            requests: Some(requests.iter().map(|name| (*name).to_owned()).collect()),
            opaque: Some(OpaqueDeviceConfiguration {
                driver: "d".into(),
                parameters: RawExtension(parameters),
            }),
        }
    }

    #[test]
    fn claim_replaces_fields_of_its_class() {
        let all = [
            given("FromClaim", &["a"], json!({"priority": 3})),
            given("FromClass", &[], json!({"priority": 1, "computeMode": "strict", "limitPermille": 500})),
            given("FromClaim", &["b"], json!({"priority": 4})),
        ];
        let of = |request| SliceParameters::of("d", request, &all).unwrap();
        assert_eq!(of("a").priority, Some(Priority::try_from(3).unwrap()));
        assert_eq!(of("a/small").priority, of("a").priority);
        assert_eq!((of("a").mode, of("a").limit), (Some(ComputeMode::Strict), Permille::try_from(500).ok()));
        assert_eq!(of("c").priority, Some(Priority::try_from(1).unwrap()));
        assert_eq!(SliceParameters::of("other", "a", &all), Ok(SliceParameters::default()));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for (parameters, why) in [
            (json!({"colour": "red"}), "unknown field `colour`"),
            (json!({"apiVersion": "gpu.tranche.dev/v2"}), "gpu.tranche.dev/v2"),
            (json!({"kind": "Other"}), "Other"),
            (json!({"limitPermille": 1001}), "1001"),
            (json!({"priority": 1000}), "1000"),
            (json!({"latencyMs": 1}), "2 ms"),
            (json!({"latencyMs": 4_294_968}), "4294968"),
            (json!({"computeMode": "greedy"}), "greedy"),
            (json!("text"), "text"),
        ] {
            let error = SliceParameters::of("d", "a", &[given("FromClaim", &[], parameters)]).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
