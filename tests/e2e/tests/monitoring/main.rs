//! Pages of the programs, and the rules, rule tests and dashboard of docs/monitoring.
#![forbid(unsafe_code)]

mod files;
mod page;
mod promtool;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use e2e::{CudaError, Kind, Node, Process, eventually};
use nix::sys::signal::Signal;
use tranche_domain::units::Bytes;
use tranche_exposition::Address;

use page::Page;

/// A profile of half a GPU, and a layout with it.
const PROFILES: &str = "[[profile]]\nname = 'gpu-50'\nfraction = 0.5\n[[layout]]\nprofiles = ['gpu-50']\n";

/// A node with a project, and its adapters: all publish figures.
struct Watched {
    node: Node,
    plugin: Process,
    driver: Process,
    nri: Process,
}

impl Watched {
    fn start() -> Self {
        let node = Node::configured("v100x8", "fault_quiet_s = 600");
        node.tranche(&["project", "create", "a", "--quota", "1"]).success();
        let config = format!(
            "tranched_socket = '{0}/run/tranched.sock'\nkubelet_dir = '{0}'\npod_resources_socket = '{0}/pods.sock'\n\
             metrics = '{0}/plugin.sock'\n{PROFILES}",
            node.dir().display()
        );
        let path = node.dir().join("plugin.toml");
        std::fs::write(&path, config).expect("the directory can be written");
        let program = node.stage().daemon().with_file_name("tranche-deviceplugin");
        let plugin = Process::start(node.command(program).arg("--config").arg(path));
        let (driver, nri) = (Self::driver(&node), Self::nri(&node));
        Self { node, plugin, driver, nri }
    }

    /// The DRA driver with an API server that does not answer.
    fn driver(node: &Node) -> Process {
        let config = format!(
            "node = 'n'\ntranched_socket = '{0}/run/tranched.sock'\nkubelet_dir = '{0}/kubelet'\nmetrics = '{0}/driver.sock'\n",
            node.dir().display()
        );
        let kubeconfig = "{apiVersion: v1, kind: Config, current-context: c, \
             clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}], \
             contexts: [{name: c, context: {cluster: c, user: u}}]}";
        let [path, account] = ["driver.toml", "kubeconfig"].map(|name| node.dir().join(name));
        std::fs::write(&path, config).expect("the directory can be written");
        std::fs::write(&account, kubeconfig).expect("the directory can be written");
        let program = node.stage().daemon().with_file_name("tranche-dradriver");
        Process::start(node.command(program).arg("--config").arg(path).env("KUBECONFIG", account))
    }

    /// The plugin of a container runtime that is not there.
    fn nri(node: &Node) -> Process {
        let config = format!(
            "runtime_socket = '{0}/nri'\ntranched_socket = '{0}/run/tranched.sock'\nmetrics = '{0}/nri.sock'\n",
            node.dir().display()
        );
        let path = node.dir().join("nri.toml");
        std::fs::write(&path, config).expect("the directory can be written");
        let program = node.stage().daemon().with_file_name("tranche-nriplugin");
        Process::start(node.command(program).arg("--config").arg(path))
    }

    fn daemon_page(&self) -> Result<Page, String> {
        Page::read(&Address::Unix(self.node.dir().join("run/metrics.sock")))
    }

    fn plugin_page(&self) -> Result<Page, String> {
        Page::read(&Address::Unix(self.plugin_socket()))
    }

    fn driver_page(&self) -> Result<Page, String> {
        Page::read(&Address::Unix(self.node.dir().join("driver.sock")))
    }

    fn nri_page(&self) -> Result<Page, String> {
        Page::read(&Address::Unix(self.node.dir().join("nri.sock")))
    }

    fn plugin_socket(&self) -> PathBuf {
        self.node.dir().join("plugin.sock")
    }

    fn end(self) {
        for adapter in [self.plugin, self.driver, self.nri] {
            adapter.signal(Signal::SIGTERM);
            adapter.end().success();
        }
    }
}

