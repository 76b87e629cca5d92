//! The promises of Tranche, kept or broken before the reader's eyes: real processes on a simulated node.
//!
//! Each module is one promise or one area; each test has a machine of its own, so they run side by side.
#![forbid(unsafe_code)]

mod access;
mod bad_input;
mod caps;
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
mod load;
mod names;
mod only_slices;
mod over_cap;
mod placement;
mod play;
mod recovery;
mod resize;
mod routes;
mod run;
mod shim_artifact;
mod slices;
mod smi;
mod transfers;
mod trueup;
mod views;
mod visible;

use tranche_domain::units::Bytes;

/// What half of the simulated V100 is: half of the 32510 MiB that its driver can hand out.
const HALF_V100: Bytes = Bytes::mib(16255);
/// All that a V100's driver can hand out.
const WHOLE_V100: Bytes = Bytes::mib(32510);
