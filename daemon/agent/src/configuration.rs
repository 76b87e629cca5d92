//! The configuration in force: value and source of each key, and the reload of live keys.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use tranche_config::{FileError, Keys};
use tranche_domain::daemon::SettingView;

use crate::config::Config;

/// Default path of the configuration file, which need not exist.
const DEFAULT_FILE: &str = "/etc/tranche/tranched.toml";
/// Source of values that were not given.
const BY_DEFAULT: &str = "default";

/// Sources of a configuration: a file, and the command line, which takes precedence.
#[derive(Clone, Debug, Default)]
pub struct ConfigSource {
    /// Path of the file, if one was given.
    pub file: Option<PathBuf>,
    /// Value of the option `--runtime-dir`.
    pub runtime_dir: Option<PathBuf>,
    /// Value of the option `--state-dir`.
    pub state_dir: Option<PathBuf>,
    /// Value of the option `--nvml-library`.
    pub nvml_library: Option<PathBuf>,
    /// Value of the option `--shim`.
    pub shim: Option<PathBuf>,
}

/// A configuration, with the source of each value that is not a default.
#[derive(Clone, Debug, Default)]
pub struct SourcedConfig {
    /// Value of each key, defaults included.
    pub config: Config,
    origins: BTreeMap<String, String>,
}

impl ConfigSource {
    fn path(&self) -> Option<&Path> {
        let default = Path::new(DEFAULT_FILE);
        self.file.as_deref().or(default.exists().then_some(default))
    }

    /// Reads the configuration along with all errors in its values.
    ///
    /// # Errors
    /// The file cannot be read or parsed.
    pub fn survey(&self) -> Result<(SourcedConfig, Vec<String>), FileError> {
        let mut reading = SourcedConfig::default();
        let mut faults = Vec::new();
        if let Some(path) = self.path() {
            let survey = tranche_config::survey::<Config>(path, &Keys::of::<Config>())?;
            let at = |line| format!("{}:{line}", path.display());
            reading.origins = survey.lines.into_iter().map(|(key, line)| (key, at(line))).collect();
            (reading.config, faults) = (survey.value, survey.faults);
        }
        self.lay_over(&mut reading);
        faults.extend(reading.config.faults());
        Ok((reading, faults))
    }

    /// Reads the configuration if it has no errors.
    ///
    /// # Errors
    /// All errors.
    pub fn read(&self) -> Result<SourcedConfig, FileError> {
        match self.survey()? {
            (reading, faults) if faults.is_empty() => Ok(reading),
            (_, faults) => {
                Err(FileError::Invalid { path: self.path().unwrap_or(Path::new("none")).into(), faults })
            }
        }
    }

    fn lay_over(&self, SourcedConfig { config, origins }: &mut SourcedConfig) {
        let mut over = |key: &str, option: &str, given: &Option<PathBuf>, value: &mut Option<PathBuf>| {
            if given.is_some() {
                value.clone_from(given);
                origins.insert(key.into(), option.into());
            }
        };
        over("runtime_dir", "--runtime-dir", &self.runtime_dir, &mut config.runtime_dir);
        over("state_dir", "--state-dir", &self.state_dir, &mut config.state_dir);
        over("nvml_library", "--nvml-library", &self.nvml_library, &mut config.nvml_library);
        over("shim", "--shim", &self.shim, &mut config.shim);
    }
}

impl SourcedConfig {
    /// All keys with their values and sources. `shown` supplies the daemon's choices for keys that were left to it.
    pub fn settings(&self, shown: &Config) -> Vec<SettingView> {
        let setting = |(key, value): (String, serde_json::Value)| SettingView {
            origin: self.origins.get(&key).cloned().unwrap_or_else(|| BY_DEFAULT.into()),
            value: if value.is_null() { String::new() } else { value.to_string() },
            live: Config::is_live(&key),
            key,
        };
        shown.entries().into_iter().map(setting).collect()
    }
}

/// Function that replaces the log filter; the error is a sentence.
pub type SetLog = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// The configuration of a running daemon, which can be reloaded.
pub struct Configured {
    source: ConfigSource,
    set_log: SetLog,
    in_force: Mutex<InForce>,
}

struct InForce {
    /// As read, with the live keys of later reloads.
    reading: SourcedConfig,
    /// The same with the daemon's choices.
    shown: Config,
}

/// Keys that a reload changed, and those that wait for a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReloadOutcome {
    /// Keys whose new values are in force.
    pub(crate) applied: Vec<String>,
    /// Keys whose new values take effect after a restart.
    pub(crate) needs_restart: Vec<String>,
}

