//! The view of the daemon itself.

use tranche_domain::daemon;

use crate::mirror::mirror;
use crate::v1;

mirror! {
    daemon::DaemonView = v1::DaemonView { capabilities, bounding, no_new_privs, settings, uid, helper }

    daemon::PrivilegesView = v1::PrivilegesView { uid, capabilities, bounding, no_new_privs }

    daemon::CapabilityView = v1::CapabilityView { name, reason }

    daemon::SettingView = v1::SettingView { key, value, origin, live }
}
