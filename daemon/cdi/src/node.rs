//! What NVIDIA's tool wrote about the node's GPUs.

use serde::{Deserialize, Serialize};
use tranche_domain::id::GpuUuid;

use crate::error::{BadSpec, Fault};
use crate::facts::{Facts, merge};
use crate::spec::{ContainerEdits, Device, Spec};

/// What is read of a file, in bytes. The tool writes about ten thousand for a node of eight GPUs.
pub(crate) const LONGEST: usize = 4 << 20;

/// A GPU of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// What it is known by everywhere.
    pub uuid: GpuUuid,
    /// Its place in NVML's order.
    pub index: u32,
}

/// A file that describes the node's GPUs, in YAML or JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeSpec {
    origin: String,
    spec: Spec,
}

impl NodeSpec {
    /// Reads the bytes of a file; `origin` is its path, for messages.
    ///
    /// # Errors
    /// They are not a document that describes NVIDIA GPUs by the specification.
    pub fn parse(origin: &str, bytes: &[u8]) -> Result<Self, BadSpec> {
        let spec = read(bytes).and_then(|spec| {
            spec.check()?;
            of_nvidia(&spec.kind).then_some(()).ok_or_else(|| Fault::Kind(spec.kind.clone()))?;
            Ok(spec)
        });
        let spec = spec.map_err(|fault| fault.of(origin))?;
        Ok(Self { origin: origin.to_owned(), spec })
    }

    /// What a container needs for these GPUs, of a node that has `present` in all.
    ///
    /// # Errors
    /// The file does not have all of them, or not the driver's libraries.
    pub fn facts(&self, gpus: &[Gpu], present: usize) -> Result<Facts, BadSpec> {
        self.gather(gpus, present)
            .and_then(|edits| Facts::of(edits, &self.spec.cdi_version))
            .map_err(|fault| fault.of(&self.origin))
    }

    /// What is done for any GPU, and then for each of these.
    fn gather(&self, gpus: &[Gpu], present: usize) -> Result<ContainerEdits, Fault> {
        let mut edits = self.spec.container_edits.clone();
        let mut taken: Vec<&str> = Vec::new();
        for gpu in gpus {
            let device = self.device(gpu, gpus.len() == present)?;
            if !taken.contains(&device.name.as_str()) {
                taken.push(&device.name);
                merge(&mut edits, &device.container_edits)?;
            }
        }
        Ok(edits)
    }

    /// By UUID; by index only where nothing has a UUID for its name, as that of another GPU would be the same; and the
    /// device of all GPUs only for who has them all.
    fn device(&self, gpu: &Gpu, every: bool) -> Result<&Device, Fault> {
        let named = |name: &str| self.spec.devices.iter().find(|device| device.name == name);
        let by_uuid = self.spec.devices.iter().any(|device| device.name.starts_with("GPU-"));
        named(&gpu.uuid.to_string())
            .or_else(|| if by_uuid { None } else { named(&gpu.index.to_string()) })
            .or_else(|| if every { named("all") } else { None })
            .ok_or_else(|| Fault::NoGpu(gpu.uuid.to_string()))
    }
}

fn read(bytes: &[u8]) -> Result<Spec, Fault> {
    if bytes.len() > LONGEST {
        return Err(Fault::Long(bytes.len()));
    }
    // JSON is YAML. The library bounds nesting and what aliases expand to, and takes no key twice.
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_slice_with_options(bytes, options)
        .map_err(|error| Fault::Form(error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// The toolkit's own file, and those that plugins write for themselves under names beneath it.
fn of_nvidia(kind: &str) -> bool {
    kind.strip_suffix("nvidia.com/gpu").is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}
