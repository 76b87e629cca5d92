use tranche_domain::fault::Xid;
use tranche_exposition::Address;

use super::*;
use crate::profile::Profile;
use crate::testing::{USUAL, config, uuid};

fn refused(text: &str) -> String {
    Config::parse(text, Path::new("t.toml")).unwrap_err().to_string()
}

/// A configuration with one profile and a layout of it.
fn with(profile: &str, layout: &str) -> String {
    format!("[[profile]]\nname = 'p'\n{profile}\n[[layout]]\nprofiles = {layout}")
}

#[test]
fn sizes_and_shares_parse() {
    let text = "memory_mib = 8192\ncompute = 0.25\nlimit = '0.5'\ncompute_mode = 'fair'\npriority = -3\nlatency_ms = 4.5";
    let profile = config(&with(text, "['p', 'p']")).profiles.remove(0).request;
    assert_eq!(profile.share.to_string(), "8192 MiB");
    assert_eq!(profile.compute.map(|share| share.get()), Some(250));
    assert_eq!(profile.limit.map(|share| share.get()), Some(500));
    assert_eq!(profile.priority, (-3).try_into().unwrap());
    assert_eq!(profile.latency.map(|target| target.micros()), Some(4_500));
    assert_eq!(config(&with("fraction = 1", "['p']")).profiles[0].request.share, Profile::WHOLE);
}

#[test]
fn defaults_match_kubernetes_and_tranched() {
    let config = config(USUAL);
    assert_eq!(config.resource(&config.profiles[0].name), "tranche.dev/gpu-50");
    assert_eq!(config.kubelet_dir, Path::new("/var/lib/kubelet/device-plugins"));
    assert_eq!(config.tranched_socket, Path::new("/run/tranche/tranched.sock"));
    assert!(config.is_ours(7, uuid(7)));
    assert!(config.metrics == Address::Off && config.events);
}

#[test]
fn unknown_key_error_suggests_the_nearest() {
    for (text, nearest) in [
        ("resource_domian = 'a.b'".to_string(), "`resource_domian` (did you mean `resource_domain`?)"),
        (with("fracton = 0.5", "['p']"), "`profile.0.fracton` (did you mean `fraction`?)"),
        (with("fraction = 0.5", "['p']\ngpus = 0"), "`layout.0.gpus` (did you mean `gpu`?)"),
        ("quux = 1".to_string(), "`quux` (known are resource_domain,"),
    ] {
        let refused = refused(&text);
        assert!(refused.contains(nearest), "{refused}");
    }
}

#[test]
fn metrics_address_is_parsed_and_off_by_default() {
    let metrics = |value: &str| Config::parse(&format!("metrics = {value}\n{USUAL}"), Path::new("t.toml"));
    assert_eq!(metrics("'127.0.0.1:9465'").unwrap().metrics.to_string(), "127.0.0.1:9465");
    for wrong in ["9465", "':9465'", "'metrics.sock'"] {
        let refused = metrics(wrong).unwrap_err().to_string();
        assert!(refused.contains("line 1") && refused.contains("\"off\""), "{refused}");
    }
}

#[test]
fn impossible_profile_is_rejected() {
    for (profile, why) in [
        ("fraction = 0", "no part of a GPU"),
        ("fraction = -0.5", "no part of a GPU"),
        ("fraction = 1.5", "not a whole number"),
        ("fraction = 2", "2 GPUs are not one"),
        ("fraction = 0.0005", "finer than a thousandth"),
        ("fraction = 'half'", "is not a number"),
        ("memory_mib = 0", "smallest slice is 1 MiB"),
        ("priority = 1", "give it a fraction, memory_mib, or both"),
        ("fraction = 0.5\npriority = 128", "128 is no priority"),
        ("fraction = 0.5\nlatency_ms = 1", "2 ms to 10 s"),
        ("fraction = 0.5\nlatency_ms = -3", "such as 8 or 2.5"),
        ("fraction = 0.5\nlatency_ms = nan", "such as 8 or 2.5"),
        ("fraction = 0.5\nlatency_ms = 'soon'", "such as 8 or 2.5"),
        ("fraction = 0.5\nlatency_ms = 9\ncompute_mode = 'best-effort'", "best-effort"),
        ("fraction = 0.5\nlimit = 0.2", "limit"),
        ("fraction = 0.5\nlimit = 2", "more than one GPU"),
        ("fraction = 0.5\ncompute_mode = 'unfair'", "unfair"),
    ] {
        let refused = refused(&with(profile, "['p']"));
        assert!(refused.contains("t.toml") && refused.contains(why), "{profile}: {refused}");
    }
}

