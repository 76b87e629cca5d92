use super::manual::{manual, manual_of_daemon};
use super::*;
use tranche_domain::id::GpuSelector;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("t.toml"))
}

#[test]
fn empty_file_yields_the_defaults() {
    assert_eq!(parse("").unwrap(), Config::default());
    let config = parse("context_reserve_mib = 300\nshim = '/x.so'\nover_cap = 'kill'").unwrap();
    assert_eq!(config.context_reserve(), Bytes::mib(300));
    assert_eq!(config.shim, Some("/x.so".into()));
    assert_eq!(config.over_cap(), OverCap::Kill { grace: Duration::from_secs(60) });
    assert_eq!(config.transfers, Transfers::Inside);
    assert_eq!(config.ended_jobs(), Retention::DEFAULT);
    assert_eq!(parse("transfers = 'counted'").unwrap().transfers, Transfers::Counted);
}

#[test]
fn gpus_parse_and_print_unchanged() {
    let uuid = "GPU-00000000-0000-0000-0000-000000000003";
    let config = parse(&format!("gpus = [0, '{uuid}', '2']")).unwrap();
    let named = ["0", uuid, "2"].map(|name| name.parse().unwrap());
    assert_eq!(config.gpus, ManagedGpus::These(named.to_vec()));
    assert_eq!(config.entries()["gpus"], serde_json::json!([0, uuid, 2]));
    assert_eq!(parse("gpus = 'all'").unwrap(), Config::default());
    for (text, said) in [
        ("gpus = []", "names none"),
        ("gpus = 'some'", "it takes \"all\""),
        ("gpus = ['V100']", "is not a GPU UUID"),
        ("gpus = 3", "by index or UUID"),
        ("gpus = [-1]", "by index or UUID"),
    ] {
        let refused = parse(text).unwrap_err().to_string();
        assert!(refused.contains(said) && refused.contains("line 1"), "{text}: {refused}");
    }
}

#[test]
fn only_live_keys_are_copied() {
    let all_other = Config {
        runtime_dir: Some("/r".into()),
        state_dir: Some("/s".into()),
        gpus: ManagedGpus::These(vec![GpuSelector::Index(1)]),
        nvml_library: Some("/n".into()),
        shim: Some("/l".into()),
        socket_group: Some("g".into()),
        user: Some("u".into()),
        connections_per_user: 1,
        waiting_per_user: 2,
        slices_per_user: 3,
        context_reserve_mib: 4,
        over_cap: OverCapPolicy::Kill,
        over_cap_grace_s: 5,
        park_memory_mib: Some(5),
        park_refused_drivers: Vec::new(),
        memory_overcommit: Overcommit::try_from(1.5).unwrap(),
        preemption: PreemptionPolicy::Park,
        idle_after_s: 6,
        violations: ViolationsPolicy::Kill,
        violations_grace_s: 7,
        foreigners: Foreigners::Refuse,
        only_slices: OnlySlices::Besides(vec!["/x".into()]),
        fault_quiet_s: 6,
        ended_jobs_kept: 8,
        ended_jobs_days: 9,
        transfers: Transfers::Counted,
        cdi_dir: Some("/c".into()),
        cdi_node: Some("/d".into()),
        cdi_preload: true,
        metrics: Some("/m".parse().unwrap()),
        metrics_dcgm: true,
        log: "debug".into(),
    };
    let mut config = Config::default();
    config.take_live(&all_other);
    let (before, after, new) = (Config::default().entries(), config.entries(), all_other.entries());
    for (key, value) in &after {
        assert_ne!(before[key], new[key], "{key} has to be another here");
        let live = Config::is_live(key);
        assert_eq!(value, if live { &new[key] } else { &before[key] }, "{key}");
    }
}

#[test]
fn live_keys_are_known() {
    let live = Config::KEYS.iter().map(|key| key.name).filter(|key| Config::is_live(key));
    let known = [
        "connections_per_user",
        "waiting_per_user",
        "slices_per_user",
        "over_cap",
        "over_cap_grace_s",
        "park_memory_mib",
        "park_refused_drivers",
        "memory_overcommit",
        "preemption",
        "idle_after_s",
        "fault_quiet_s",
        "log",
    ];
    assert_eq!(
        live.collect::<Vec<_>>(),
        known,
        "a key that was made live, or is no longer, changes this list"
    );
}

#[test]
fn manual_has_each_key_with_its_default_and_no_stray_request() {
    let page = manual();
    for key in Config::KEYS {
        let heading = format!("\\fB{}\\fR = ", key.name.replace('-', "\\-"));
        assert!(page.contains(&heading), "{} is missing: {page}", key.name);
    }
    let known = [".TH", ".SH", ".TP", ".ie", ".el", ".ds"];
    let mut requests = page.lines().filter(|line| line.starts_with(['.', '\'']));
    assert!(requests.all(|line| known.iter().any(|known| line.starts_with(known))), "{page}");
}

