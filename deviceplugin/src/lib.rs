//! Kubernetes device plugin: offers slices as devices of the kubelet.
//!
//! Law: decisions are in pure modules (`allocate`, `bundle`, `device`, `health`, `layout`, `offer`,
//! `placement`, `prefer`, `profile`, `release`) without clock, sockets or randomness; time is an argument. The
//! other modules call daemon and kubelet, and carry the decisions out.
#![forbid(unsafe_code)]

pub mod allocate;
pub mod bundle;
mod checkpoint;
pub mod config;
pub mod device;
pub mod health;
pub mod layout;
pub mod offer;
pub mod placement;
pub mod prefer;
pub mod profile;
pub mod release;

pub mod cli;
mod device_states;
mod directory;
mod endpoint;
mod features;
mod kubernetes;
mod metrics;
mod node_events;
mod pod_devices;
mod registrar;
mod reporter;
mod resource_manager;
pub mod serve;
mod service;
mod state;

#[cfg(test)]
#[path = "tests/testing.rs"]
mod testing;