#[test]
fn every_figure_that_rules_and_dashboard_name_is_published() {
    let watched = Watched::start();
    let mut tenant = watched.node.tenant(&["-g", "0.5", "--name", "half", "--latency", "8ms"]).ready();
    watched.node.set_gpu(3, &["--xid", "48"]);
    let mut named = files::figures_of_rules();
    named.extend(files::figures_of_dashboard());
    // Prometheus' own.
    named.remove("up");
    assert!(named.len() > 30, "{named:?}");
    eventually("all are published", || {
        let (daemon, plugin) = (watched.daemon_page()?, watched.plugin_page()?);
        let missing: Vec<_> = named.iter().filter(|name| !daemon.has(name) && !plugin.has(name)).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?}")) }
    });
    tenant.drop_all();
    drop(tenant);
    watched.end();
}

#[test]
fn published_figures_are_those_of_the_document() {
    let watched = Watched::start();
    let tenant = watched.node.tenant(&["-g", "0.5", "--name", "half", "--latency", "8ms"]).ready();
    watched.node.set_gpu(3, &["--xid", "48"]);
    let documented = files::documented();
    eventually("all publish, and nothing else", || {
        let pages =
            [watched.daemon_page()?, watched.plugin_page()?, watched.driver_page()?, watched.nri_page()?];
        let names = pages.iter().flat_map(|page| page.names());
        let published: BTreeSet<_> = names.map(str::to_owned).collect();
        let of_processes = |name: &&String| name.starts_with("process_");
        let undocumented: Vec<_> =
            published.difference(&documented).filter(|name| !of_processes(name)).collect();
        let missing: Vec<_> = documented.difference(&published).collect();
        if undocumented.is_empty() && missing.is_empty() {
            Ok(())
        } else {
            Err(format!("not in docs/operations.md: {undocumented:?}; only there: {missing:?}"))
        }
    });
    drop(tenant);
    watched.end();
}

#[test]
fn promtool_finds_nothing_wrong_with_what_is_published() {
    if !promtool::is_there() {
        return;
    }
    let watched = Watched::start();
    let tenant = watched.node.tenant(&["-g", "0.5", "--latency", "8ms"]).ready();
    watched.node.set_gpu(3, &["--xid", "48"]);
    let daemon = eventually("the daemon has recorded the fault", || {
        watched
            .daemon_page()
            .and_then(|page| page.has("tranche_gpu_fault").then_some(page).ok_or("no".into()))
    });
    promtool::check_metrics(daemon.text());
    promtool::check_metrics(eventually("the plugin answers", || watched.plugin_page()).text());
    promtool::check_metrics(eventually("the driver answers", || watched.driver_page()).text());
    promtool::check_metrics(eventually("the NRI plugin answers", || watched.nri_page()).text());
    drop(tenant);
    watched.end();
}

#[test]
fn a_slices_figures_are_what_it_has_and_what_it_was_denied() {
    let node = Node::simulated("v100x8");
    let page = || Page::read(&Address::Unix(node.dir().join("run/metrics.sock")));
    let mut tenant = node.tenant(&["-g", "0.5", "--name", "half"]).ready();
    node.tranche(&["slice", "label", "half", "--pod", "default/train/main"]).success();
    tenant.alloc(Kind::Plain, Bytes::mib(1000)).expect("there is room");
    assert_eq!(tenant.alloc(Kind::Plain, Bytes::mib(20000)), Err(CudaError::OUT_OF_MEMORY));
    let page = eventually("they are published", || {
        let page = page()?;
        page.is("tranche_slice_processes", &[("slice", "half")], 1.0)?;
        Ok(page)
    });
    let slice = [("slice", "half")];
    let view = node.slice("half");
    page.is("tranche_slice_memory_cap_bytes", &slice, view.devices[0].cap.get() as f64).expect("the cap");
    page.is("tranche_slice_memory_used_bytes", &slice, view.devices[0].used.get() as f64)
        .expect("its charge");
    page.is("tranche_slice_compute_request_ratio", &slice, 0.5).expect("its share");
    assert!(page.value("tranche_slice_memory_denials_total", &slice) >= Some(1.0), "{}", page.text());
    let whose = [("namespace", "default"), ("pod", "train"), ("container", "main"), ("tier", "preload")];
    page.is("tranche_slice_info", &whose, 1.0).expect("the pod that it is for");
    page.is("tranche_slices", &[], 1.0).expect("it is counted");
    page.is("tranche_slice_requests_total", &[("outcome", "created")], 1.0).expect("it was made");
    tenant.end();
    eventually("a slice that is gone has no figures", || {
        let page = page_of(&node)?;
        if page.value("tranche_slice_processes", &slice).is_some() { Err(page.text().into()) } else { Ok(()) }
    });
}

