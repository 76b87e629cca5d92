//! The promises of Tranche, tested with real processes on a simulated node.
//!
//! Each module is one promise or one area; each test has a machine of its own, so that tests run at the same time.
#![forbid(unsafe_code)]

mod access;
mod authority;
mod awaited;
mod bad_input;
mod caps;
mod causes;
mod chaos;
mod clients;
mod compute;
mod configuration;
mod contexts;
mod cordon;
mod deaths;
mod doctor;
mod events;
mod facts;
mod families;
mod gang;
mod gate;
mod harmless;
mod identity;
mod jobs;
mod latency;
mod load;
mod names;
mod only_slices;
mod over_cap;
mod page;
mod park;
mod placement;
mod play;
mod recovery;
mod resize;
mod restored;
mod routes;
mod run;
mod runtime;
mod shim_artifact;
mod slices;
mod smi;
mod top;
mod tour;
mod transfers;
mod trueup;
mod views;
mod visible;
mod waiting;

use tranche_domain::units::Bytes;

/// Memory of half of a simulated V100: half of the 32510 MiB that its driver can allocate.
const HALF_V100: Bytes = Bytes::mib(16255);
/// Most memory that a V100's driver can allocate.
const WHOLE_V100: Bytes = Bytes::mib(32510);
