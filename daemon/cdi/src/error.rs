//! Errors in descriptions of the node, with remedies.

/// Maximum size of a file in bytes. The tool writes about ten thousand for a node of eight GPUs.
pub(crate) const LONGEST: usize = 4 << 20;

/// Error in a file, or in what was found on the node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {fault}; {}", .fault.remedy())]
pub struct BadSpec {
    /// Path of the file, or another source in words.
    pub origin: String,
    /// Fault that was found in it.
    pub fault: CdiFault,
}

/// Fault of a document or of a node's description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CdiFault {
    /// The content is not YAML or JSON of the expected form.
    #[error("it cannot be read: {0}")]
    Form(String),
    /// The file exceeds the size limit.
    #[error("it has {0} bytes, and {limit} are read at most", limit = LONGEST)]
    Long(usize),
    /// The version of the specification is not supported.
    #[error("it follows version {0:?} of the CDI specification, and 0.3.0 to 1.x are understood")]
    Version(String),
    /// A kind of device that is not an NVIDIA GPU.
    #[error("it describes {0:?}, which are not NVIDIA GPUs")]
    Kind(String),
    /// A value violates the specification.
    #[error("{what} {value:?} is not valid: {why}")]
    Value {
        /// Name of the field.
        what: &'static str,
        /// Value that it has there.
        value: String,
        /// Rule of the specification that it violates.
        why: &'static str,
    },
    /// The document has no devices.
    #[error("it lists no devices")]
    NoDevices,
    /// Two devices have the same name.
    #[error("it lists the device {0:?} more than once")]
    Twice(String),
    /// A GPU of the node has no device.
    #[error("it has no device for GPU {0}, neither by that UUID nor by its index")]
    NoGpu(String),
    /// The library that the shim replaces is not mounted.
    #[error("it mounts no {0}, so there is nothing that the shim could stand in for")]
    NoLibrary(&'static str),
    /// Two different drivers are mounted.
    #[error("it mounts two drivers, {0:?} and {1:?}")]
    TwoDrivers(String, String),
    /// A mount occupies a path that slices need.
    #[error("it mounts something at {0:?}, where a slice has its own")]
    Occupied(String),
    /// A path cannot be mounted.
    #[error("{what} {path:?} is not an absolute path without '.', '..' and empty parts")]
    Place {
        /// Purpose of the path.
        what: &'static str,
        /// Path that the document names.
        path: String,
    },
    /// Devices of one slice have conflicting edits.
    #[error("its devices ask for different {0:?} in one container")]
    Disagree(String),
}

impl CdiFault {
    /// Advice for the operator.
    fn remedy(&self) -> &'static str {
        match self {
            Self::Version(_) => "write it again with the node's own `nvidia-ctk cdi generate`",
            Self::Kind(_) => "name the file that `nvidia-ctk cdi generate` wrote, or none",
            Self::NoGpu(_) | Self::NoLibrary(_) | Self::TwoDrivers(..) => {
                "it may be older than the driver: write it again with `nvidia-ctk cdi generate`"
            }
            Self::Place { .. } => "let the daemon's configuration name it by such a path",
            Self::Occupied(_) => "remove that mount from it",
            _ => "mend it, or write it again with `nvidia-ctk cdi generate`",
        }
    }

    pub(crate) fn of(self, origin: &str) -> BadSpec {
        BadSpec { origin: origin.to_owned(), fault: self }
    }
}
