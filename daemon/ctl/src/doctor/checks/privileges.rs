//! What the running daemon may do, by the kernel's word, and what for.

use tranche_domain::daemon::DaemonView;
use tranche_domain::view::NodeView;

use super::{Check, ok, warning};

const NAME: &str = "privileges";

pub(super) fn check(node: &NodeView, daemon: &DaemonView) -> Check {
    let unexplained: Vec<_> =
        daemon.capabilities.iter().filter(|held| held.reason.is_none()).map(|held| &*held.name).collect();
    if node.privileged && !unexplained.is_empty() {
        let found = format!("tranched holds {}, which it has no use for", unexplained.join(", "));
        return warning(NAME, found, Some("restart it from its unit, which gives it no more than it needs"));
    }
    if node.privileged && !daemon.no_new_privs {
        let found = "programs that tranched starts could gain privileges that it has not";
        return warning(NAME, found, Some("restart it from its unit (`NoNewPrivileges=yes`)"));
    }
    ok(NAME, held(daemon))
}

fn held(daemon: &DaemonView) -> String {
    let each = daemon.capabilities.iter().map(|held| match &held.reason {
        Some(reason) => format!("tranched holds {}: {reason}", held.name),
        None => format!("tranched holds {}", held.name),
    });
    let lines: Vec<_> = each.collect();
    if lines.is_empty() { "tranched holds no capabilities".into() } else { lines.join("\n") }
}
