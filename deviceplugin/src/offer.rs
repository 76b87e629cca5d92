//! The offer: all devices that the configuration derives from the node's GPUs.

use std::collections::BTreeMap;

use crate::config::Config;
use crate::device::DeviceId;
use crate::layout::Division;
use crate::placement::{Claim, DoesNotFit, GpuDevice, all_that_fit, divide};

/// All devices, in use or not, with the resources of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Resources by device id.
    pub devices: BTreeMap<DeviceId, Claim>,
    /// True if more devices are offered than fit at the same time.
    pub dynamic: bool,
}

impl Offer {
    /// The offer for these GPUs.
    ///
    /// # Errors
    /// If a GPU is too small for its layout.
    pub fn of(config: &Config, gpu_devices: &[GpuDevice]) -> Result<Self, DoesNotFit> {
        let mut offer = Self { devices: BTreeMap::new(), dynamic: config.division == Division::Dynamic };
        for gpu_device in
            gpu_devices.iter().filter(|gpu_device| config.is_ours(gpu_device.index, gpu_device.uuid))
        {
            let made = match config.layout(gpu_device.index, gpu_device.uuid, &gpu_device.model) {
                Some(layout) => divide(gpu_device, &config.profiles, layout)?,
                None if offer.dynamic => {
                    config.profiles.iter().flat_map(|profile| all_that_fit(gpu_device, profile)).collect()
                }
                None => Vec::new(),
            };
            offer.devices.extend(made);
        }
        Ok(offer)
    }
}

#[cfg(test)]
mod tests;
