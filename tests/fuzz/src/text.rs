//! Text of users and files: names, shares, the configuration, the state file.

use std::fmt::{Debug, Display};
use std::path::Path;
use std::str::FromStr;

use tranche_agent::Config;
use tranche_domain::id::{GpuSelector, GpuUuid, SliceName};
use tranche_domain::request::Share;

use crate::state::StateFile;

/// Checks that a value is the same after printing and parsing, and that a refusal has a message.
fn reads_back<T: FromStr<Err: Display> + Display + PartialEq + Debug>(text: &str) {
    match text.parse::<T>() {
        Ok(read) => assert_eq!(read.to_string().parse::<T>().ok(), Some(read)),
        Err(refused) => assert!(!refused.to_string().is_empty()),
    }
}

/// Names, UUIDs and shares. A slice's name is always a single file name.
pub fn names(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    reads_back::<SliceName>(text);
    reads_back::<GpuUuid>(text);
    reads_back::<GpuSelector>(text);
    if let Ok(name) = text.parse::<SliceName>() {
        let file = Path::new(name.as_str());
        assert_eq!(file.file_name(), Some(file.as_os_str()), "{name} is more than a file name");
        assert!(name.as_str().len() <= 63 && !name.as_str().starts_with('.'));
    }
    match text.parse::<Share>() {
        // Sizes are printed for users, and parsed by the command line alone.
        Ok(share @ (Share::Fraction(_) | Share::Whole(_))) => {
            assert_eq!(share.to_string().parse(), Ok(share));
        }
        Ok(Share::Memory(_)) => panic!("{text:?} became a size"),
        Err(refused) => assert!(!refused.to_string().is_empty()),
    }
}

/// The daemon's configuration file, of which a refusal names the path.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Config::parse(text, Path::new("fuzzed.toml")) {
        Ok(config) => _ = config.context_reserve(),
        Err(refused) => assert!(refused.to_string().contains("fuzzed.toml")),
    }
}

/// The device plugin's configuration file, of which a refusal names the path.
pub fn plugin_configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(refused) = tranche_deviceplugin::config::Config::parse(text, Path::new("fuzzed.toml")) {
        assert!(refused.to_string().contains("fuzzed.toml"));
    }
}

/// The state file: a parsed state is the same after writing and parsing, a refusal has a message.
pub fn state_file(data: &[u8]) {
    match StateFile::parse(data) {
        Ok(state) => {
            let text = serde_json::to_vec(&state).expect("what was read can be written");
            assert_eq!(StateFile::parse(&text).as_ref(), Ok(&state));
        }
        Err(why) => assert!(!why.is_empty()),
    }
}