impl fmt::Debug for Configured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configured").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Configured {
    /// State at the start; `shown` is the reading with the daemon's choices.
    pub fn new(source: ConfigSource, reading: SourcedConfig, shown: Config, set_log: SetLog) -> Self {
        Self { source, set_log, in_force: Mutex::new(InForce { reading, shown }) }
    }

    fn in_force(&self) -> MutexGuard<'_, InForce> {
        self.in_force.lock().expect("nothing panics while it holds the configuration")
    }

    pub(crate) fn settings(&self) -> Vec<SettingView> {
        let in_force = self.in_force();
        in_force.reading.settings(&in_force.shown)
    }

    /// Reads the configuration again and passes it to `apply`. On an error nothing changes.
    pub(crate) fn reload(&self, apply: impl FnOnce(&Config)) -> Result<ReloadOutcome, String> {
        let mut in_force = self.in_force();
        let new = self.source.read().map_err(|error| error.to_string())?;
        let changed = differing(&in_force.reading.config, &new.config);
        let (applied, needs_restart) = changed.into_iter().partition(|key| Config::is_live(key));
        (self.set_log)(&new.config.log)?;
        in_force.take(new);
        apply(&in_force.reading.config);
        Ok(ReloadOutcome { applied, needs_restart })
    }
}

impl InForce {
    fn take(&mut self, new: SourcedConfig) {
        self.reading.config.take_live(&new.config);
        self.shown.take_live(&new.config);
        self.reading.origins.retain(|key, _| !Config::is_live(key));
        self.reading.origins.extend(new.origins.into_iter().filter(|(key, _)| Config::is_live(key)));
    }
}

fn differing(before: &Config, after: &Config) -> Vec<String> {
    let (before, after) = (before.entries(), after.entries());
    after.into_iter().filter(|(key, value)| before.get(key) != Some(value)).map(|(key, _)| key).collect()
}

/// Formats a configuration as a file, each line with its source.
pub(crate) fn print(settings: &[SettingView]) -> String {
    settings.iter().map(|setting| format!("{setting}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::Arc;

    fn configured(file: &Path) -> (Configured, Arc<Mutex<String>>) {
        let source = ConfigSource {
            file: Some(file.to_owned()),
            shim: Some("/s.so".into()),
            ..ConfigSource::default()
        };
        let reading = source.read().unwrap();
        let log: Arc<Mutex<String>> = Arc::default();
        let told = Arc::clone(&log);
        let set_log = Box::new(move |filter: &str| {
            *told.lock().unwrap() = filter.into();
            Ok(())
        });
        let shown = Config { runtime_dir: Some("/run/x".into()), ..reading.config.clone() };
        (Configured::new(source, reading, shown, set_log), log)
    }

    fn setting(configured: &Configured, key: &str) -> (String, String) {
        let found = configured.settings().into_iter().find(|setting| setting.key == key).unwrap();
        (found.value, found.origin)
    }

    #[test]
    fn each_value_is_shown_with_its_source() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, "# mine\nover_cap = 'kill'\n").unwrap();
        let (configured, _) = configured(file.path());
        let at = format!("{}:2", file.path().display());
        assert_eq!(setting(&configured, "over_cap"), ("\"kill\"".into(), at));
        assert_eq!(setting(&configured, "over_cap_grace_s"), ("60".into(), "default".into()));
        assert_eq!(setting(&configured, "shim"), ("\"/s.so\"".into(), "--shim".into()));
        assert_eq!(setting(&configured, "runtime_dir"), ("\"/run/x\"".into(), "default".into()));
        assert_eq!(setting(&configured, "nvml_library"), (String::new(), "default".into()));
        assert_eq!(configured.settings().len(), Config::default().entries().len());
    }

    #[test]
    fn reload_applies_live_keys_and_names_others() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (configured, log) = configured(file.path());
        fs::write(&file, "log = 'debug'\nslices_per_user = 3\ncontext_reserve_mib = 9").unwrap();
        let mut applied = None;
        let reloaded = configured.reload(|config| applied = Some(config.clone())).unwrap();
        assert_eq!(reloaded.applied, ["log", "slices_per_user"]);
        assert_eq!(reloaded.needs_restart, ["context_reserve_mib"]);
        let applied = applied.unwrap();
        assert_eq!((applied.slices_per_user, applied.context_reserve_mib), (3, 512));
        assert_eq!(*log.lock().unwrap(), "debug");
        assert_eq!(setting(&configured, "context_reserve_mib").0, "512", "that is what is in force");
        assert!(setting(&configured, "slices_per_user").1.ends_with(":2"));
        let again = configured.reload(|_| {}).unwrap();
        assert_eq!((again.applied.len(), again.needs_restart.len()), (0, 1), "it still needs one");
    }

    #[test]
    fn invalid_file_changes_nothing_and_lists_all_errors() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (configured, log) = configured(file.path());
        fs::write(&file, "log = 'a=b=c'\nslices_per_user = -1\nover_cpa = 'kill'\ncdi_dir = 'x'").unwrap();
        let refused = configured.reload(|_| panic!("it is wrong")).unwrap_err();
        for said in ["`log`", "slices_per_user", "`over_cap`?", "`cdi_dir`"] {
            assert!(refused.contains(said), "{said}: {refused}");
        }
        assert_eq!(*log.lock().unwrap(), "");
        assert_eq!(setting(&configured, "slices_per_user").0, "64");
    }
}
