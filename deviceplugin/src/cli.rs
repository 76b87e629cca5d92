//! The plugin as a program.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use tranche_adapter::{Adapter, AdapterFailure};
use tranche_exposition::Address;

use crate::config::Config;
use crate::layout::Division;
use crate::serve::{Pace, ServeError, serve};

struct PluginProgram;

/// Runs the plugin until SIGTERM or SIGINT.
pub fn main() -> ExitCode {
    tranche_adapter::main::<PluginProgram>()
}

impl Adapter for PluginProgram {
    const NAME: &'static str = "tranche-deviceplugin";
    const ABOUT: &'static str = "Offer slices of this node's GPUs to its kubelet";
    const CONFIG: &'static str = "/etc/tranche/deviceplugin.toml";
    type Config = Config;

    fn read(path: &Path) -> Result<Config, Box<dyn Error>> {
        Ok(Config::read(path)?)
    }

    fn description(config: &Config) -> String {
        let mut text = String::new();
        for profile in &config.profiles {
            let _ = writeln!(text, "{}: {} of a GPU", config.resource(&profile.name), profile.request.share);
        }
        match &config.division {
            Division::Dynamic => text.push_str("every GPU: all of them, as far as they fit\n"),
            Division::Static(layouts) => {
                for layout in layouts {
                    let names: Vec<_> = layout.profiles.iter().map(ToString::to_string).collect();
                    let _ = writeln!(text, "{}: {}", layout.of, names.join(", "));
                }
            }
        }
        text
    }

    fn frame(config: &Config) -> (&str, &Address) {
        (&config.log, &config.metrics)
    }

    async fn serve(config: Config, stop: impl Future<Output = ()> + Send) -> Result<(), AdapterFailure> {
        serve(config, Pace::default(), stop).await.map_err(|error| match error {
            ServeError::Thread(_) | ServeError::Metrics(_) => AdapterFailure::Failed(error.into()),
            ServeError::DoesNotFit(_) | ServeError::NothingFits => AdapterFailure::Invalid(error.into()),
        })
    }
}
