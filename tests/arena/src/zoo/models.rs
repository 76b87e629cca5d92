//! The table of models. Each differs from the first as its row describes.

use simgpu::law::{Quirks, Rules};

use super::Model;
use crate::driver::{Clock, Driver};
use crate::setup::{Delays, GPU_RULES, Tail};
use crate::{MS, S, US};

const PLAIN: Model = Model {
    name: "plain",
    why: "What every other test of the arena runs on",
    law: GPU_RULES,
    delays: Delays::USUAL,
    driver: Driver::PLAIN,
    seed: 1,
};

const fn named(name: &'static str, why: &'static str) -> Model {
    Model { name, why, ..PLAIN }
}

const fn quirky(name: &'static str, why: &'static str, quirks: Quirks) -> Model {
    Model { law: Rules { quirks, ..GPU_RULES }, ..named(name, why) }
}

const LATE: Tail = Tail { permille: 50, more: (2 * MS, 10 * MS) };
const LATE_MARKERS: Delays = Delays {
    write: (100 * US, 500 * US),
    late_writes: Tail { permille: 100, more: (MS, 5 * MS) },
    ..Delays::USUAL
};

/// All models, the plain one first.
pub const MODELS: &[Model] = &[
    PLAIN,
    Model {
        driver: Driver { mark: 3 * US, ..Driver::PLAIN },
        ..named("marker-3us", "The write of a marker is a fence, for whose end its stream waits")
    },
    Model {
        driver: Driver { mark: 8 * US, ..Driver::PLAIN },
        ..named("marker-8us", "The same, system-wide and over a busy bus")
    },
    Model {
        delays: LATE_MARKERS,
        ..named("late-markers", "Words come 0.1 to 0.5 ms late, one in ten 1 to 5 ms, and so in any order")
    },
    Model {
        driver: Driver { queues: 8, ..Driver::PLAIN },
        ..named(
            "eight-queues",
            "Streams share eight hardware queues, so a marker stands behind strange kernels",
        )
    },
    Model {
        driver: Driver { queues: 1, ..Driver::PLAIN },
        ..named("one-queue", "CUDA_DEVICE_MAX_CONNECTIONS=1, as tensor-parallel training sets it")
    },
    Model {
        driver: Driver { writes_marks: false, ..Driver::PLAIN },
        ..named("events", "The driver refuses to write markers: events stand there, learnt of by asking")
    },
    Model {
        law: Rules { slice: MS / 2, ..GPU_RULES },
        ..named("slice-0.5ms", "Published slices differ by a factor of two and more between GPUs")
    },
    Model {
        law: Rules { slice: MS / 2, quirks: Quirks { slice_more: MS, ..Quirks::NONE }, ..GPU_RULES },
        ..named("slice-random", "Slices of 0.5 to 1.5 ms, with no pattern that a scheduler could lean on")
    },
    Model {
        law: Rules { slice: 6 * MS, ..GPU_RULES },
        ..named("slice-6ms", "Slices that are longer than the depth of a queue")
    },
    Model {
        law: Rules { slice: 30 * MS, ..GPU_RULES },
        ..named("slice-30ms", "Slices that are longer than a turn")
    },
    Model {
        law: Rules { switch: 100 * US, handover: 20 * US, ..GPU_RULES },
        ..named("switch-0.1ms", "Little state to save")
    },
    Model {
        law: Rules { switch: 1_600 * US, handover: 200 * US, ..GPU_RULES },
        ..named("switch-1.6ms", "Much state to save, over a slow path")
    },
    Model {
        law: Rules {
            switch: 100 * US,
            quirks: Quirks { switch_more: 1_500 * US, ..Quirks::NONE },
            ..GPU_RULES
        },
        ..named("switch-random", "The state to save differs from kernel to kernel")
    },
    quirky(
        "no-preemption",
        "Kernels run to their end before another context has its turn",
        Quirks { preempts: false, ..Quirks::NONE },
    ),
    quirky(
        "renewed-slices",
        "A context that is alone has its slice renewed: a newcomer waits for the rest of it",
        Quirks { renews: true, ..Quirks::NONE },
    ),
    quirky(
        "fluid",
        "Each kernel fills the GPU, so kernels side by side share its speed",
        Quirks { abreast: 1, ..Quirks::NONE },
    ),
    quirky(
        "fluid-half",
        "Two kernels fill the GPU, and more share its speed",
        Quirks { abreast: 2, ..Quirks::NONE },
    ),
    quirky(
        "cold-caches",
        "For 0.2 ms after a change of contexts kernels run at half speed",
        Quirks { cold: 200 * US, ..Quirks::NONE },
    ),
    Model {
        driver: Driver { first_launch: 300 * MS, room: Some(1024), ..Driver::PLAIN },
        ..named("blocking-launches", "The first launch loads modules for 300 ms, and queues are full at 1024")
    },
    Model {
        delays: Delays { late_wakeups: LATE, ..Delays::USUAL },
        ..named(
            "late-wakeups",
            "One wake-up in twenty comes 2 to 10 ms late: data loaders, idle states, quotas",
        )
    },
    Model {
        delays: Delays {
            bell: (50 * US, 800 * US),
            wake: (50 * US, 800 * US),
            alarm: (50 * US, 800 * US),
            nap: (50 * US, 800 * US),
            sync: (20 * US, 300 * US),
            launch: 10 * US,
            late_wakeups: Tail { permille: 10, more: (MS, 4 * MS) },
            ..Delays::USUAL
        },
        ..named("busy-host", "Every wake-up waits for a processor, and launches are slow")
    },
    Model {
        driver: Driver { clock: Clock { least: 850, period: 7 * S }, ..Driver::PLAIN },
        ..named("drifting-clock", "Temperature moves the clock by 15 % within seconds")
    },
    Model {
        driver: Driver { clock: Clock { least: 600, period: 2 * S }, ..Driver::PLAIN },
        ..named("power-cap", "Power capping takes the clock down to 0.6 and back each two seconds")
    },
    Model {
        law: Rules {
            slice: MS / 2,
            switch: 100 * US,
            quirks: Quirks {
                slice_more: MS,
                switch_more: 600 * US,
                renews: true,
                abreast: 2,
                cold: 100 * US,
                ..Quirks::NONE
            },
            ..GPU_RULES
        },
        delays: Delays { late_wakeups: Tail { permille: 10, ..LATE }, ..LATE_MARKERS },
        driver: Driver {
            mark: 3 * US,
            queues: 8,
            first_launch: 100 * MS,
            clock: Clock { least: 850, period: 7 * S },
            ..Driver::PLAIN
        },
        ..named("everything", "What stands above comes together, each at a moderate size")
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_has_a_name_of_its_own_and_a_reason() {
        let names: std::collections::BTreeSet<_> = MODELS.iter().map(|model| model.name).collect();
        assert_eq!(names.len(), MODELS.len());
        assert!(MODELS.iter().all(|model| !model.why.is_empty()));
    }
}
