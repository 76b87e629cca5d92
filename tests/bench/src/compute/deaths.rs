//! Effects of the end of a daemon or a tenant on the tenants that remain.

use std::thread;
use std::time::Duration;

use bench::Result;
use bench::node::Node;
use bench::report::Report;
use bench::stats::greatest;
use nix::sys::signal::Signal;

use crate::curve::{Curve, delay_ms, parts};
use crate::game::{Game, now};
use crate::lab::{Lab, variant};
use crate::load::{Load, MS, Tenant};

pub(crate) fn all(lab: &Lab, report: &mut Report) -> Result<()> {
    daemon(lab, report)?;
    let node = lab.node()?;
    for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
        for scheduled in [true, false] {
            struck(lab, &node, signal, scheduled, report)?;
        }
    }
    Ok(())
}

/// Stalls and shares while a daemon killed under load is away for two seconds, and after its return.
fn daemon(lab: &Lab, report: &mut Report) -> Result<()> {
    let node = lab.node()?;
    let tenants = [80.0, 20.0].map(|percent| Tenant::new(percent, Load::saturating(MS)));
    let mut game = lab.begin(&node, &tenants, true)?;
    let (mut stalls, mut added) = (Vec::new(), Vec::new());
    let (mut rights, mut away) = (Vec::new(), Vec::new());
    for _ in 0..lab.either(8, 1) {
        let killed = now();
        node.kill_daemon()?;
        let (_, end) = game.watch(Duration::from_millis(2000))?;
        node.start_daemon()?;
        let returned = now();
        let (_, last) = game.watch(Duration::from_millis(1500))?;
        let curves = game.curves();
        stalls.extend(curves.iter().map(|curve| curve.longest_pause_ms(killed, end)));
        // Beside a slice of 80 %, one of 20 % waits for four turns, which is no added pause.
        let settled = last - 1000 * MS;
        let pause =
            |curve: &&Curve| curve.longest_pause_ms(returned, last) - curve.longest_pause_ms(settled, last);
        added.extend(curves.iter().map(pause));
        // At first the lease that the daemon wrote last holds, until the gates detect its end.
        let without = parts(&curves, killed + 200 * MS, end)[0];
        away.push(without);
        rights.push(delay_ms(&curves, returned, last, without, 80.0));
        game.watch(lab.settle())?;
    }
    report.figure("daemon_killed_longest_stall_ms", "ours", "ms", &stalls);
    report.figure("daemon_returned_added_pause_ms", "ours", "ms", &added);
    report.figure("daemon_killed_share_meanwhile", "ours", "%", &away);
    report.figure("daemon_killed_right_after_ms", "ours", "ms", &rights);
    report.at_most("daemon_killed_longest_stall_ms", greatest(&stalls), "ms", 50.0);
    report.at_most("daemon_returned_added_pause_ms", greatest(&added), "ms", 50.0);
    report.at_most("daemon_killed_right_after_ms", greatest(&rights), "ms", 1000.0);
    report.undecided_in_simulation();
    Ok(())
}

/// Longest wait of a tenant after the other is killed or stopped while it holds the GPU.
fn struck(lab: &Lab, node: &Node, signal: Signal, scheduled: bool, report: &mut Report) -> Result<()> {
    let mut game = lab.begin(node, &[Tenant::new(30.0, Load::saturating(MS))], scheduled)?;
    let mut waits = Vec::new();
    for _ in 0..lab.either(12, 2) {
        let victim = game.join(&Tenant::new(50.0, Load::saturating(MS)))?;
        game.work(victim, &Load::saturating(MS))?;
        game.watch(Duration::from_millis(500))?;
        await_turn(&mut game, victim)?;
        let at = game.strike(victim, signal)?;
        let (_, end) = game.watch(Duration::from_millis(500))?;
        waits.push(game.curves()[0].longest_pause_ms(at, end));
        game.strike(victim, Signal::SIGKILL)?;
        game.leave(victim)?;
    }
    let name = format!(
        "{}_longest_wait_of_the_other_ms",
        if signal == Signal::SIGKILL { "killed" } else { "stopped" }
    );
    report.figure(&name, variant(scheduled), "ms", &waits);
    if scheduled {
        report.at_most(&name, greatest(&waits), "ms", 51.0);
        report.undecided_in_simulation();
    }
    Ok(())
}

fn await_turn(game: &mut Game<'_>, player: usize) -> Result<()> {
    for _ in 0..500 {
        if game.holds(player)? {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err("a tenant never had the GPU".into())
}
