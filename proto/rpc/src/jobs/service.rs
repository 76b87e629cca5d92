//! Conversions of services and the checks of their health.

use std::time::Duration;

use tranche_domain::jobs::{HealthCheck, ServiceSpec};

use super::project::millis;
use crate::bad_message::BadMessage;
use crate::mirror::{field, mirror};
use crate::v1;

mirror! { ServiceSpec = v1::ServiceSpec { health } }

field! { HealthCheck = v1::HealthCheck: |check| check.into(), check.try_into()?; }

impl From<HealthCheck> for v1::HealthCheck {
    fn from(HealthCheck { target, interval, start }: HealthCheck) -> Self {
        Self { target: target.into(), interval_ms: Some(millis(interval)), start_ms: Some(millis(start)) }
    }
}

impl TryFrom<v1::HealthCheck> for HealthCheck {
    type Error = BadMessage;

    fn try_from(wire: v1::HealthCheck) -> Result<Self, BadMessage> {
        let [interval, start] = [wire.interval_ms, wire.start_ms].map(|time| time.map(Duration::from_millis));
        Ok(Self::new(wire.target.parse()?, interval, start)?)
    }
}
