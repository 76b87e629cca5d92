//! Modules, the kernels in them, and links that make them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::image::{Entry, Image};

/// A loaded image: a module or a library.
pub(crate) struct Module {
    pub(crate) image: Image,
    /// Memory in each context where it is loaded; one that is not a library is loaded in one.
    pub(crate) loads: BTreeMap<u64, Load>,
    /// A library outlives contexts.
    pub(crate) library: bool,
}

/// A module in a context.
pub(crate) struct Load {
    pub(crate) device: usize,
    /// Global variables: name, address, bytes.
    pub(crate) globals: Vec<(String, u64, u64)>,
    /// Bytes taken for code.
    pub(crate) code: u64,
}

/// A kernel, as `CUfunction` or `CUkernel`.
#[derive(Clone)]
pub(crate) struct Function {
    /// Handle of its module.
    pub(crate) module: u64,
    /// Description of the kernel in the image.
    pub(crate) entry: Entry,
    /// Attributes set for it, with their values.
    pub(crate) set: Vec<(i32, i32)>,
}

/// A link in progress, then its result.
#[derive(Default)]
pub(crate) struct Link {
    pub(crate) inputs: Vec<u8>,
    /// Stays where it is until the link is destroyed.
    pub(crate) output: Option<Arc<Vec<u8>>>,
}
