//! Interfaces between the kubelet and its plugins, with both sides of each service.
//!
//! The plugin is a server to the kubelet and its client, and a test can be the kubelet.
//!
//! Law: the numbers and names of the definitions are the kubelet's; nothing is decided here.
#![forbid(unsafe_code)]

pub mod socket;

/// Device plugin interface `v1beta1`: `Registration` of the kubelet, `DevicePlugin` of the plugin.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::unwrap_used)]
pub mod deviceplugin {
    tonic::include_proto!("v1beta1");

    /// The version of this interface, as a registration names it.
    pub const VERSION: &str = "v1beta1";
    /// A device that may be given to a container.
    pub const HEALTHY: &str = "Healthy";
    /// A device that may not.
    pub const UNHEALTHY: &str = "Unhealthy";
    /// The file name of the kubelet's registration socket, beside the sockets of the plugins.
    pub const KUBELET_SOCKET: &str = "kubelet.sock";
}

/// Devices of each pod: `PodResourcesLister` of the kubelet, `v1`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::unwrap_used)]
pub mod podresources {
    tonic::include_proto!("v1");
}

/// Dynamic resource allocation: `DRAPlugin` of the driver, `v1`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::unwrap_used)]
pub mod dra {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");

    /// Name of this service and version in a plugin's registration.
    pub const SERVICE: &str = "v1.DRAPlugin";
}

/// Health of devices: `DRAResourceHealth` of the driver, `v1alpha1`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::unwrap_used)]
pub mod drahealth {
    tonic::include_proto!("v1alpha1");

    /// Name of this service and version in a plugin's registration.
    pub const SERVICE: &str = "v1alpha1.DRAResourceHealth";
}

/// Discovery of plugins: `Registration` of the plugin, `v1`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::unwrap_used)]
pub mod pluginregistration {
    tonic::include_proto!("pluginregistration");

    /// Type of a driver of dynamic resource allocation.
    pub const DRA_PLUGIN: &str = "DRAPlugin";
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::{deviceplugin as dp, podresources as pr};

    /// The bytes that Kubernetes' Go code sends for the same message, written by hand.
    #[test]
    fn an_answer_with_a_cdi_device_has_kubernetes_numbers() {
        let device = dp::CdiDevice { name: "a/b=c".into() };
        let answer = dp::ContainerAllocateResponse { cdi_devices: vec![device], ..Default::default() };
        let answer = dp::AllocateResponse { container_responses: vec![answer] };
        assert_eq!(answer.encode_to_vec(), b"\x0a\x09\x2a\x07\x0a\x05a/b=c");
    }

    #[test]
    fn what_is_left_out_of_pod_resources_is_skipped() {
        // A container "c" of pod "p" in "n" with cpu_ids (3), which are not read here, and a device.
        let wire = b"\x0a\x19\x0a\x01p\x12\x01n\x1a\x11\x0a\x01c\x1a\x01\x07\x12\x09\x0a\x03r/x\x12\x02d0";
        let answer = pr::ListPodResourcesResponse::decode(&wire[..]).unwrap();
        let container = &answer.pod_resources[0].containers[0];
        assert_eq!(container.devices[0].resource_name, "r/x");
        assert_eq!(container.devices[0].device_ids, ["d0"]);
    }

    #[test]
    fn the_services_are_called_as_kubernetes_calls_them() {
        assert_eq!(dp::registration_server::SERVICE_NAME, "v1beta1.Registration");
        assert_eq!(dp::device_plugin_server::SERVICE_NAME, "v1beta1.DevicePlugin");
        assert_eq!(pr::pod_resources_lister_server::SERVICE_NAME, "v1.PodResourcesLister");
        let dra = super::dra::dra_plugin_server::SERVICE_NAME;
        assert_eq!(dra, "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin");
        let health = super::drahealth::dra_resource_health_server::SERVICE_NAME;
        assert_eq!(health, "v1alpha1.DRAResourceHealth");
        let registration = super::pluginregistration::registration_server::SERVICE_NAME;
        assert_eq!(registration, "pluginregistration.Registration");
    }
}