#[test]
fn stays_of_rotating_slices_are_counted() {
    let node = Node::with_driver("v100x8", "580");
    node.configure("memory_overcommit = 1.2");
    node.tranche(&["config", "reload"]).success();
    for name in ["first", "second"] {
        node.tranche(&["slice", "create", name, "-g", "0.6", "--gpu", "0", "--rotate"]).success();
    }
    let stays =
        |slice: &str, number| page_of(&node)?.is("tranche_slice_stays_total", &[("slice", slice)], number);
    let mut first = node.tenant(&["--slice", "first"]).ready();
    // It begins with its first stay, which ends that of the other.
    let _second = node.tenant(&["--slice", "second"]).ready();
    eventually("the second has its stay", || stays("second", 1.0));
    stays("first", 0.0).expect("it was there from the beginning");
    first.alloc(Kind::Plain, Bytes::mib(16)).expect("it returns for it");
    eventually("the first has another", || stays("first", 1.0));
}

fn page_of(node: &Node) -> Result<Page, String> {
    Page::read(&Address::Unix(node.dir().join("run/metrics.sock")))
}

#[test]
fn a_projects_figures_are_what_it_has_wants_and_gave_back() {
    let node = Node::simulated("v100x8");
    node.tranche(&["project", "create", "a", "--quota", "2"]).success();
    node.tranche(&["project", "create", "b", "--quota", "6"]).success();
    let submit = |name: &str, project: &str, gpus: &str| {
        node.tranche(&["submit", name, "-p", project, "-g", gpus, "--", "sleep", "1000"]).success();
    };
    submit("borrows", "a", "8");
    let of = |name: &str, labels: &[(&str, &str)], value: f64| page_of(&node)?.is(name, labels, value);
    eventually("it runs on GPUs that no other project requests", || {
        of("tranche_project_jobs", &[("project", "a"), ("state", "running")], 1.0)
    });
    of("tranche_project_allocated_gpus", &[("project", "a")], 8.0).expect("all of it");
    of("tranche_project_quota_gpus", &[("project", "a")], 2.0).expect("its quota");
    submit("wants-back", "b", "6");
    eventually("it is preempted, and waits", || {
        of("tranche_project_preemptions_total", &[("project", "a")], 1.0)?;
        of("tranche_project_jobs", &[("project", "a"), ("state", "queued")], 1.0)?;
        of("tranche_project_allocated_gpus", &[("project", "b")], 6.0)
    });
    of("tranche_project_owed_jobs", &[("project", "a")], 0.0).expect("it would borrow");
    // Two GPUs of the quota of project a are free, and cordoned.
    for gpu in 0..8 {
        node.tranche(&["gpu", "cordon", &gpu.to_string()]).success();
    }
    submit("promised", "a", "1");
    eventually("GPUs of its quota are not available", || {
        of("tranche_project_owed_jobs", &[("project", "a")], 1.0)
    });
    of("tranche_project_preemptions_total", &[("project", "b")], 0.0).expect("it is within its quota");
    of("tranche_jobs_up", &[], 1.0).expect("jobs are taken");
}

