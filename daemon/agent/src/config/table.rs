//! The shape of the table of keys: a row makes a field, its default, its help and its part in a reload.

/// Event with which a changed value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyEffect {
    /// With a reload of the running daemon.
    Reload,
    /// With the daemon's next start.
    Restart,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// Name in the file.
    pub(crate) name: &'static str,
    /// Lines of help, each with a space in front.
    pub(crate) about: &'static [&'static str],
    /// Event with which a changed value takes effect.
    pub(crate) effect: KeyEffect,
    /// Value in TOML where the default is the daemon's choice: that of root's daemon in packages.
    pub(crate) usual: Option<&'static str>,
}

/// Declares `Config` by rows of help, `live` or `restart`, key, type and default. A default of `None` is the daemon's
/// choice, and the usual value follows in TOML.
macro_rules! settings {
    ($($(#[doc = $about:literal])+ $effect:ident $key:ident: $type:ty = $default:expr $(, $usual:literal)?;)+) => {
        /// All configuration keys. Command-line options take precedence over the file.
        #[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
        #[serde(default)]
        pub struct Config {
            $($(#[doc = $about])+ pub $key: $type,)+
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($key: $default,)+ }
            }
        }

        impl Config {
            /// Rows of the table, in its order.
            pub(crate) const KEYS: &[Key] = &[$(Key {
                name: stringify!($key),
                about: &[$($about),+],
                effect: settings!(@effect $effect),
                usual: settings!(@usual $($usual)?),
            }),+];

            /// Copies the values of live keys from another configuration.
            pub(crate) fn take_live(&mut self, new: &Self) {
                $(settings!(@take $effect self new $key);)+
            }
        }
    };
    (@effect live) => { KeyEffect::Reload };
    (@effect restart) => { KeyEffect::Restart };
    (@usual) => { None };
    (@usual $usual:literal) => { Some($usual) };
    (@take live $config:ident $new:ident $key:ident) => { $config.$key.clone_from(&$new.$key) };
    (@take restart $config:ident $new:ident $key:ident) => {};
}