#[test]
fn manual_of_the_daemon_has_each_option() {
    let command = <crate::cli::DaemonOptions as clap::CommandFactory>::command();
    let page = manual_of_daemon(&command);
    for part in ["tranched 8", "\\fB\\-\\-runtime\\-dir\\fR DIR", "\\fB\\-\\-check\\fR", "SIGHUP", "(5)"] {
        assert!(page.contains(part), "{part} is missing: {page}");
    }
}

#[test]
fn violations_are_reported_unless_kill_is_configured() {
    assert_eq!(parse("").unwrap().violations(), ViolationPolicy::Report);
    let config = parse("violations = 'kill'\nforeigners = 'refuse'").unwrap();
    assert_eq!(config.violations(), ViolationPolicy::Kill { grace: Duration::from_secs(10) });
    assert_eq!(config.foreigners, Foreigners::Refuse);
    let refused = parse("foreigners = 'kill'").unwrap_err().to_string();
    assert!(refused.contains("`kill`") && refused.contains("`report`"), "{refused}");
}

#[test]
fn only_slices_is_a_boolean_or_a_list() {
    assert_eq!(parse("only_slices = false").unwrap().only_slices.besides(), None);
    let usual: Vec<PathBuf> = vec!["system.slice/nvidia-persistenced.service".into()];
    assert_eq!(parse("only_slices = true").unwrap().only_slices.besides(), Some(usual));
    assert_eq!(parse("only_slices = []").unwrap().only_slices.besides(), Some(Vec::new()));
    let config = parse("only_slices = ['/a/b.service']").unwrap();
    assert_eq!(config.only_slices.besides(), Some(vec!["a/b.service".into()]));
    for wrong in ["['a.service']", "['/']", "['/a/../b']", "'yes'", "3"] {
        let refused = parse(&format!("only_slices = {wrong}")).unwrap_err().to_string();
        assert!(refused.contains("`only_slices`") && refused.contains("line 1"), "{wrong}: {refused}");
    }
    assert_eq!(config.faults(), [""; 0]);
    let faults = parse("only_slices = true\ngpus = [0]").unwrap().faults();
    assert!(faults.iter().any(|fault| fault.contains("`gpus`")), "{faults:?}");
}

#[test]
fn unknown_key_is_refused_with_the_nearest() {
    let refused = parse("context_reserve_mb = 300").unwrap_err().to_string();
    assert!(refused.contains("`context_reserve_mb` (did you mean `context_reserve_mib`?)"), "{refused}");
    let refused = parse("[quux]\na = 1").unwrap_err().to_string();
    assert!(refused.contains("`quux` (known are socket_group"), "{refused}");
}

#[test]
fn invalid_value_is_refused_with_its_position() {
    let refused = parse("log = 3").unwrap_err().to_string();
    assert!(refused.contains("t.toml") && refused.contains("line 1"), "{refused}");
    let refused = parse("transfers = 'metered'").unwrap_err().to_string();
    for word in ["t.toml", "line 1", "`metered`", "`uncounted`", "`inside`", "`counted`"] {
        assert!(refused.contains(word), "{word}: {refused}");
    }
}

#[test]
fn log_filter_has_levels_for_all_or_for_modules() {
    for filter in ["info", "WARN", "off", "info,tranche_agent=debug", "tranche_slices=trace,h2=off", ""] {
        assert!(check_log(filter).is_ok(), "{filter}");
    }
    for filter in ["loud", "info,loud", "tranche_agent=loud", "tranche_agent"] {
        let refused = check_log(filter).unwrap_err();
        assert!(
            refused.contains("`log`") && refused.contains("level") || refused.contains("filter"),
            "{refused}"
        );
    }
}

#[test]
fn documents_use_the_configured_or_default_directory() {
    let usual = Path::new("/var/run/cdi");
    let directory = |text: &str, usual| {
        let documents = parse(text).unwrap().documents(usual).unwrap();
        documents.map(|documents| documents.directory)
    };
    assert_eq!(directory("", Some(usual)), Some(usual.to_owned()));
    assert_eq!(directory("", None), None);
    assert_eq!(directory("cdi_dir = 'off'", Some(usual)), None);
    assert_eq!(directory("cdi_dir = '/x'", None), Some("/x".into()));
    let refused = parse("cdi_dir = 'of'").unwrap().documents(None).unwrap_err().to_string();
    assert!(refused.contains("`cdi_dir` is \"of\"") && refused.contains("\"off\""), "{refused}");
}
