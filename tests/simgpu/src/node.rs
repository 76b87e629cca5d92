//! A node: its file, its GPUs, its clock.
#![forbid(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use thiserror::Error;

use crate::layout::{self, GpuWords, NodeWords, node};
use crate::preset::{GpuSpec, MAX_GPUS, NodeSpec};
use crate::sys::Mapping;
use crate::units::{Blocks, Gpu, Time};
use crate::world::{Host, World};

/// Why a node can't be made or attached.
#[derive(Debug, Error)]
pub enum BadNode {
    /// The environment names none.
    #[error("SIMGPU_NODE is not set; make a node with `simgpu create --preset NAME FILE` and set it to FILE")]
    NotNamed,
    /// The file can't be opened, made or mapped.
    #[error("can't {action} the node file {path}: {source}")]
    File {
        /// Attempted action, as a verb.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file is not a node of this build.
    #[error("{path} is not a simulated node: {reason}; make one with `simgpu create --preset NAME FILE`")]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Mismatch that was found.
        reason: String,
    },
}

/// A simulated node, attached. Cheap to clone; every clone is the same mapping.
#[derive(Clone, Debug)]
pub struct Node(Arc<Attached>);

#[derive(Debug)]
struct Attached {
    mapping: Mapping,
    spec: NodeSpec,
    world: Box<dyn World>,
}

impl Node {
    /// Makes a node's file in one step: it is there whole or not at all. Fails if it exists.
    pub fn create(path: &Path, spec: &NodeSpec) -> Result<Self, BadNode> {
        write_file(path, spec).map_err(|source| BadNode::File {
            action: "make",
            path: path.into(),
            source,
        })?;
        Self::attach(path)
    }

    /// Attaches to a node's file.
    pub fn attach(path: &Path) -> Result<Self, BadNode> {
        Self::attach_in(path, Box::new(Host))
    }

    /// Attaches with another idea of time and of who lives: for tests in virtual time.
    pub fn attach_in(path: &Path, world: Box<dyn World>) -> Result<Self, BadNode> {
        let failed = |action| move |source| BadNode::File { action, path: path.into(), source };
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed("open"))?;
        let spec = read_spec(&file).map_err(|error| explain(path, error))?;
        let mapping = Mapping::of(&file, layout::words(spec.gpus.len())).map_err(failed("map"))?;
        Ok(Self(Arc::new(Attached { mapping, spec, world })))
    }

    /// Attaches to the node that the environment names in [`crate::NODE_VARIABLE`].
    pub fn from_env() -> Result<Self, BadNode> {
        match std::env::var_os(crate::NODE_VARIABLE) {
            Some(path) if !path.is_empty() => Self::attach(Path::new(&path)),
            _ => Err(BadNode::NotNamed),
        }
    }

    /// Specification of the node.
    pub fn spec(&self) -> &NodeSpec {
        &self.0.spec
    }

    /// The GPU with an index, if there is one.
    pub fn gpu(&self, index: usize) -> Option<Gpu> {
        (index < self.spec().gpus.len()).then_some(Gpu(index))
    }

    /// All GPUs in NVML's order.
    pub fn gpus(&self) -> impl Iterator<Item = Gpu> + use<> {
        (0..self.spec().gpus.len()).map(Gpu)
    }

    /// Specification of a GPU.
    pub fn gpu_spec(&self, gpu: Gpu) -> &GpuSpec {
        &self.spec().gpus[gpu.index()]
    }

    /// The time now, by the node's clock.
    pub fn now(&self) -> Time {
        self.world().now()
    }

    /// Memory that all processes may have of a GPU together: `cuDeviceTotalMem`.
    pub fn capacity(&self, gpu: Gpu) -> Blocks {
        self.gpu_spec(gpu).model.capacity()
    }

    pub(crate) fn world(&self) -> &dyn World {
        &*self.0.world
    }

    pub(crate) fn words(&self) -> NodeWords<'_> {
        NodeWords(self.0.mapping.words())
    }

    pub(crate) fn gpu_words(&self, gpu: Gpu) -> GpuWords<'_> {
        self.words().gpu(gpu.index())
    }
}

