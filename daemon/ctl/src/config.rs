//! `tranche config`: shows the settings in force with their origins, and reloads them.

use std::path::Path;

use tranche_domain::daemon::SettingView;
use tranche_rpc::v1::ReloadConfigurationResponse;

use crate::cli::ConfigCommand;
use crate::client::Daemon;
use crate::errors::Failure;
use crate::out;

/// Carries out one of its commands.
pub fn config(command: ConfigCommand, socket: &Path) -> Result<(), Failure> {
    let mut daemon = Daemon::connect(socket)?;
    match command {
        ConfigCommand::Show(output) => {
            let settings = daemon.show()?.settings;
            if output.json { out::json(&settings) } else { out::print(&shown(&settings)) }
        }
        ConfigCommand::Reload => out::print(&told(&daemon.reload()?)),
    }
}

/// The settings as lines of a file, with aligned origins.
fn shown(settings: &[SettingView]) -> String {
    let line = |setting: &SettingView| match setting.to_string().split_once("  # ") {
        Some((value, origin)) => (value.to_owned(), format!("  # {origin}")),
        None => (setting.to_string(), String::new()),
    };
    let lines: Vec<_> = settings.iter().map(line).collect();
    let described = lines.iter().filter(|(_, origin)| !origin.is_empty());
    let width = described.map(|(value, _)| value.chars().count()).max().unwrap_or_default();
    lines
        .iter()
        .map(|(value, origin)| format!("{value:width$}{origin}").trim_end().to_owned() + "\n")
        .collect()
}

fn told(reloaded: &ReloadConfigurationResponse) -> String {
    let ReloadConfigurationResponse { applied, needs_restart } = reloaded;
    let mut told = String::new();
    if !applied.is_empty() {
        told += &format!("in force from now on: {}\n", applied.join(", "));
    }
    if !needs_restart.is_empty() {
        told += &format!(
            "needs a restart (`systemctl restart tranched`; running programs go on): {}\n",
            needs_restart.join(", ")
        );
    }
    if told.is_empty() { "nothing has changed\n".into() } else { told }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(key: &str, value: &str, origin: &str) -> SettingView {
        SettingView { key: key.into(), value: value.into(), origin: origin.into(), live: false }
    }

    #[test]
    fn settings_are_lines_with_their_origin() {
        let settings = [
            setting("log", "\"info\"", "default"),
            setting("a", "1", "/c.toml:2"),
            setting("b", "", "default"),
        ];
        assert_eq!(
            shown(&settings),
            "log = \"info\"  # default\na = 1         # /c.toml:2\n# b is not set\n"
        );
    }

    #[test]
    fn reload_lists_applied_and_deferred_keys() {
        let keys = |keys: &[&str]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (applied, needs_restart) = (keys(&["log"]), keys(&["shim", "cdi_dir"]));
        let reloaded = ReloadConfigurationResponse { applied, needs_restart };
        let text = told(&reloaded);
        assert!(
            text.contains("in force from now on: log\n") && text.contains("go on): shim, cdi_dir\n"),
            "{text}"
        );
        assert_eq!(told(&ReloadConfigurationResponse::default()), "nothing has changed\n");
    }
}
