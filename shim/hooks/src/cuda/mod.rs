//! Governed functions of `libcuda.so.1`: each receives the real function, or a call of it, first.
//!
//! Contract of every hook, to which its SAFETY comments refer: a program calls it as it would call the driver's
//! function of that name. So pointer arguments are valid as the driver documents them, and may be passed to `real`,
//! the driver's function, as they are. Handles are checked by the driver.

pub(crate) mod abi;
pub(crate) mod array;
pub(crate) mod capture;
pub(crate) mod captures;
pub(crate) mod checkpoint;
pub(crate) mod context;
mod current;
pub(crate) mod device;
pub(crate) mod doors;
pub(crate) mod driver;
#[cfg(test)]
mod enumerator_tests;
pub(crate) mod external;
pub(crate) mod graph;
mod graph_memory;
mod growth;
mod invalid;
pub(crate) mod launch;
mod ledger;
pub(crate) mod limit;
mod mark;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod multicast;
pub(crate) mod physical;
mod placement;
pub(crate) mod pool;
mod pool_memory;
pub(crate) mod presence;
pub(crate) mod reclaim;
pub(crate) mod shared;
pub(crate) mod slots;
pub(crate) mod stream;
pub(crate) mod transfer;
mod visible;
pub(crate) mod wait;
