//! Field of a query.

use tranche_domain::view::{GpuView, NodeView, SliceDeviceView, SliceView};

/// A field with an accessor of type `V`.
pub struct Field<V> {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) about: &'static str,
    /// Value without its unit; `None` if unknown.
    pub(super) value: V,
}

/// Accessor for a slice's part of one GPU.
pub(super) type OfSlice = fn(&SliceView, &SliceDeviceView) -> Option<String>;

/// Accessor for a GPU of a node.
pub(super) type OfGpu = fn(&NodeView, &GpuView) -> Option<String>;

/// Error for a field that the query does not have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{wanted:?} is not a field of --{option}; these are: {}\n`tranche smi --help-{option}` says what they mean",
    .known.join(", ")
)]
pub struct UnknownField {
    pub(super) option: &'static str,
    pub(super) wanted: String,
    pub(super) known: Vec<&'static str>,
}

impl<V> Field<V> {
    /// Column title as in nvidia-smi, with the unit even if the values have none.
    pub(super) fn title(&self) -> String {
        if self.unit.is_empty() { self.name.into() } else { format!("{} [{}]", self.name, self.unit) }
    }
}
