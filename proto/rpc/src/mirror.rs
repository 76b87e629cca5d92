//! One list of fields for both ways: domain to wire by `From`, wire to domain by `TryFrom`.

use tranche_domain::compute::{GangName, Latency, Priority};
use tranche_domain::cordon::Reason;
use tranche_domain::event::{EventCause, EventKind, Severity};
use tranche_domain::fault::Xid;
use tranche_domain::id::{GpuUuid, HostPid, InnerPid, NumaNode, SliceName};
use tranche_domain::jobs::{JobName, MilliGpus, ProjectName};
use tranche_domain::park::IdleTime;
use tranche_domain::pod::{DnsLabel, PodName, PodUid};
use tranche_domain::request::{BadShare, Share};
use tranche_domain::units::{Bytes, Permille};

use crate::bad_message::BadMessage;
use crate::v1;

/// A domain value in a field of a message.
pub(crate) trait Field<W>: Sized {
    fn into_wire(self) -> W;
    fn from_wire(wire: W) -> Result<Self, BadMessage>;
}

impl<T: Field<W>, W> Field<Option<W>> for Option<T> {
    fn into_wire(self) -> Option<W> {
        self.map(T::into_wire)
    }

    fn from_wire(wire: Option<W>) -> Result<Self, BadMessage> {
        wire.map(T::from_wire).transpose()
    }
}

impl<T: Field<W>, W> Field<Vec<W>> for Vec<T> {
    fn into_wire(self) -> Vec<W> {
        self.into_iter().map(T::into_wire).collect()
    }

    fn from_wire(wire: Vec<W>) -> Result<Self, BadMessage> {
        wire.into_iter().map(T::from_wire).collect()
    }
}

impl Field<Option<v1::Share>> for Share {
    fn into_wire(self) -> Option<v1::Share> {
        Some(self.into())
    }

    fn from_wire(wire: Option<v1::Share>) -> Result<Self, BadMessage> {
        wire.ok_or(BadShare::Missing)?.try_into()
    }
}

/// Implements [`Field`] by an expression for each way.
macro_rules! field {
    ($($domain:ty = $wire:ty: |$value:ident| $into:expr, $from:expr;)*) => {$(
        impl $crate::mirror::Field<$wire> for $domain {
            fn into_wire(self) -> $wire {
                let $value = self;
                $into
            }

            fn from_wire($value: $wire) -> Result<Self, $crate::bad_message::BadMessage> {
                Ok($from)
            }
        }
    )*};
}

/// Implements both conversions of a message by the list of its fields.
///
/// First come fields of the same name, then those that have another name on the wire, then a group of fields that are
/// a struct of their own in the domain. After an arrow each follow a field that only the wire has, and a check of the
/// domain value.
macro_rules! mirror {
    ($($domain:path = $wire:path {
        $($same:ident),* $(; $($field:ident: $name:ident),*)?
        $(; in $group:ident: $inner:ident { $($part:ident: $part_name:ident),* })?
        $(=> else $beside:ident)? $(=> if $check:ident)? $(,)?
    })*) => {$(
        impl From<$domain> for $wire {
            fn from(value: $domain) -> Self {
                Self {
                    $($same: $crate::mirror::Field::into_wire(value.$same),)*
                    $($($name: $crate::mirror::Field::into_wire(value.$field),)*)?
                    $($($part_name: $crate::mirror::Field::into_wire(value.$group.$part),)*)?
                    $($beside: Default::default(),)?
                }
            }
        }

        impl TryFrom<$wire> for $domain {
            type Error = $crate::bad_message::BadMessage;

            fn try_from(wire: $wire) -> Result<Self, $crate::bad_message::BadMessage> {
                let value = Self {
                    $($same: $crate::mirror::Field::from_wire(wire.$same)?,)*
                    $($($field: $crate::mirror::Field::from_wire(wire.$name)?,)*)?
                    $($group: $inner { $($part: $crate::mirror::Field::from_wire(wire.$part_name)?,)* },)?
                };
                $($check(&value)?;)?
                Ok(value)
            }
        }

        $crate::mirror::field! { $domain = $wire: |value| value.into(), value.try_into()?; }
    )*};
}

/// Implements both conversions of an enumeration that is the same on the wire.
///
/// The first value also stands for none.
macro_rules! enumeration {
    ($domain:ident = $wire:path, $unknown:ident: $default:ident $(, $other:ident)*) => {
        impl From<$domain> for $wire {
            fn from(value: $domain) -> Self {
                match value {
                    $domain::$default => Self::$default,
                    $($domain::$other => Self::$other,)*
                }
            }
        }

        impl $crate::mirror::Field<i32> for $domain {
            fn into_wire(self) -> i32 {
                <$wire>::from(self).into()
            }

            fn from_wire(number: i32) -> Result<Self, $crate::bad_message::BadMessage> {
                let wire = <$wire>::try_from(number);
                Ok(match wire.map_err(|_| $crate::bad_message::BadMessage::$unknown(number))? {
                    <$wire>::Unspecified | <$wire>::$default => Self::$default,
                    $(<$wire>::$other => Self::$other,)*
                })
            }
        }
    };
}

pub(crate) use {enumeration, field, mirror};

field! {
    String = String: |text| text, text;
    bool = bool: |value| value, value;
    i32 = i32: |number| number, number;
    u32 = u32: |number| number, number;
    u64 = u64: |number| number, number;
    Bytes = u64: |number| number.get(), Self::new(number);
    Xid = u64: |number| number.get(), Self::new(number);
    HostPid = u32: |number| number.get(), Self::new(number);
    InnerPid = u32: |number| number.get(), Self::new(number);
    NumaNode = u32: |number| number.get(), Self::new(number);
    MilliGpus = u32: |number| number.get(), Self::new(number);
    Permille = u32: |number| number.get(), number.try_into()?;
    Latency = u32: |number| number.micros(), number.try_into()?;
    IdleTime = u32: |time| time.seconds(), time.try_into()?;
    Priority = i32: |number| number.get().into(), number.try_into()?;
    GpuUuid = String: |text| text.into(), text.try_into()?;
    SliceName = String: |text| text.into(), text.try_into()?;
    GangName = String: |text| text.into(), text.try_into()?;
    ProjectName = String: |text| text.into(), text.try_into()?;
    JobName = String: |text| text.into(), text.try_into()?;
    DnsLabel = String: |text| text.into(), text.try_into()?;
    PodName = String: |text| text.into(), text.try_into()?;
    PodUid = String: |text| text.into(), text.try_into()?;
    Reason = String: |text| text.into(), text.try_into()?;
    Severity = String: |text| text.as_str().into(), text.parse()?;
    EventKind = String: |text| text.into(), text.into();
    EventCause = String: |text| text.into(), text.into();
}
