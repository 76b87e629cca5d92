//! The laws, each of which is judged on any model.

mod collective;
mod failures;
mod figures;
mod latency;
mod limits;
mod shares;
mod streams;

use super::{Figure, Law, Model, Quick};

/// Models on which completion is known late.
const TOLD: Quick = Quick::On(&["late-markers", "events", "everything"]);

/// All laws, in the order of tables.
pub const LAWS: &[Law] = &[
    law("shares-50us", "50/30/20, kernels of 50 us", Quick::On(&["plain", "events"]), shares::short),
    law("shares-1ms", "50/30/20, kernels of 1 ms", Quick::All, shares::millisecond),
    law("shares-mixed", "50/30/20, kernels of 0.05 to 40 ms", TOLD, shares::mixed),
    law("shares-graphs", "50/30/20, five graphs each of 0.2 to 7 ms", TOLD, shares::graphs),
    law(
        "shares-eight",
        "Eight equal slices, kernels of 1 ms",
        Quick::On(&["plain", "late-wakeups"]),
        shares::eight,
    ),
    law("shares-unequal", "90/10, kernels of 50 us and 5 ms", Quick::On(&["busy-host"]), shares::unequal),
    law("shares-long", "70/30, kernels of 1 and 40 ms", Quick::On(&["no-preemption"]), shares::long),
    law(
        "processes",
        "Four processes of a slice beside one",
        Quick::On(&["no-preemption"]),
        shares::processes,
    ),
    law("shares-waiting", "50/30/20, each waits for each kernel of 1 ms", TOLD, shares::waiting),
    law("changes", "Three slices with new shares each 100 ms", TOLD, shares::changing),
    law("priority", "Inference of 1 ms beside training of 1 ms", TOLD, latency::inference),
    law("requests", "Requests of 3.6 ms beside training", TOLD, latency::requests),
    law("greedy-priority", "A high priority of 30 % that saturates", Quick::On(&["plain"]), latency::greedy),
    law(
        "latency-targets",
        "Two services with targets of 8 ms, two without, and training",
        TOLD,
        latency::targets,
    ),
    law("newcomer", "A program begins beside another", Quick::On(&["blocking-launches"]), latency::newcomer),
    law("naps", "A neighbour that is idle but for a second", TOLD, latency::naps),
    law("limit", "A strict slice of 30 % alone, kernels of 1 ms", TOLD, limits::strict),
    law("two-limits", "Strict slices of 50 and 30 %", Quick::On(&["power-cap"]), limits::two_strict),
    law("best-effort", "A request of nothing", Quick::On(&["late-wakeups"]), limits::best_effort),
    law("frozen", "A slice is frozen for a second", Quick::On(&["late-markers"]), limits::frozen),
    law("streams", "Four streams beside one, 50/50", Quick::On(&["one-queue", "fluid"]), streams::four),
    law("many-streams", "Twelve streams beside one", Quick::On(&["plain", "eight-queues"]), streams::twelve),
    law("killed", "A neighbour is killed in its turn", Quick::On(&["plain"]), failures::killed),
    law("stopped", "A neighbour is stopped in its turn", Quick::On(&["events"]), failures::stopped),
    law("daemon-away", "The daemon dies and returns", Quick::On(&["late-wakeups"]), failures::daemon),
    law(
        "hostile",
        "Records with lies beside an honest slice",
        Quick::On(&["late-markers"]),
        failures::hostile,
    ),
    law("gang", "Two ranks in one slice of 50 %", Quick::On(&["plain"]), collective::gang),
    law(
        "ranks-together",
        "Two ranks in slices of 50 % of one gang",
        Quick::On(&["plain"]),
        collective::together,
    ),
    law("ranks-apart", "Two ranks in slices of 50 %", Quick::On(&["plain", "events"]), collective::apart),
];

const fn law(name: &'static str, what: &'static str, quick: Quick, play: fn(&Model) -> Vec<Figure>) -> Law {
    Law { name, what, quick, play }
}
