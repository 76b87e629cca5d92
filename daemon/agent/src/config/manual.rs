//! The table of keys as a file to edit, and as a man page.

use clap::Command;
use roff::{Roff, bold, roman};

use super::Config;
use super::table::{Key, KeyEffect};

/// Key that packages set, since they create the group.
const SET_BY_PACKAGES: &str = "socket_group";
const HEADER: &str = "\
# Configuration of tranched. Each line that begins with \"#\" and a key shows that key's default. Changes take effect
# with a restart, those of live keys also with `systemctl reload tranched`. `tranched --check` tests this file and
# changes nothing; `man tranched.toml` has the same keys.
";
const DESCRIPTION: &str = "A file in TOML. Each key may be absent. An unknown key or an invalid value is an error, with its line. \
                           Options of the command line take precedence. Changes take effect with a restart of tranched, those \
                           of keys marked live also with `systemctl reload tranched`. `tranched --check` tests the file and \
                           changes nothing.";

const DAEMON: &str = "It makes slices of the GPUs of a node, grants memory and GPU time to the programs in them, and runs the \
                      jobs of projects. Clients are tranche(1) and other programs with the same interface, on a Unix socket. \
                      Programs in slices continue while it is restarted.";
/// Signals with an effect of their own.
const SIGNALS: [(&str, &str); 2] = [
    ("SIGTERM, SIGINT", "End. Slices and their programs stay."),
    ("SIGHUP", "Read the configuration again, and apply live keys."),
];

/// The configuration file of packages: all keys with their help and defaults.
pub(crate) fn template() -> String {
    let key = |key: &Key| {
        let about: String = about(key).map(|line| format!("#{line}\n")).collect();
        let live = if key.effect == KeyEffect::Reload { "# Live.\n" } else { "" };
        let mark = if key.name == SET_BY_PACKAGES { "" } else { "# " };
        format!("\n{about}{live}{mark}{} = {}\n", key.name, usual(key))
    };
    Config::KEYS.iter().map(key).fold(HEADER.to_owned(), |file, key| file + &key)
}

/// The page `tranched.toml(5)`, in roff.
pub(crate) fn manual() -> String {
    let mut page = Roff::new();
    page.control("TH", ["tranched.toml", "5", "", concat!("tranche ", env!("CARGO_PKG_VERSION")), ""]);
    page.control("SH", ["NAME"]).text([roman("tranched.toml - configuration of tranched")]);
    page.control("SH", ["DESCRIPTION"]).text([roman(DESCRIPTION)]).control("SH", ["KEYS"]);
    for key in Config::KEYS {
        let remark = match key.effect {
            KeyEffect::Reload => " (live)",
            KeyEffect::Restart if key.name == SET_BY_PACKAGES => " (set by packages; no default)",
            KeyEffect::Restart => "",
        };
        page.control("TP", []).text([bold(key.name), roman(format!(" = {}{remark}", usual(key)))]);
        page.text([roman(about(key).collect::<String>().trim_start())]);
    }
    page.control("SH", ["FILES"]).text([roman("/etc/tranche/tranched.toml")]);
    page.control("SH", ["SEE ALSO"]).text([roman("tranche(1)")]);
    page.to_roff()
}

/// The page `tranched(8)`, in roff, from the definition of the command line.
pub(crate) fn manual_of_daemon(command: &Command) -> String {
    let mut page = Roff::new();
    page.control("TH", ["tranched", "8", "", concat!("tranche ", env!("CARGO_PKG_VERSION")), ""]);
    page.control("SH", ["NAME"]).text([roman("tranched - daemon that divides GPUs into slices")]);
    page.control("SH", ["SYNOPSIS"]).text([bold("tranched"), roman(" [OPTIONS]")]);
    page.control("SH", ["DESCRIPTION"]).text([roman(DAEMON)]).control("SH", ["OPTIONS"]);
    for arg in command.get_arguments() {
        let Some(long) = arg.get_long() else { continue };
        let values = arg.get_value_names().filter(|_| arg.get_action().takes_values()).unwrap_or_default();
        let values: String = values.iter().map(|name| format!(" {name}")).collect();
        page.control("TP", []).text([bold(format!("--{long}")), roman(values)]);
        page.text([roman(arg.get_help().map(ToString::to_string).unwrap_or_default())]);
    }
    page.control("SH", ["SIGNALS"]);
    for (signal, effect) in SIGNALS {
        page.control("TP", []).text([bold(signal)]).text([roman(effect)]);
    }
    page.control("SH", ["EXIT STATUS"]).text([roman(
        "0 after SIGTERM or SIGINT, 1 if it cannot start or the configuration is invalid, 2 if the command line is wrong.",
    )]);
    page.control("SH", ["FILES"]);
    page.text([roman("/etc/tranche/tranched.toml, /run/tranche/tranched.sock, /var/lib/tranche")]);
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("tranche"), roman("(1), "), bold("tranched.toml"), roman("(5)")]);
    page.to_roff()
}

/// Lines of help without the empty ones that end a summary.
fn about(key: &Key) -> impl Iterator<Item = &'static str> {
    key.about.iter().copied().filter(|line| !line.is_empty())
}

/// The default in TOML, or what root's daemon in packages chooses.
fn usual(key: &Key) -> String {
    let default = || Config::default().entries().get(key.name).map(ToString::to_string);
    key.usual.map(str::to_owned).or_else(default).unwrap_or_default()
}
