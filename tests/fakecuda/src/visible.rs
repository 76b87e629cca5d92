//! `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`: the node's GPUs for this process, and their order.
//!
//! As NVIDIA documents them, and where the documents are silent, as programs that read the first one found it: a number
//! ends where its digits do, indices and UUIDs do not mix, and a GPU that is named twice hides all.

use std::cmp::Reverse;

use simgpu::{Gpu, Node};

/// The GPUs that the settings leave, in order. The first entry that names none ends the list.
pub(crate) fn gpus(node: &Node, visible: Option<&str>, order: Option<&str>) -> Vec<Gpu> {
    let mut gpus: Vec<Gpu> = node.gpus().collect();
    if order != Some("PCI_BUS_ID") {
        // The fastest first, by cores and clock. Equals stay in the order of the bus.
        gpus.sort_by_key(|gpu| Reverse(speed(node, *gpu)));
    }
    let Some(visible) = visible else { return gpus };
    let names: Vec<String> = gpus.iter().map(|gpu| node.gpu_spec(*gpu).uuid_text()).collect();
    chosen(&names, visible).into_iter().map(|index| gpus[index]).collect()
}

fn speed(node: &Node, gpu: Gpu) -> u64 {
    let model = &node.gpu_spec(gpu).model;
    let cores = u64::from(model.compute.sm_count) * u64::from(model.compute.cores_per_sm);
    cores * u64::from(model.clocks.max_mhz)
}

fn chosen(uuids: &[String], setting: &str) -> Vec<usize> {
    let mut chosen = Vec::new();
    for entry in setting.split(',').map(str::trim) {
        let named = if setting.starts_with("GPU-") { by_uuid(uuids, entry) } else { by_index(uuids, entry) };
        match named {
            Some(index) if !chosen.contains(&index) => chosen.push(index),
            Some(_) => return Vec::new(),
            None => break,
        }
    }
    chosen
}

fn by_index(uuids: &[String], entry: &str) -> Option<usize> {
    let digits = entry.strip_prefix('+').unwrap_or(entry);
    let digits = digits.split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|index| *index < uuids.len())
}

fn by_uuid(uuids: &[String], entry: &str) -> Option<usize> {
    if !entry.starts_with("GPU-") {
        return None;
    }
    let mut matching = (0..uuids.len()).filter(|index| uuids[*index].starts_with(entry));
    matching.next().filter(|_| matching.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    fn seen(setting: &str) -> Vec<usize> {
        chosen(&["GPU-aa11", "GPU-ab22", "GPU-cc33"].map(String::from), setting)
    }

    #[test]
    fn indices_or_uuid_prefixes_choose_and_order() {
        assert_eq!(seen("2, 0"), [2, 0]);
        assert_eq!(seen("1st,+2nd"), [1, 2]);
        assert_eq!(seen("GPU-cc33, GPU-aa"), [2, 0]);
    }

    #[test]
    fn the_first_bad_entry_ends_the_list() {
        assert_eq!(seen("1,7,0"), [1]);
        assert_eq!(seen("2,GPU-aa"), [2]);
        assert_eq!(seen("GPU-aa,2"), [0]);
        for bad in ["", "-1,0", "GPU-a", "GPU-dd", "aa11", "MIG-aa11", "99999999999999999999"] {
            assert_eq!(seen(bad), NONE, "{bad}");
        }
    }

    #[test]
    fn a_device_named_twice_hides_them_all() {
        assert_eq!(seen("0,1,0"), NONE);
        assert_eq!(seen("GPU-aa,GPU-aa11"), NONE);
    }
}
