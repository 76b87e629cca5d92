//! Numbers with a meaning of their own, which no other number is taken for.

/// Defines a number as a type: documentation, name, number type, and `Display` if it is shown so.
macro_rules! number {
    ($(#[$about:meta])* $name:ident($of:ty) $(, $shown:ident)?) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name($of);

        impl $name {
            /// The value of this number.
            pub const fn new(number: $of) -> Self {
                Self(number)
            }

            /// The value as a plain number.
            pub const fn get(self) -> $of {
                self.0
            }
        }

        $(impl core::fmt::$shown for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        })?
    };
}

pub(crate) use number;
