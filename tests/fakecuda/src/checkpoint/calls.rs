//! The six calls, each a request to the driver in a process, perhaps this one.
//!
//! None but the restore needs `cuInit` in the caller: `r570-features.c` reads a child's state without it.

use std::sync::OnceLock;
use std::time::Duration;

use simgpu::{Controlled, Gpu, Node, Request};

use crate::driver::driver;
use crate::personality;
use crate::status::{Outcome, Status, outcome};
use crate::wall::{In, Out};

/// The CUDA version of maps from old to new GPUs.
const GPU_MAPS: i32 = 13_000;
/// The CUDA version of storage that the caller provides.
const CUSTOM_STORAGE: i32 = 13_040;

/// `CUcheckpointLockArgs`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct LockArguments {
    timeout_ms: u32,
    reserved: u32,
    more_reserved: [u64; 7],
}

/// `CUcheckpointRestoreArgs` of CUDA 13; all 64 bytes are reserved before.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RestoreArguments {
    pairs: In<GpuPair>,
    count: u32,
    reserved: u32,
    /// Reserved too before CUDA 13.4.
    storage: u64,
    more_reserved: [u64; 5],
}

/// `CUcheckpointGpuPair`: the UUIDs of a GPU and of the one in its place.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct GpuPair {
    old: [u8; 16],
    new: [u8; 16],
}

const _: () = assert!(size_of::<LockArguments>() == 64 && size_of::<RestoreArguments>() == 64);

pub(crate) fn state(pid: i32, out: Out<i32>) -> Outcome {
    out.check()?;
    out.put(controlled(pid)?.state() as i32)
}

pub(crate) fn thread(pid: i32, out: Out<i32>) -> Outcome {
    out.check()?;
    let thread = controlled(pid)?.thread().and_then(|thread| i32::try_from(thread).ok());
    out.put(thread.ok_or(Status::NotInitialized)?)
}

pub(crate) fn lock(pid: i32, arguments: In<LockArguments>) -> Outcome {
    let mut timeout = None;
    if arguments.address() != 0 {
        let LockArguments { timeout_ms, reserved, more_reserved } = arguments.get()?;
        if reserved != 0 || more_reserved != [0; 7] {
            return Err(Status::InvalidValue);
        }
        timeout = (timeout_ms > 0).then(|| Duration::from_millis(u64::from(timeout_ms)));
    }
    request(pid, &Request::Lock(timeout))
}

pub(crate) fn checkpoint(pid: i32, arguments: In<[u64; 8]>) -> Outcome {
    let [storage, reserved @ ..] = reserved(arguments)?;
    if storage != 0 && personality::own().has(CUSTOM_STORAGE) {
        return Err(Status::NotSupported);
    }
    must_be_zero(&[storage])?;
    must_be_zero(&reserved)?;
    request(pid, &Request::Checkpoint)
}

/// Restores with `cuInit` before, since no simulated GPU is in persistence mode.
pub(crate) fn restore(pid: i32, arguments: In<RestoreArguments>) -> Outcome {
    let node = driver()?.node();
    let mut map = None;
    if arguments.address() != 0 {
        let RestoreArguments { pairs, count, reserved, storage, more_reserved } = arguments.get()?;
        let driver = personality::own();
        if storage != 0 && driver.has(CUSTOM_STORAGE) {
            return Err(Status::NotSupported);
        }
        must_be_zero(&[u64::from(reserved), storage])?;
        must_be_zero(&more_reserved)?;
        if !driver.has(GPU_MAPS) {
            must_be_zero(&[pairs.address(), u64::from(count)])?;
        }
        if count > 0 {
            map = Some(places(node, &pairs.list(count as usize)?)?);
        }
    }
    request(pid, &Request::Restore(map))
}

pub(crate) fn unlock(pid: i32, arguments: In<[u64; 8]>) -> Outcome {
    must_be_zero(&reserved(arguments)?)?;
    request(pid, &Request::Unlock)
}

fn reserved(arguments: In<[u64; 8]>) -> Outcome<[u64; 8]> {
    if arguments.address() == 0 { Ok([0; 8]) } else { arguments.get() }
}

fn must_be_zero(words: &[u64]) -> Outcome {
    if words.iter().all(|word| *word == 0) { Ok(()) } else { Err(Status::InvalidValue) }
}