#[test]
fn gpu_time_is_counted_across_recreation_of_slice() {
    let node = Node::simulated("v100x8");
    let used =
        |name, labels: &[(&str, &str)]| page_of(&node).map(|page| page.value(name, labels).unwrap_or(0.0));
    let mut last = (0.0, 0.0);
    for round in 1..=2 {
        let program = node.stage().workload();
        // Half a second of kernels that take a millisecond each.
        let arguments =
            ["--memory", "64Mi", "--kernel-ns", "1000000", "--seconds", "0.5"].map(std::ffi::OsString::from);
        let program: Vec<_> = [program.into_os_string()].into_iter().chain(arguments).collect();
        node.run(&mut node.run_in_slice(&["-g", "0.5", "--name", "again", "--gpu", "0"], &program)).success();
        let now = eventually("the GPU's time is counted", || {
            let gpu = used("tranche_gpu_compute_seconds_total", &[])?;
            if gpu > last.0 + 0.1 { Ok(gpu) } else { Err(format!("round {round}: {gpu} after {last:?}")) }
        });
        last = (now, last.1);
    }
    node.tranche(&["slice", "create", "again", "-g", "0.5", "--gpu", "0"]).success();
    let again = used("tranche_slice_compute_seconds_total", &[("slice", "again")]).expect("it answers");
    assert!(again > 0.2, "a slice of the same name begins with {again} s");
}

#[test]
fn probes_report_health_and_readiness_of_the_daemon() {
    let mut node = Node::simulated("v100x8");
    let address = Address::Unix(node.dir().join("run/metrics.sock"));
    for path in ["/healthz", "/readyz"] {
        assert_eq!(
            tranche_exposition::ask(&address, path).map_err(|error| error.to_string()),
            Ok("ok\n".into())
        );
    }
    node.stop_daemon().success();
    assert!(tranche_exposition::ask(&address, "/healthz").is_err());
    node.configure("metrics = 'off'");
    node.start_daemon();
    std::thread::sleep(Duration::from_millis(200));
    assert!(tranche_exposition::ask(&address, "/healthz").is_err(), "off is off");
}

#[test]
fn metrics_that_cannot_be_served_as_configured_keep_the_daemon_from_starting() {
    let node = Node::without_daemon("v100x8");
    for (line, words) in [
        ("metrics = ':9464'", ["\":9464\"", "127.0.0.1:9464"]),
        ("metrics = '/nowhere/at/all.sock'", ["/nowhere/at/all.sock", "configuration's `metrics`"]),
    ] {
        node.configure(line);
        let dir = node.dir().display();
        let outcome = node.run(node.command(node.stage().daemon()).args([
            "--config",
            &format!("{dir}/tranched.toml"),
            "--runtime-dir",
            &format!("{dir}/run"),
            "--state-dir",
            &format!("{dir}/state"),
        ]));
        outcome.refused(1, &words);
    }
}

#[test]
fn promtool_accepts_the_rules_and_each_alert_is_raised_in_a_test() {
    let alerts = files::alerts();
    assert!(alerts.len() > 20, "{alerts:?}");
    let tests = files::text("tranche-alerts.test.yml");
    for alert in &alerts {
        assert!(tests.contains(&format!("alertname: {alert}\n")), "{alert} is never raised in a test");
    }
    if promtool::is_there() {
        promtool::run(&["check", "rules", "tranche-alerts.yml"]);
        promtool::run(&["test", "rules", "tranche-alerts.test.yml"]);
    }
}

#[test]
fn exactly_the_alerts_of_the_rules_have_advice() {
    let advice = files::advised();
    assert_eq!(files::alerts(), advice, "in the rules, and in docs/operations.md");
}

#[test]
fn promtool_accepts_every_question_of_the_dashboard() {
    let questions = files::questions();
    assert!(questions.len() > 25, "{questions:?}");
    if !promtool::is_there() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory can be made");
    let rule = |(at, question): (usize, &String)| {
        let question = question.replace("$__rate_interval", "5m").replace('\'', "''");
        format!("      - {{record: 'q:{at}', expr: '{question}'}}\n")
    };
    let rules: String = questions.iter().enumerate().map(rule).collect();
    let path = folder.path().join("questions.yml");
    std::fs::write(&path, format!("groups:\n  - name: q\n    rules:\n{rules}")).expect("it can be written");
    promtool::run(&["check", "rules", path.to_str().expect("a plain path")]);
}

