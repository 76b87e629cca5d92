//! Latency targets, gangs, memory and compute of jobs.

use tranche_domain::units::Bytes;

use super::{job, node, submit, until};

/// Exit code of a refusal.
const REFUSED: i32 = 1;

#[test]
fn members_have_the_jobs_latency_target_and_wait_where_it_cannot_be_held() {
    let mut node = node("h200x1", "1");
    let service = ["service", "-g", "0.2", "--latency", "4ms", "--parallelism", "2", "--"];
    submit(&node, &[&service[..], &["sleep", "1000"]].concat()).success();
    until(&node, "service", "running");
    let slices = ["a.service.0", "a.service.1"];
    e2e::eventually("both members run", || match job(&node, "service").members.len() {
        2 => Ok(()),
        count => Err(format!("{count} do")),
    });
    let targets = |node: &e2e::Node| slices.map(|name| node.slice(name).latency);
    e2e::eventually("both slices are there", || match node.smi().slices.len() {
        2 => Ok(()),
        count => Err(format!("{count} are")),
    });
    assert_eq!(targets(&node), [Some(4_000); 2]);
    let described = node.tranche(&["describe", "service"]).success();
    assert!(described.contains("Latency   4 ms"), "{described}");
    node.tranche(&["slice", "resize", slices[0], "--latency", "none"])
        .refused(REFUSED, &["another -g, --priority or --latency"]);
    submit(&node, &["late", "-g", "0.2", "--latency", "50ms", "--", "sleep", "1000"]).success();
    let reason = job(&node, "late").reason;
    assert!(reason.contains("latency of 50 ms"), "three targets need 6 ms each: {reason}");
    node.kill_daemon();
    node.start_daemon();
    assert_eq!((targets(&node), job(&node, "late").state.as_str()), ([Some(4_000); 2], "pending"));
    node.tranche(&["delete", "service"]).success();
    until(&node, "late", "running");
    submit(&node, &["soon", "-g", "0.2", "--latency", "1ms", "--", "true"]).refused(2, &["2 ms to 10 s"]);
}

#[test]
fn members_of_a_gang_have_slices_of_one_gang_of_their_own() {
    let node = node("v100x8", "8");
    for name in ["ranks", "others"] {
        let gang = [name, "-g", "0.6", "--gang", "--parallelism", "2", "--", "sleep", "1000"];
        submit(&node, &gang).success();
    }
    submit(&node, &["plain", "-g", "0.3", "--parallelism", "2", "--", "sleep", "1000"]).success();
    e2e::eventually("all members run", || match node.smi().slices.len() {
        6 => Ok(()),
        count => Err(format!("{count} do")),
    });
    let gang = |slice: &str| node.slice(slice).gang.clone();
    let (ranks, others) = (gang("a.ranks.0"), gang("a.others.0"));
    assert!(ranks.is_some() && others.is_some() && ranks != others, "{ranks:?} {others:?}");
    assert_eq!([gang("a.ranks.1"), gang("a.others.1"), gang("a.plain.0")], [ranks, others, None]);
    let described = node.tranche(&["describe", "ranks"]).success();
    assert!(described.contains("Gang      all members"), "{described}");
    let scattered = ["few", "-g", "0.1", "--gang", "--parallelism", "2", "--completions", "3", "--", "true"];
    submit(&node, &scattered).refused(REFUSED, &["3 members", "--parallelism to --completions"]);
}

#[test]
fn members_have_the_memory_and_compute_that_they_count_for() {
    // GPUs of 32510 MiB.
    let mut node = node("v100x8", "1");
    submit(&node, &["serve", "--memory", "8GiB", "--compute", "0.3", "--interactive", "--", "sleep", "1000"])
        .success();
    submit(&node, &["train", "-g", "0.4", "--memory", "4Gi", "--interactive", "--", "sleep", "1000"])
        .success();
    until(&node, "serve", "running");
    until(&node, "train", "running");
    let of = |node: &e2e::Node, slice: &str| {
        let slice = node.slice(slice);
        (slice.devices[0].gpu_index, slice.devices[0].cap, slice.compute)
    };
    let (serve, train) = (of(&node, "a.serve.0"), of(&node, "a.train.0"));
    assert_eq!((serve.1, serve.2), (Bytes::mib(8192), 300));
    assert_eq!((train.1, train.2, train.0), (Bytes::mib(4096), 400, serve.0), "they share a GPU");
    let described = node.tranche(&["describe", "serve"]).success();
    for line in ["GPUs      0.3 for each", "Memory    8192 MiB", "Compute   30 %"] {
        assert!(described.contains(line), "{line} is missing from\n{described}");
    }
    // Of a quota of one GPU 0.7 are in use, and 10 of 31.7 GiB are more than 0.3.
    submit(&node, &["over", "--memory", "10Gi", "--interactive", "--", "sleep", "1000"]).success();
    assert_eq!(job(&node, "over").state, "pending");
    node.kill_daemon();
    node.start_daemon();
    assert_eq!((of(&node, "a.serve.0"), of(&node, "a.train.0")), (serve, train));
    let listed = node.tranche(&["list", "-o", "csv"]).success();
    assert!(listed.contains("8192 MiB") && listed.contains("30 %"), "{listed}");

    submit(&node, &["huge", "--memory", "40Gi", "--", "true"]).refused(REFUSED, &["40960 MiB", "32510 MiB"]);
    submit(&node, &["two", "-g", "2", "--memory", "4Gi", "--", "true"])
        .refused(REFUSED, &["whole GPUs are given entirely"]);
    submit(&node, &["none", "--compute", "0.3", "--", "true"]).refused(2, &["--gpus", "--memory"]);
    submit(&node, &["nothing", "--memory", "0", "--", "true"]).refused(2, &["1 MiB"]);
    // The tests' daemon has no cgroup that it may divide, and ignores no limit.
    for limit in [["--cpus", "2.5"], ["--mem", "1Gi"]] {
        submit(&node, &[&["limited", "-g", "0.1"], &limit[..], &["--", "true"]].concat())
            .refused(REFUSED, &["cannot limit processors or memory"]);
    }
}
