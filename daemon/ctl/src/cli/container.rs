//! Options of `tranche submit` for jobs in containers.

use clap::Args;
use tranche_domain::jobs::{ImageName, PublishedPort, PullPolicy};
use tranche_domain::units::Bytes;

use super::quantity;

/// Image of a job and what its containers get. Without the image the others make no sense.
#[derive(Args, Clone, Debug)]
pub struct ContainerArgs {
    /// Run in containers of this image, such as docker.io/jupyter/base-notebook
    #[arg(short = 'i', long, value_name = "IMAGE")]
    pub image: Option<ImageName>,
    /// Folder of the node, or volume of podman's, in the container; several are possible
    #[arg(
        short = 'v',
        long = "volume",
        visible_alias = "mount",
        value_name = "HOST|NAME:PATH[:ro]",
        requires = "image"
    )]
    pub volumes: Vec<String>,
    /// Publish a port of the container at all addresses of the node; several are possible
    #[arg(long = "port", value_name = "[HOST:]CONTAINER", requires = "image")]
    pub ports: Vec<PublishedPort>,
    /// Size of /dev/shm, such as 8GiB [default: podman's, 64 MiB]
    #[arg(long, value_name = "SIZE", value_parser = quantity::memory, requires = "image")]
    pub shm: Option<Bytes>,
    /// Condition for pulling the image: always, missing, never or newer [default: missing]
    #[arg(long, value_name = "POLICY", requires = "image")]
    pub pull: Option<PullPolicy>,
}
