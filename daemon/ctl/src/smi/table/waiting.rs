//! Table of the requests that wait for room.

use std::time::SystemTime;

use tranche_domain::view::{NodeView, WaitingView};

use crate::table::{Cell, Column, Section, or_dash};
use crate::when;

/// Requests that wait, oldest first.
pub(super) fn requests(node: &NodeView, now: SystemTime) -> Section {
    const COLUMNS: [Column; 5] = [
        Column::left("Waiting").cut(12),
        Column::right("Share"),
        Column::right("PID"),
        Column::right("Since"),
        Column::prose("For what"),
    ];
    (COLUMNS.to_vec(), node.waiting.iter().map(|request| row(request, now)).collect())
}

fn row(request: &WaitingView, now: SystemTime) -> Vec<Cell> {
    vec![
        or_dash(request.name.as_ref()).into(),
        request.share.to_string().into(),
        request.pid.to_string().into(),
        when::short(when::since(request.since_unix_ms, now)).into(),
        request.reason.clone().into(),
    ]
}
