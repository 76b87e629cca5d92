//! Content of the pool's ResourceSlices, and when what is published differs from it.

use k8s_openapi::api::resource::v1::{CounterSet, Device, DeviceCapacity, DeviceTaint, ResourceSlice};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity;

/// Most devices of one ResourceSlice in which any has a taint or draws on counters.
const DEVICES: usize = 64;
/// Most sets of counters of one ResourceSlice.
const COUNTERS: usize = 8;

/// Content of one ResourceSlice: devices, or counters that devices of the pool draw on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PoolPart {
    Devices(Vec<Device>),
    Counters(Vec<CounterSet>),
}

impl PoolPart {
    /// Devices and counters as fields of a ResourceSlice.
    pub(crate) fn fields(self) -> (Option<Vec<Device>>, Option<Vec<CounterSet>>) {
        match self {
            Self::Devices(devices) => (Some(devices), None),
            Self::Counters(counters) => (None, Some(counters)),
        }
    }

    fn devices_mut(&mut self) -> &mut [Device] {
        match self {
            Self::Devices(devices) => devices,
            Self::Counters(_) => &mut [],
        }
    }
}

/// Content of each ResourceSlice.
///
/// Without devices there is one that is empty, so that the pool is known.
pub(crate) fn divide(devices: &[Device], counters: &[CounterSet]) -> Vec<PoolPart> {
    let counters = counters.chunks(COUNTERS).map(|some| PoolPart::Counters(some.to_vec()));
    let devices_of = devices.chunks(DEVICES).map(|some| PoolPart::Devices(some.to_vec()));
    let all: Vec<_> = counters.chain(devices_of).collect();
    if all.is_empty() { vec![PoolPart::Devices(Vec::new())] } else { all }
}

/// Tests if the published ResourceSlices, in the order of their names, are a pool with this content.
pub(crate) fn is_published(published: &[ResourceSlice], wanted: &[PoolPart]) -> bool {
    let generation = published.first().map(|slice| slice.spec.pool.generation);
    let count = i64::try_from(wanted.len()).ok();
    published.len() == wanted.len()
        && published.iter().zip(wanted).all(|(slice, part)| {
            let pool = &slice.spec.pool;
            Some(pool.generation) == generation
                && Some(pool.resource_slice_count) == count
                && has(slice, part)
        })
}

fn has(slice: &ResourceSlice, part: &PoolPart) -> bool {
    let devices = slice.spec.devices.as_deref().unwrap_or_default();
    let counters = slice.spec.shared_counters.as_deref().unwrap_or_default();
    match part {
        PoolPart::Devices(wanted) => {
            counters.is_empty() && devices.iter().map(comparable).eq(wanted.iter().map(comparable))
        }
        PoolPart::Counters(wanted) => {
            devices.is_empty() && counters.iter().map(plain_set).eq(wanted.iter().map(plain_set))
        }
    }
}

fn plain_set(set: &CounterSet) -> CounterSet {
    let mut set = set.clone();
    set.counters.values_mut().for_each(|counter| plain(&mut counter.value));
    set
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
    for counter in device.consumes_counters.iter_mut().flatten().flat_map(|set| set.counters.values_mut()) {
        plain(&mut counter.value);
    }
    device
}

fn plain(quantity: &mut Quantity) {
    if let Some(number) = quantity::whole(quantity) {
        *quantity = quantity::of(number);
    }
}

fn normalize(capacity: &mut DeviceCapacity) {
    plain(&mut capacity.value);
    if let Some(policy) = &mut capacity.request_policy {
        policy.default.iter_mut().for_each(plain);
        if let Some(range) = &mut policy.valid_range {
            plain(&mut range.min);
            range.max.iter_mut().chain(&mut range.step).for_each(plain);
        }
    }
}

/// The wanted content with the times of those taints that are published: eviction counts from them.
pub(crate) fn with_times(published: &[ResourceSlice], mut wanted: Vec<PoolPart>) -> Vec<PoolPart> {
    let before = |name: &str| {
        let devices = published.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        devices
            .filter(|device| device.name == name)
            .flat_map(|device| device.taints.iter().flatten())
            .collect::<Vec<_>>()
    };
    for device in wanted.iter_mut().flat_map(PoolPart::devices_mut) {
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
    use crate::profile::{self, PartProfile};
    use crate::tests::{node, published};

    fn devices(ailment: Option<&Ailment>) -> Vec<PoolPart> {
        let node = node(2);
        divide(
            &node
                .gpus
                .iter()
                .map(|gpu| device(&node, gpu, ailment.map(|one| one.taint("d", false))))
                .collect::<Vec<_>>(),
            &[],
        )
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
        let times = |timed: Vec<PoolPart>| {
            let devices = timed.into_iter().filter_map(|part| part.fields().0).flatten();
            devices.map(|device| device.taints.unwrap()[0].time_added.clone()).collect::<Vec<_>>()
        };
        assert_eq!(times(with_times(&slices, wanted)), [Some(time), None]);
        assert_eq!(times(with_times(&slices, devices(Some(&Ailment::Recovers)))), [None, None]);
    }

    #[test]
    fn parts_and_counters_are_slices_of_their_own() {
        let node = node(9);
        let profiles = [PartProfile::new("gpu-10".into(), 100).unwrap()];
        let whole = |gpu| device(&node, gpu, None);
        let parts: Vec<_> =
            node.gpus.iter().flat_map(|gpu| profile::parts(&whole(gpu), gpu, &profiles)).collect();
        let counters: Vec<_> = node.gpus.iter().map(profile::counters).collect();
        let wanted = divide(&parts, &counters);
        let lengths = wanted.iter().map(|part| match part {
            PoolPart::Devices(devices) => devices.len(),
            PoolPart::Counters(counters) => counters.len(),
        });
        assert_eq!(lengths.collect::<Vec<_>>(), [8, 1, 64, 26]);
        let mut slices = published(&wanted, 1);
        let counter =
            slices[0].spec.shared_counters.as_mut().unwrap()[0].counters.get_mut("compute").unwrap();
        counter.value = Quantity("1k".into());
        assert!(is_published(&slices, &wanted));
        slices[0].spec.shared_counters.as_mut().unwrap().pop();
        assert!(!is_published(&slices, &wanted));
    }

    #[test]
    fn many_devices_are_several_slices_and_none_are_one() {
        let many = vec![Device::default(); 65];
        let lengths = divide(&many, &[]).into_iter().map(|part| part.fields().0.map(|devices| devices.len()));
        assert_eq!(lengths.collect::<Vec<_>>(), [Some(64), Some(1)]);
        assert_eq!(divide(&[], &[]), [PoolPart::Devices(Vec::new())]);
    }
}
