//! The driver as a program.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use tranche_adapter::{Adapter, AdapterFailure};
use tranche_exposition::Address;

use crate::config::DriverConfig;
use crate::serve::serve;

struct DriverProgram;

/// Runs the driver until SIGTERM or SIGINT.
pub fn main() -> ExitCode {
    tranche_adapter::main::<DriverProgram>()
}

impl Adapter for DriverProgram {
    const NAME: &'static str = "tranche-dradriver";
    const ABOUT: &'static str = "Make slices of this node's resource claims";
    const CONFIG: &'static str = "/etc/tranche/dradriver.toml";
    type Config = DriverConfig;

    fn read(path: &Path) -> Result<DriverConfig, Box<dyn Error>> {
        Ok(DriverConfig::read(path)?)
    }

    fn description(config: &DriverConfig) -> String {
        format!(
            "driver {} on node {}\nregistration: {}\nservices: {}\n",
            config.driver,
            config.node,
            config.registration_socket().display(),
            config.service_socket().display()
        )
    }

    fn frame(config: &DriverConfig) -> (&str, &Address) {
        (&config.log, &config.metrics)
    }

    async fn serve(
        config: DriverConfig,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), AdapterFailure> {
        serve(config, stop).await.map_err(|error| AdapterFailure::Failed(error.into()))
    }
}