fn write_file(path: &Path, spec: &NodeSpec) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::Builder::new().prefix(".simgpu-").tempfile_in(folder)?;
    let trailer = serde_json::to_vec(spec)?;
    let words = layout::words(spec.gpus.len());
    let mut part = file.as_file();
    part.set_len(8 * words as u64)?;
    part.write_all_at(&header(spec, trailer.len()), 0)?;
    for (index, gpu) in spec.gpus.iter().enumerate() {
        let (at, settings) = (8 * layout::gpu_word(index, layout::gpu::CONTEXT_BLOCKS), gpu.model.context());
        part.write_all_at(&settings.0.to_ne_bytes(), at as u64)?;
    }
    part.write_all_at(&trailer, 8 * words as u64)?;
    part.flush()?;
    // As with a real GPU's device files, any user may open it.
    part.set_permissions(fs::Permissions::from_mode(0o666))?;
    file.persist_noclobber(path)?;
    Ok(())
}

fn header(spec: &NodeSpec, trailer_bytes: usize) -> Vec<u8> {
    let mut words = [0u64; node::WORDS];
    words[node::MAGIC] = layout::MAGIC;
    words[node::VERSION] = layout::VERSION;
    words[node::GPUS] = spec.gpus.len() as u64;
    words[node::BOOT] = boot();
    words[node::TRAILER_BYTES] = trailer_bytes as u64;
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Defect of a node's file.
enum Fault {
    Io(io::Error),
    Format(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn explain(path: &Path, fault: Fault) -> BadNode {
    match fault {
        Fault::Io(source) => BadNode::File { action: "read", path: path.into(), source },
        Fault::Format(reason) => BadNode::Format { path: path.into(), reason },
    }
}

fn read_spec(file: &File) -> Result<NodeSpec, Fault> {
    let mut header = [0u8; 8 * node::WORDS];
    let length = file.metadata()?.len();
    if length < header.len() as u64 {
        return Err(Fault::Format(format!("it has only {length} bytes")));
    }
    file.read_exact_at(&mut header, 0)?;
    let field = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| header[8 * at + byte]));
    check(field(node::MAGIC) == layout::MAGIC, || "it begins with something else".into())?;
    check(field(node::VERSION) == layout::VERSION, || {
        format!("its layout is {}, this build has {}", field(node::VERSION), layout::VERSION)
    })?;
    check(field(node::BOOT) == boot(), || "it is from before this machine started".into())?;
    let gpus = field(node::GPUS) as usize;
    check((1..=MAX_GPUS).contains(&gpus), || format!("it says it has {gpus} GPUs"))?;
    let (start, bytes) = (8 * layout::words(gpus) as u64, field(node::TRAILER_BYTES));
    check(start.checked_add(bytes) == Some(length), || format!("its length is {length} bytes"))?;
    let mut trailer = vec![0; bytes as usize];
    file.read_exact_at(&mut trailer, start)?;
    let spec: NodeSpec =
        serde_json::from_slice(&trailer).map_err(|error| Fault::Format(error.to_string()))?;
    check(spec.gpus.len() == gpus, || "it disagrees with itself on its GPUs".into())?;
    Ok(spec)
}

fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::Format(otherwise())) }
}

/// Identifies one boot of this machine: with each, its clock and its pids begin anew.
fn boot() -> u64 {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.bytes().fold(1, |hash: u64, byte| hash.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(byte))
}

/// Processes known to a node, dead or alive: slot and stamp.
pub(crate) fn stamps(words: NodeWords<'_>) -> impl Iterator<Item = (usize, u64)> {
    (0..layout::PROCESSES)
        .map(move |slot| (slot, words.process(slot).load(Acquire)))
        .filter(|(_, stamp)| *stamp != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> NodeSpec {
        NodeSpec::preset("mixed").unwrap()
    }

    #[test]
    fn a_node_that_was_made_can_be_attached_and_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node");
        Node::create(&path, &spec()).unwrap();
        assert_eq!(Node::attach(&path).unwrap().spec(), &spec());
    }

    #[test]
    fn making_a_node_over_an_existing_file_is_refused_and_leaves_it_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node");
        fs::write(&path, "precious").unwrap();
        let message = Node::create(&path, &spec()).unwrap_err().to_string();
        assert!(message.contains("can't make") && message.contains("exists"), "{message}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_no_node_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node");
        let refusal = || Node::attach(&path).unwrap_err().to_string();
        assert!(refusal().contains("can't open"), "{}", refusal());
        fs::write(&path, "short").unwrap();
        assert!(refusal().contains("only 5 bytes"), "{}", refusal());
        fs::write(&path, [7; 4096]).unwrap();
        assert!(refusal().contains("begins with something else"), "{}", refusal());
    }

    #[test]
    fn a_truncated_node_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node");
        drop(Node::create(&path, &spec()).unwrap());
        OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
        let message = Node::attach(&path).unwrap_err().to_string();
        assert!(message.contains("its length is"), "{message}");
    }
}
