//! The node's CDI file, written by NVIDIA's tool.

use serde::{Deserialize, Serialize};
use tranche_domain::id::GpuUuid;

use crate::error::{BadSpec, CdiFault, LONGEST};
use crate::facts::{Facts, merge};
use crate::spec::{CdiDevice, ContainerEdits, Spec};

/// A GPU of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CdiGpu {
    /// UUID that the driver reports.
    pub uuid: GpuUuid,
    /// Index in the order of NVML.
    pub index: u32,
}

/// The parsed file with the node's GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeSpec {
    origin: String,
    spec: Spec,
}

impl NodeSpec {
    /// Parses YAML or JSON; `origin` is the path for messages.
    ///
    /// # Errors
    /// If the content is not a valid document about NVIDIA GPUs.
    pub fn parse(origin: &str, bytes: &[u8]) -> Result<Self, BadSpec> {
        let spec = read(bytes).and_then(|spec| {
            spec.check()?;
            of_nvidia(&spec.kind).then_some(()).ok_or_else(|| CdiFault::Kind(spec.kind.clone()))?;
            Ok(spec)
        });
        let spec = spec.map_err(|fault| fault.of(origin))?;
        Ok(Self { origin: origin.to_owned(), spec })
    }

    /// Facts for these GPUs of a node that has `present` in total.
    ///
    /// # Errors
    /// If the file lacks one of the GPUs or the driver's libraries.
    pub fn facts(&self, gpus: &[CdiGpu], present: usize) -> Result<Facts, BadSpec> {
        self.gather(gpus, present)
            .and_then(|edits| Facts::of(edits, &self.spec.cdi_version))
            .map_err(|fault| fault.of(&self.origin))
    }

    /// Common edits, followed by those of each GPU.
    fn gather(&self, gpus: &[CdiGpu], present: usize) -> Result<ContainerEdits, CdiFault> {
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

    /// Device of a GPU in the node's document.
    ///
    /// By UUID; by index only if no device is named by a UUID, since the index might belong
    /// to another GPU; and the device of all GPUs only for a slice with all.
    fn device(&self, gpu: &CdiGpu, every: bool) -> Result<&CdiDevice, CdiFault> {
        let named = |name: &str| self.spec.devices.iter().find(|device| device.name == name);
        let by_uuid = self.spec.devices.iter().any(|device| device.name.starts_with("GPU-"));
        named(&gpu.uuid.to_string())
            .or_else(|| if by_uuid { None } else { named(&gpu.index.to_string()) })
            .or_else(|| if every { named("all") } else { None })
            .ok_or_else(|| CdiFault::NoGpu(gpu.uuid.to_string()))
    }
}

fn read(bytes: &[u8]) -> Result<Spec, CdiFault> {
    if bytes.len() > LONGEST {
        return Err(CdiFault::Long(bytes.len()));
    }
    // JSON is a subset of YAML. The parser bounds nesting and alias expansion, and rejects duplicate keys.
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_slice_with_options(bytes, options)
        .map_err(|error| CdiFault::Form(error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// Tests if the kind is that of the toolkit, or of a plugin's file below its name.
fn of_nvidia(kind: &str) -> bool {
    kind.strip_suffix("nvidia.com/gpu").is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}
