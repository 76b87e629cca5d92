//! Check of the running daemon's capabilities and their purposes.

use tranche_domain::daemon::{CapabilityView, DaemonView, PrivilegesView};
use tranche_domain::view::NodeView;

use crate::doctor::check::{Check, ok, warning};

const NAME: &str = "privileges";
const BY_UNIT: &str = "restart it from its unit, which gives it no more than it needs";

pub(super) fn check(node: &NodeView, daemon: &DaemonView) -> Check {
    let processes = processes(daemon);
    if node.privileged {
        for (name, process) in &processes {
            let unexplained: Vec<_> = process
                .capabilities
                .iter()
                .filter(|held| held.reason.is_none())
                .map(|held| &*held.name)
                .collect();
            if !unexplained.is_empty() {
                let found = format!("{name} holds {}, which it has no use for", unexplained.join(", "));
                return warning(NAME, found, Some(BY_UNIT));
            }
            if !process.no_new_privs {
                let found = format!("programs that {name} starts could gain privileges that it has not");
                return warning(NAME, found, Some("restart it from its unit (`NoNewPrivileges=yes`)"));
            }
        }
        if daemon.uid == Some(0) && daemon.helper.is_some() {
            let found = "tranched reads what users and tenants send as uid 0: without capabilities, but it owns root's files";
            return warning(
                NAME,
                found,
                Some("make the system user `tranched` (`systemd-sysusers`) and restart it from its unit"),
            );
        }
    }
    ok(NAME, processes.iter().flat_map(|(name, process)| held(name, process)).collect::<Vec<_>>().join("\n"))
}

/// Main process and helper, each with its name.
fn processes(daemon: &DaemonView) -> Vec<(String, PrivilegesView)> {
    let main = PrivilegesView {
        uid: daemon.uid.unwrap_or_default(),
        capabilities: daemon.capabilities.clone(),
        bounding: daemon.bounding.clone(),
        no_new_privs: daemon.no_new_privs,
    };
    let name = daemon.uid.map_or("tranched".into(), |uid| format!("tranched (uid {uid})"));
    let helper = daemon.helper.clone().map(|helper| (format!("its helper (uid {})", helper.uid), helper));
    std::iter::once((name, main)).chain(helper).collect()
}

fn held(name: &str, process: &PrivilegesView) -> Vec<String> {
    let each = |held: &CapabilityView| match &held.reason {
        Some(reason) => format!("{name} holds {}: {reason}", held.name),
        None => format!("{name} holds {}", held.name),
    };
    match &*process.capabilities {
        [] => vec![format!("{name} holds no capabilities")],
        held => held.iter().map(each).collect(),
    }
}
