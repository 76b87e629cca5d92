//! Why a description of the node cannot be used, and what to do about it.

/// What is wrong with one file, or with what was found on the node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {fault}; {}", .fault.remedy())]
pub struct BadSpec {
    /// The file, or in words where else it comes from.
    pub origin: String,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not YAML or JSON of the right form.
    #[error("it cannot be read: {0}")]
    Form(String),
    /// More than anybody would write.
    #[error("it has {0} bytes, and {limit} are read at most", limit = crate::node::LONGEST)]
    Long(usize),
    /// A version of the specification that is not known here.
    #[error("it follows version {0:?} of the CDI specification, and 0.3.0 to 1.x are understood")]
    Version(String),
    /// A kind of device that is not an NVIDIA GPU.
    #[error("it describes {0:?}, which are not NVIDIA GPUs")]
    Kind(String),
    /// A value that the specification does not allow there.
    #[error("{what} {value:?} is not valid: {why}")]
    Value {
        /// Which field.
        what: &'static str,
        /// What it holds.
        value: String,
        /// What it should hold.
        why: &'static str,
    },
    /// It lists no device.
    #[error("it lists no devices")]
    NoDevices,
    /// Two devices by one name.
    #[error("it lists the device {0:?} more than once")]
    Twice(String),
    /// A GPU that the node has and the file has not.
    #[error("it has no device for GPU {0}, neither by that UUID nor by its index")]
    NoGpu(String),
    /// The library that the shim is to stand in for is not among the mounts.
    #[error("it mounts no {0}, so there is nothing that the shim could stand in for")]
    NoLibrary(&'static str),
    /// Two drivers.
    #[error("it mounts two drivers, {0:?} and {1:?}")]
    TwoDrivers(String, String),
    /// A mount where ours have to be.
    #[error("it mounts something at {0:?}, where a slice has its own")]
    Occupied(String),
    /// A place of ours that cannot be mounted.
    #[error("{what} {path:?} is not an absolute path without '.', '..' and empty parts")]
    Place {
        /// What is there.
        what: &'static str,
        /// Where it was said to be.
        path: String,
    },
    /// Devices of one slice that want different things of the container.
    #[error("its devices ask for different {0:?} in one container")]
    Disagree(String),
}

impl Fault {
    /// What a person can do.
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
