//! Everything handed out, as the driver keeps it. The calls that change it lie above the driver.

pub(crate) mod array;
pub(crate) mod context;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod location;
pub(crate) mod module;
pub(crate) mod physical;
pub(crate) mod pool;
pub(crate) mod stream;
pub(crate) mod worker;
