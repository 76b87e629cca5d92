//! Table of the requests that wait for room.

use std::time::SystemTime;

use tranche_domain::view::{NodeView, SliceView, WaitingView};

use crate::owners::Owners;
use crate::room;
use crate::table::{Cell, Column, Section, or_dash};
use crate::when;

/// Requests that wait, oldest first, and parked slices of which a program waits for their return.
pub fn requests(node: &NodeView, owners: &Owners, now: SystemTime) -> Section {
    const COLUMNS: [Column; 6] = [
        Column::left("Waiting").cut(12),
        Column::left("User").cut(8).drop(1),
        Column::right("Share"),
        Column::right("PID"),
        Column::right("Since"),
        Column::prose("For what"),
    ];
    let requests = node.waiting.iter().map(|request| row(node, request, owners, now));
    // Rotating slices return by their turn, which needs no room beside others.
    let blocked = node.slices.iter().filter(|slice| !slice.rotates);
    let blocked = blocked.filter_map(|slice| call(slice, owners));
    (COLUMNS.to_vec(), requests.chain(blocked).collect())
}

/// A parked slice of which a program waits in a call.
fn call(slice: &SliceView, owners: &Owners) -> Option<Vec<Cell>> {
    let reason = slice.cannot_return.as_ref()?;
    Some(vec![
        slice.name.to_string().into(),
        owners.user(slice).into(),
        slice.share.to_string().into(),
        "-".into(),
        "-".into(),
        format!("a call of its program waits; {reason}").into(),
    ])
}

fn row(node: &NodeView, request: &WaitingView, owners: &Owners, now: SystemTime) -> Vec<Cell> {
    vec![
        or_dash(request.name.as_ref()).into(),
        or_dash(request.uid.map(|uid| owners.name(uid))).into(),
        request.share.to_string().into(),
        request.pid.to_string().into(),
        when::short(when::since(request.since_unix_ms, now)).into(),
        reason(node, request, owners).into(),
    ]
}

/// Reason of the daemon, with the slices that have the room.
fn reason(node: &NodeView, request: &WaitingView, owners: &Owners) -> String {
    let holders = node.slices.iter().filter(|slice| request.holders.contains(&slice.name)).collect();
    match room::in_use_by(holders, owners) {
        Some(holders) => format!("{}; {holders}", request.reason),
        None => request.reason.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn reason_names_the_holders_of_the_room() {
        let (node, owners) = (sample::node(), sample::owners());
        let request = &node.waiting[0];
        assert_eq!(reason(&node, request, &owners), request.reason);
        let held = WaitingView { holders: vec!["frac03".parse().unwrap()], ..request.clone() };
        let expected = format!("{}; in use by frac03 (0.3 of ann)", request.reason);
        assert_eq!(reason(&node, &held, &owners), expected);
    }

    #[test]
    fn requester_is_named() {
        let (_, rows) = requests(&sample::node(), &sample::owners(), SystemTime::UNIX_EPOCH);
        assert_eq!(rows[0].iter().take(3).map(Cell::text).collect::<Vec<_>>(), ["-", "ann", "0.8"]);
    }

    #[test]
    fn call_of_a_program_that_waits_for_the_return_of_its_slice_is_shown() {
        let cannot_return = Some("GPU 0 is cordoned".to_owned());
        let slices = vec![SliceView { cannot_return, ..sample::parked() }, sample::away()];
        let node = NodeView { slices, waiting: Vec::new(), ..sample::node() };
        let (_, rows) = requests(&node, &sample::owners(), SystemTime::UNIX_EPOCH);
        let texts: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(Cell::text).collect()).collect();
        let expected = ["night", "ann", "0.5", "-", "-", "a call of its program waits; GPU 0 is cordoned"];
        assert_eq!(texts, [expected.map(str::to_owned)]);
    }
}
