//! The view of the daemon itself: domain to wire and back.

use tranche_domain::daemon;

use crate::v1;

impl From<daemon::DaemonView> for v1::DaemonView {
    fn from(daemon: daemon::DaemonView) -> Self {
        Self {
            capabilities: daemon.capabilities.into_iter().map(Into::into).collect(),
            bounding: daemon.bounding,
            no_new_privs: daemon.no_new_privs,
            settings: daemon.settings.into_iter().map(Into::into).collect(),
            uid: daemon.uid,
            helper: daemon.helper.map(Into::into),
        }
    }
}

impl From<v1::DaemonView> for daemon::DaemonView {
    fn from(wire: v1::DaemonView) -> Self {
        Self {
            capabilities: wire.capabilities.into_iter().map(Into::into).collect(),
            bounding: wire.bounding,
            no_new_privs: wire.no_new_privs,
            settings: wire.settings.into_iter().map(Into::into).collect(),
            uid: wire.uid,
            helper: wire.helper.map(Into::into),
        }
    }
}

impl From<daemon::PrivilegesView> for v1::PrivilegesView {
    fn from(privileges: daemon::PrivilegesView) -> Self {
        Self {
            uid: privileges.uid,
            capabilities: privileges.capabilities.into_iter().map(Into::into).collect(),
            bounding: privileges.bounding,
            no_new_privs: privileges.no_new_privs,
        }
    }
}

impl From<v1::PrivilegesView> for daemon::PrivilegesView {
    fn from(wire: v1::PrivilegesView) -> Self {
        Self {
            uid: wire.uid,
            capabilities: wire.capabilities.into_iter().map(Into::into).collect(),
            bounding: wire.bounding,
            no_new_privs: wire.no_new_privs,
        }
    }
}

impl From<daemon::CapabilityView> for v1::CapabilityView {
    fn from(capability: daemon::CapabilityView) -> Self {
        Self { name: capability.name, reason: capability.reason }
    }
}

impl From<v1::CapabilityView> for daemon::CapabilityView {
    fn from(wire: v1::CapabilityView) -> Self {
        Self { name: wire.name, reason: wire.reason }
    }
}

impl From<daemon::SettingView> for v1::SettingView {
    fn from(setting: daemon::SettingView) -> Self {
        Self { key: setting.key, value: setting.value, origin: setting.origin, live: setting.live }
    }
}

impl From<v1::SettingView> for daemon::SettingView {
    fn from(wire: v1::SettingView) -> Self {
        Self { key: wire.key, value: wire.value, origin: wire.origin, live: wire.live }
    }
}
