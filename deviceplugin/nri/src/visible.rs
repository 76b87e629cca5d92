//! GPUs that a container's variables or annotations name.

use tranche_domain::id::GpuSelector;

/// Variable by which NVIDIA's container runtime chooses GPUs.
///
/// KAI sets it to the UUID of the GPU that it chose.
const VARIABLE: &str = "NVIDIA_VISIBLE_DEVICES";

/// GPUs that a container would see without a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VisibleGpus {
    /// Access to no GPU at all.
    None,
    /// All of them: no scheduler has chosen one.
    All,
    /// GPUs that a scheduler chose, by index or UUID.
    Chosen(Vec<GpuSelector>),
}

/// Reason for which a list of GPUs cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no GPU that a slice can be on: use the UUID or the index of a whole GPU")]
pub(crate) struct BadGpu(String);

impl VisibleGpus {
    /// GPUs of a container's variables, `NAME=value`, of which the last counts.
    pub(crate) fn of_variables(variables: &[String]) -> Result<Self, BadGpu> {
        let mut values = variables.iter().rev().filter_map(|variable| variable.split_once('='));
        match values.find(|(name, _)| *name == VARIABLE).map(|(_, value)| value) {
            // NVIDIA's runtime gives all GPUs to images that have this one alone.
            None if variables.iter().any(|variable| variable.starts_with("CUDA_VERSION=")) => Ok(Self::All),
            None | Some("" | "void" | "none") => Ok(Self::None),
            Some("all") => Ok(Self::All),
            Some(list) => Self::of_list(list),
        }
    }

    /// GPUs of a list with commas. CDI names of NVIDIA's such as `nvidia.com/gpu=UUID` are read, too.
    pub(crate) fn of_list(list: &str) -> Result<Self, BadGpu> {
        let selector = |name: &str| {
            let name = name.trim();
            let gpu = name.split_once('=').map_or(name, |(_, gpu)| gpu);
            gpu.parse().map_err(|_| BadGpu(name.to_owned()))
        };
        list.split(',').map(selector).collect::<Result<_, _>>().map(Self::Chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "GPU-00000000-0000-0000-0000-000000000001";

    fn read(value: &str) -> Result<VisibleGpus, BadGpu> {
        VisibleGpus::of_variables(&["PATH=/bin".into(), format!("{VARIABLE}={value}")])
    }

    #[test]
    fn every_form_of_the_variable_is_read() {
        for none in ["", "void", "none"] {
            assert_eq!(read(none), Ok(VisibleGpus::None));
        }
        assert_eq!(VisibleGpus::of_variables(&[]), Ok(VisibleGpus::None));
        assert_eq!(VisibleGpus::of_variables(&["CUDA_VERSION=13.0".into()]), Ok(VisibleGpus::All));
        assert_eq!(read("all"), Ok(VisibleGpus::All));
        let chosen = vec![GpuSelector::Uuid(UUID.parse().unwrap()), GpuSelector::Index(3)];
        assert_eq!(read(&format!("{UUID},3")), Ok(VisibleGpus::Chosen(chosen.clone())));
        let names = format!("k8s.device-plugin.nvidia.com/gpu={UUID}, nvidia.com/gpu=3");
        assert_eq!(VisibleGpus::of_list(&names), Ok(VisibleGpus::Chosen(chosen)));
    }

    #[test]
    fn last_variable_counts() {
        let variables = [format!("{VARIABLE}=all"), format!("{VARIABLE}=1")];
        let expected = VisibleGpus::Chosen(vec![GpuSelector::Index(1)]);
        assert_eq!(VisibleGpus::of_variables(&variables), Ok(expected));
    }

    #[test]
    fn what_is_no_whole_gpu_is_refused() {
        for bad in ["MIG-1", "GPU-1", "0,", "all,0", "-1", "/var/run/nvidia-container-devices"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
