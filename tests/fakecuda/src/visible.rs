//! `CUDA_VISIBLE_DEVICES`: which GPUs of the node this process sees, and in what order.

use simgpu::{Gpu, Node};

/// The GPUs a setting leaves visible; without one, all. The first entry that names none ends the list.
pub(crate) fn gpus(node: &Node, setting: Option<&str>) -> Vec<Gpu> {
    let Some(setting) = setting else { return node.gpus().collect() };
    let names: Vec<String> = node.gpus().map(|gpu| node.gpu_spec(gpu).uuid_text()).collect();
    chosen(&names, setting).into_iter().filter_map(|index| node.gpu(index)).collect()
}

fn chosen(uuids: &[String], setting: &str) -> Vec<usize> {
    let mut chosen = Vec::new();
    for entry in setting.split(',').map(str::trim) {
        match named(uuids, entry) {
            Some(index) if !chosen.contains(&index) => chosen.push(index),
            // The real driver shows no device at all when one is named twice.
            Some(_) => return Vec::new(),
            None => break,
        }
    }
    chosen
}

fn named(uuids: &[String], entry: &str) -> Option<usize> {
    if let Ok(index) = entry.parse::<usize>() {
        return (index < uuids.len()).then_some(index);
    }
    if !entry.starts_with("GPU-") {
        return None;
    }
    let mut matching = (0..uuids.len()).filter(|index| uuids[*index].starts_with(entry));
    matching.next().filter(|_| matching.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::chosen;

    fn uuids() -> Vec<String> {
        ["GPU-aa11", "GPU-ab22", "GPU-cc33"].map(String::from).to_vec()
    }

    #[test]
    fn indices_and_uuid_prefixes_choose_and_order() {
        assert_eq!(chosen(&uuids(), "2, GPU-aa"), [2, 0]);
    }

    #[test]
    fn the_first_bad_entry_ends_the_list() {
        assert_eq!(chosen(&uuids(), "1,7,0"), [1]);
        assert_eq!(chosen(&uuids(), "GPU-a"), [] as [usize; 0]);
        assert_eq!(chosen(&uuids(), ""), [] as [usize; 0]);
        assert_eq!(chosen(&uuids(), "-1,0"), [] as [usize; 0]);
    }

    #[test]
    fn a_device_named_twice_hides_them_all() {
        assert_eq!(chosen(&uuids(), "0,GPU-aa11"), [] as [usize; 0]);
    }
}
