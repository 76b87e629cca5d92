//! Content of the pool's ResourceSlices, and when what is published differs from it.

use k8s_openapi::api::resource::v1::{Device, DeviceCapacity, DeviceTaint, ResourceSlice};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity;

/// Most devices of one ResourceSlice in which any has a taint.
const DEVICES: usize = 64;

/// Devices of each ResourceSlice.
///
/// Without devices there is one that is empty, so that the pool is known.
pub(crate) fn divide(devices: &[Device]) -> Vec<Vec<Device>> {
    let all: Vec<_> = devices.chunks(DEVICES).map(<[Device]>::to_vec).collect();
    if all.is_empty() { vec![Vec::new()] } else { all }
}

/// Tests if the published ResourceSlices, in the order of their names, are a pool of these devices.
pub(crate) fn is_published(published: &[ResourceSlice], wanted: &[Vec<Device>]) -> bool {
    let generation = published.first().map(|slice| slice.spec.pool.generation);
    let count = i64::try_from(wanted.len()).ok();
    published.len() == wanted.len()
        && published.iter().zip(wanted).all(|(slice, devices)| {
            let is = slice.spec.devices.as_deref().unwrap_or_default();
            let pool = &slice.spec.pool;
            Some(pool.generation) == generation
                && Some(pool.resource_slice_count) == count
                && is.iter().map(comparable).eq(devices.iter().map(comparable))
        })
}

/// A device as the driver gives it.
///
/// The API server writes quantities its own way, and adds the times of taints.
fn comparable(device: &Device) -> Device {
    let mut device = device.clone();
    for taint in device.taints.iter_mut().flatten() {
        taint.time_added = None;
    }
    device.taints = device.taints.filter(|taints| !taints.is_empty());
    for capacity in device.capacity.iter_mut().flat_map(|all| all.values_mut()) {
        normalize(capacity);
    }
    device
}

fn normalize(capacity: &mut DeviceCapacity) {
    let plain = |quantity: &mut Quantity| {
        if let Some(number) = quantity::whole(quantity) {
            *quantity = quantity::of(number);
        }
    };
    plain(&mut capacity.value);
    if let Some(policy) = &mut capacity.request_policy {
        policy.default.iter_mut().for_each(plain);
        if let Some(range) = &mut policy.valid_range {
            plain(&mut range.min);
            range.max.iter_mut().chain(&mut range.step).for_each(plain);
        }
    }
}

/// The wanted devices with the times of those taints that are published: eviction counts from them.
pub(crate) fn with_times(published: &[ResourceSlice], mut wanted: Vec<Vec<Device>>) -> Vec<Vec<Device>> {
    let before = |name: &str| {
        let devices = published.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        devices
            .filter(|device| device.name == name)
            .flat_map(|device| device.taints.iter().flatten())
            .collect::<Vec<_>>()
    };
    for device in wanted.iter_mut().flatten() {
        let before = before(&device.name);
        for taint in device.taints.iter_mut().flatten() {
            let same = |old: &&&DeviceTaint| {
                (&old.key, &old.effect, &old.value) == (&taint.key, &taint.effect, &taint.value)
            };
            taint.time_added = before.iter().find(same).and_then(|old| old.time_added.clone());
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Ailment;
    use crate::device::{MEMORY, device};
    use crate::testing::{node, published};

    fn devices(ailment: Option<&Ailment>) -> Vec<Vec<Device>> {
        let node = node(2);
        divide(&node.gpus.iter().map(|gpu| device(&node, gpu, ailment, "d")).collect::<Vec<_>>())
    }

    #[test]
    fn server_s_own_notation_is_no_difference() {
        let wanted = devices(None);
        let mut slices = published(&wanted, 3);
        let capacity = slices[0].spec.devices.as_mut().unwrap()[0].capacity.as_mut().unwrap();
        capacity.get_mut("compute").unwrap().value = Quantity("1k".into());
        capacity.get_mut(MEMORY).unwrap().value = Quantity("32510Mi".into());
        assert!(is_published(&slices, &wanted));
        assert!(!is_published(&slices, &devices(Some(&Ailment::Gone))));
        assert!(!is_published(&[], &wanted));
        slices[0].spec.pool.resource_slice_count = 2;
        assert!(!is_published(&slices, &wanted));
    }

    #[test]
    fn taint_keeps_its_time() {
        let wanted = devices(Some(&Ailment::Gone));
        let mut slices = published(&wanted, 1);
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Default::default());
        let first = &mut slices[0].spec.devices.as_mut().unwrap()[0];
        first.taints.as_mut().unwrap()[0].time_added = Some(time.clone());
        assert!(is_published(&slices, &wanted));
        let timed = with_times(&slices, wanted);
        let times = timed[0].iter().map(|device| device.taints.as_ref().unwrap()[0].time_added.clone());
        assert_eq!(times.collect::<Vec<_>>(), [Some(time), None]);
        assert_eq!(
            with_times(&slices, devices(Some(&Ailment::Recovers)))[0][0].taints.as_ref().unwrap()[0]
                .time_added,
            None
        );
    }

    #[test]
    fn many_devices_are_several_slices_and_none_are_one() {
        let many = vec![Device::default(); 65];
        assert_eq!(divide(&many).iter().map(Vec::len).collect::<Vec<_>>(), [64, 1]);
        assert_eq!(divide(&[]), [Vec::new()]);
    }
}
