//! Limits that no slice exceeds, and the use of idle GPU time.

use std::thread;
use std::time::Duration;

use bench::Result;
use bench::node::Node;
use bench::report::Report;
use bench::stats::{greatest, mean};

use crate::game::Game;
use crate::lab::{Lab, Played, variant};
use crate::load::{Load, MS, Tenant};

const STRICT: &[&str] = &["--compute-mode", "strict"];

pub(crate) fn all(lab: &Lab, report: &mut Report) -> Result<()> {
    let node = lab.node()?;
    strict_alone(lab, &node, report)?;
    strict_pair(lab, &node, report)?;
    idle_time(lab, &node, report)
}

fn strict_alone(lab: &Lab, node: &Node, report: &mut Report) -> Result<()> {
    let tenants = [Tenant::new(30.0, Load::saturating(MS)).with(STRICT)];
    for scheduled in [true, false] {
        let got = lab.play(node, &tenants, scheduled)?.got_by(0);
        report.figure("strict_30_alone", variant(scheduled), "%", &got);
        if scheduled {
            report.at_most("strict_30_alone_highest", greatest(&got), "%", 32.1);
            report.at_least("strict_30_alone_mean", mean(&got), "%", 28.0);
            report.undecided_in_simulation();
        }
    }
    Ok(())
}

/// Two slices of 50 and 30 %, beside the utilization that NVML reports.
fn strict_pair(lab: &Lab, node: &Node, report: &mut Report) -> Result<()> {
    let tenants = [50.0, 30.0].map(|percent| Tenant::new(percent, Load::saturating(MS)).with(STRICT));
    for scheduled in [true, false] {
        let mut game = lab.begin(node, &tenants, scheduled)?;
        let windows = lab.windows(scheduled);
        let (mut shown, mut from) = (Vec::new(), None);
        for _ in 0..windows {
            let window = game.watch(Duration::from_secs(1))?;
            from = from.or(Some(window.0));
            shown.push(node.seen()?.utilization);
        }
        let played = Played::of(&game.curves(), from.unwrap_or(0), windows);
        report.figure("strict_pair_nvml_utilisation", variant(scheduled), "%", &shown);
        for (tenant, percent) in [50, 30].into_iter().enumerate() {
            let name = format!("strict_pair_{percent}");
            report.figure(&name, variant(scheduled), "%", &played.got_by(tenant));
            if scheduled {
                report.near(&name, mean(&played.got_by(tenant)), "%", f64::from(percent), 2.0);
                report.undecided_in_simulation();
            }
        }
        if scheduled {
            report.near("strict_pair_nvml_utilisation", mean(&shown), "%", 80.0, 2.0);
            report.undecided_in_simulation();
        }
    }
    Ok(())
}

/// Times that the GPU is idle when a slice rests, and that the slice waits when it wakes.
///
/// Another slice saturates the GPU meanwhile.
fn idle_time(lab: &Lab, node: &Node, report: &mut Report) -> Result<()> {
    for scheduled in [true, false] {
        let mut game = lab.begin(node, &[Tenant::new(50.0, Load::saturating(MS))], scheduled)?;
        let other = game.join(&Tenant::new(50.0, Load::Idle))?;
        let (mut used, mut given_back) = (Vec::new(), Vec::new());
        for round in 0..lab.either(40, 5) {
            let (idle, late) = wake_and_rest(&mut game, other)?;
            used.push(idle);
            given_back.push(late);
            thread::sleep(Duration::from_millis(7 * round % 50)); // so that rounds are not in step with turns
        }
        let name = variant(scheduled);
        report.figure("idle_time_used_after_ms", name, "ms", &used);
        report.figure("given_back_after_ms", name, "ms", &given_back);
        if scheduled {
            report.at_most("idle_time_used_after_ms_worst", greatest(&used), "ms", 50.0);
            report.at_most("given_back_after_ms_worst", greatest(&given_back), "ms", 51.0);
        }
    }
    Ok(())
}

fn wake_and_rest(game: &mut Game<'_>, other: usize) -> Result<(f64, f64)> {
    let woken = game.work(other, &Load::saturating(MS))?;
    game.watch(Duration::from_millis(250))?;
    game.rest(other)?;
    let (_, end) = game.watch(Duration::from_millis(250))?;
    let curves = game.curves();
    let ran = curves[other].grows_from(woken).ok_or("a program that woke never ran")?;
    let rested = curves[other].grew_until(end).ok_or("a program that rests never ran")?;
    let next = curves[0].grows_from(rested).unwrap_or(end);
    Ok(((next - rested) as f64 / 1e6, (ran - woken) as f64 / 1e6))
}
