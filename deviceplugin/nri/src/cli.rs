//! The plugin as a program.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use tranche_adapter::{Adapter, AdapterFailure};
use tranche_exposition::Address;

use crate::config::PluginConfig;
use crate::serve::serve;

struct NriProgram;

/// Runs the plugin until SIGTERM or SIGINT.
pub fn main() -> ExitCode {
    tranche_adapter::main::<NriProgram>()
}

impl Adapter for NriProgram {
    const NAME: &'static str = "tranche-nriplugin";
    const ABOUT: &'static str = "Make slices of the annotations of this node's pods";
    const CONFIG: &'static str = "/etc/tranche/nriplugin.toml";
    type Config = PluginConfig;

    fn read(path: &Path) -> Result<PluginConfig, Box<dyn Error>> {
        Ok(PluginConfig::read(path)?)
    }

    fn description(config: &PluginConfig) -> String {
        format!(
            "runtime: {}, as plugin {}-tranche\ndaemon: {}\n",
            config.runtime_socket.display(),
            config.index,
            config.tranched_socket.display()
        )
    }

    fn frame(config: &PluginConfig) -> (&str, &Address) {
        (&config.log, &config.metrics)
    }

    async fn serve(
        config: PluginConfig,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), AdapterFailure> {
        serve(config, stop).await.map_err(|error| AdapterFailure::Failed(error.into()))
    }
}
