//! State of a node to render.

use std::time::Duration;

use crate::overview::Overview;

/// A node as the page shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShownNode<'a> {
    pub(crate) name: &'a str,
    /// Last known state and its age; absent before the first answer.
    pub(crate) last: Option<(&'a Overview, Duration)>,
    /// Reason for which there is no newer one.
    pub(crate) failure: Option<&'a str>,
}