#[test]
fn hanging_driver_is_reported_and_delays_no_page() {
    let node = Node::simulated("v100x8");
    let address = Address::Unix(node.dir().join("run/metrics.sock"));
    let uuid = |gpu: usize| node.smi().gpus[gpu].uuid.to_string();
    let (dumb, well) = (uuid(2), uuid(3));
    eventually("all GPUs answer", || page_of(&node)?.is("tranche_gpu_up", &[("gpu", &dumb)], 1.0));
    node.set_gpu(2, &["--hangs", "on"]);
    // The sample under way may have ended.
    page_of(&node).expect("a page with earlier samples");
    let begun = std::time::Instant::now();
    let page = eventually("it is reported not to answer", || {
        let page = page_of(&node)?;
        page.is("tranche_gpu_up", &[("gpu", &dumb)], 0.0)?;
        Ok(page)
    });
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(
        page.value("tranche_gpu_memory_used_bytes", &[("gpu", &dumb)]).is_some(),
        "as it was sampled last"
    );
    assert!(page.value("tranche_gpu_seen_age_seconds", &[("gpu", &dumb)]) >= Some(4.0), "{}", page.text());
    page.is("tranche_gpu_up", &[("gpu", &well)], 1.0).expect("the others answer");
    assert!(page.value("tranche_gpu_seen_age_seconds", &[("gpu", &well)]) <= Some(4.0), "{}", page.text());
    eventually("it is not ready, with the reason", || match tranche_exposition::ask(&address, "/readyz") {
        Err(error) if error.to_string().contains("the driver has not answered") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // Another daemon would hang as well.
    let alive = tranche_exposition::ask(&address, "/healthz").expect("it lives");
    assert!(alive.starts_with("ok, but the driver has not answered for"), "{alive}");
    node.set_gpu(2, &["--hangs", "off"]);
    eventually("it is ready again", || {
        tranche_exposition::ask(&address, "/readyz").map_err(|error| error.to_string())?;
        page_of(&node)?.is("tranche_gpu_up", &[("gpu", &dumb)], 1.0)
    });
    assert_eq!(tranche_exposition::ask(&address, "/healthz").unwrap(), "ok\n");
}

#[test]
fn slices_have_figures_under_the_names_of_dcgm() {
    let node = Node::configured("v100x8", "metrics_dcgm = true");
    let mut tenant = node.tenant(&["-g", "0.5", "--name", "half"]).ready();
    tenant.alloc(Kind::Plain, Bytes::mib(1000)).expect("there is room");
    let read = || Page::read(&Address::Unix(node.dir().join("run/metrics.sock")));
    eventually("the slice's memory is in its row, and the rest in the GPU's", || {
        let page = read()?;
        let of =
            |name: &str, slice: &str| page.value(name, &[("gpu", "0"), ("slice", slice)]).unwrap_or(-1.0);
        let (slice, rest) = (of("DCGM_FI_DEV_FB_USED", "half"), of("DCGM_FI_DEV_FB_USED", ""));
        let watts = of("DCGM_FI_DEV_POWER_USAGE", "half") + of("DCGM_FI_DEV_POWER_USAGE", "");
        let is_root = page.value("DCGM_FI_DEV_GPU_UTIL", &[("slice", "half"), ("user", "root")]).is_some();
        let is_right =
            slice > 1000.0 && slice < 1600.0 && (0.0..200.0).contains(&rest) && watts > 0.0 && is_root;
        if is_right {
            Ok(())
        } else {
            Err(format!("{slice} MiB, rest {rest} MiB, {watts} W:\n{}", page.text()))
        }
    });
    drop(tenant);
    let plain = Node::simulated("v100x8");
    let page = Page::read(&Address::Unix(plain.dir().join("run/metrics.sock"))).expect("metrics are served");
    assert!(!page.text().contains("DCGM_"), "only where the administrator wants them");
}