#[test]
fn program_faults_are_always_ignored() {
    let ignored = |line: &str| {
        let ignored = config(&format!("{line}\n{USUAL}")).ignored_xids;
        [31, 48, 79].map(|xid| ignored.contains(Xid::new(xid)))
    };
    assert_eq!(ignored(""), [true, false, false]);
    assert_eq!(ignored("ignored_xids = [48]"), [true, true, false]);
    assert_eq!(ignored("ignored_xids = 'all'"), [true; 3]);
    assert!(refused(&format!("ignored_xids = 'none'\n{USUAL}")).contains("neither \"all\" nor a list"));
    assert!(refused(&format!("ignored_xids = [-1]\n{USUAL}")).contains("t.toml"));
}

#[test]
fn oversized_layout_is_rejected() {
    let refused = |layout: &str| refused(&with("fraction = 0.4", layout));
    assert!(
        refused("['p', 'p', 'p']").contains("the layout for all GPUs: "),
        "{}",
        refused("['p', 'p', 'p']")
    );
    assert!(refused("['q']").contains("names profile q, which is not defined"));
    assert!(refused("['p']\ngpu = 0\nmodel = 'A'").contains("not for both"));
    assert!(refused("['p']\n[[layout]]\nprofiles = []").contains("two layouts for all GPUs"));
    assert!(refused("['p']\ngpu = 'first'").contains("is not a GPU UUID"));
}

#[test]
fn layout_whose_targets_cannot_be_held_together_is_rejected() {
    let layout = |millis: u32| with(&format!("fraction = 0.3\nlatency_ms = {millis}"), "['p', 'p', 'p']");
    let refused = refused(&layout(5));
    assert!(
        refused.contains("the layout for all GPUs: a latency of 5 ms") && refused.contains("least 6 ms"),
        "{refused}"
    );
    assert_eq!(config(&layout(6)).profiles.len(), 1);
}

#[test]
fn empty_or_duplicate_offers_are_rejected() {
    assert!(refused("").contains("there is no [[profile]]"));
    let profile = "[[profile]]\nname = 'p'\nfraction = 0.5\n";
    assert!(refused(profile).contains("there is no [[layout]]"));
    assert!(refused(&profile.repeat(2)).contains("profile p is there twice"));
    assert!(
        refused(&format!("dynamic = true\n{}", with("fraction = 0.5", "['p']")))
            .contains("exclude each other")
    );
    assert!(
        refused(&with("fraction = 0.5", "['p']").replace("'p'", "'P'")).contains("cannot name a profile")
    );
    for domain in ["", "dev", "a..b", "A.b", "kubernetes.io"] {
        let text = format!("resource_domain = {domain:?}\n{}", with("fraction = 0.5", "['p']"));
        assert!(refused(&text).contains("resource_domain"), "{domain}");
    }
}

#[test]
fn unreadable_file_error_names_the_file() {
    let missing = Config::read(Path::new("/nowhere/t.toml")).unwrap_err().to_string();
    assert!(missing.contains("/nowhere/t.toml"), "{missing}");
    assert!(refused("[[profile]").contains("line 1"));
}

#[test]
fn most_specific_layout_applies() {
    let text = format!(
        "gpus = [0, 1, '{}']\n{USUAL}\n[[layout]]\ngpu = 1\nprofiles = ['gpu-50']\n[[layout]]\nmodel = 'M'\nprofiles = []",
        uuid(9)
    );
    let config = config(&text);
    let devices = |index: u8, model| {
        config.layout(index.into(), uuid(index), model).map(|layout| layout.profiles.len())
    };
    assert_eq!((devices(0, "V100"), devices(1, "M"), devices(2, "M")), (Some(3), Some(1), Some(0)));
    assert!(config.is_ours(5, uuid(9)) && config.is_ours(1, uuid(1)) && !config.is_ours(2, uuid(2)));
}