/// For each GPU of the node the one in its place.
///
/// A map has to name every GPU that the kernel's part of the driver has, also those that `CUDA_VISIBLE_DEVICES` hides
/// from the process (NVIDIA/cuda-python pull request 1983), and each new one must be of the old one's model. Two old
/// ones cannot have one place.
fn places(node: &Node, pairs: &[GpuPair]) -> Outcome<Vec<Gpu>> {
    let of_uuid = |uuid: [u8; 16]| node.gpus().find(|gpu| node.gpu_spec(*gpu).uuid == uuid);
    let model = |gpu: Gpu| &node.gpu_spec(gpu).model.name;
    let new_of = |old: Gpu| {
        let mut named = pairs.iter().filter(|pair| of_uuid(pair.old) == Some(old));
        let new = of_uuid(named.next()?.new)?;
        (named.next().is_none() && model(old) == model(new)).then_some(new)
    };
    let places: Option<Vec<Gpu>> = node.gpus().map(new_of).collect();
    let places = places.filter(|places| places.len() == pairs.len()).ok_or(Status::InvalidValue)?;
    let all_different = places.iter().all(|one| places.iter().filter(|other| *other == one).count() == 1);
    if all_different { Ok(places) } else { Err(Status::InvalidValue) }
}

fn request(pid: i32, wanted: &Request) -> Outcome {
    let process = controlled(pid)?;
    process.thread().ok_or(Status::NotInitialized)?;
    outcome(process.request(wanted).ok_or(Status::OperatingSystem)?)
}

/// The driver in a process that the caller may control as a debugger may.
///
/// Without root, calls were refused with 304 (NVIDIA/cuda-checkpoint issue 6).
fn controlled(pid: i32) -> Outcome<Controlled> {
    let node = node()?;
    let pid = u32::try_from(pid).map_err(|_| Status::InvalidValue)?;
    let process = node.controlled(pid);
    if process.is_none() && !node.lives(pid) {
        return Err(Status::InvalidValue);
    }
    if !node.may_control(pid) {
        return Err(Status::OperatingSystem);
    }
    process.ok_or(Status::NotInitialized)
}

/// The node of this process, initialised or not.
fn node() -> Outcome<Node> {
    static NODE: OnceLock<Option<Node>> = OnceLock::new();
    if let Ok(driver) = driver() {
        return Ok(driver.node().clone());
    }
    NODE.get_or_init(|| Node::from_env().ok()).clone().ok_or(Status::NotInitialized)
}

#[cfg(test)]
mod tests {
    use simgpu::{Node, NodeSpec};

    use super::{GpuPair, places};
    use crate::status::Status;

    fn node(preset: &str) -> (tempfile::TempDir, Node) {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::create(&folder.path().join("node"), &NodeSpec::preset(preset).unwrap()).unwrap();
        (folder, node)
    }

    fn pairs(node: &Node, new: impl Fn(usize) -> usize) -> Vec<GpuPair> {
        let uuid = |index: usize| node.gpu_spec(node.gpu(index).unwrap()).uuid;
        node.gpus().map(|gpu| GpuPair { old: uuid(gpu.index()), new: uuid(new(gpu.index())) }).collect()
    }

    #[test]
    fn a_map_names_every_gpu_of_the_node_once() {
        let (_folder, node) = node("v100x8");
        let turned = places(&node, &pairs(&node, |index| (index + 1) % 8)).unwrap();
        assert_eq!(turned.iter().map(|gpu| gpu.index()).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 0]);
        let all = pairs(&node, |index| index);
        let refused = |pairs: &[GpuPair]| places(&node, pairs).err();
        assert_eq!(refused(&all), None);
        assert_eq!(refused(&all[..7]), Some(Status::InvalidValue), "one is missing");
        assert_eq!(
            refused(&[&all[..7], &all[..1]].concat()),
            Some(Status::InvalidValue),
            "one is there twice"
        );
        assert_eq!(
            refused(&[&all[..], &all[..1]].concat()),
            Some(Status::InvalidValue),
            "one more than there are"
        );
        assert_eq!(refused(&pairs(&node, |_| 0)), Some(Status::InvalidValue), "all in one place");
    }

    #[test]
    fn a_gpu_of_another_model_takes_no_place() {
        let (_folder, node) = node("mixed");
        let count = node.gpus().count();
        let turned = places(&node, &pairs(&node, |index| (index + 1) % count));
        assert_eq!(turned.err(), Some(Status::InvalidValue));
        assert!(places(&node, &pairs(&node, |index| index)).is_ok());
    }
}
