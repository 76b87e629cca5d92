use super::*;
use proptest::prelude::*;

const GPU: &str = "GPU-00000000-0000-0000-0000-000000000001";

fn read(annotations: &[(&str, &str)], visible: &str) -> Result<Option<WantedPart>, BadAnnotation> {
    let annotations =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    WantedPart::of(&annotations, "main", &[format!("NVIDIA_VISIBLE_DEVICES={visible}")])
}

fn part(annotations: &[(&str, &str)], visible: &str) -> WantedPart {
    read(annotations, visible).unwrap().expect("a part")
}

fn half() -> Share {
    Share::Fraction(Fraction::try_from(500).unwrap())
}

#[test]
fn fraction_is_on_the_gpu_that_the_scheduler_chose() {
    let wanted = part(&[("gpu-fraction", "0.50")], GPU);
    assert_eq!((wanted.share, wanted.memory, wanted.compute), (half(), None, None));
    assert_eq!(wanted.gpus, [GpuSelector::Uuid(GPU.parse().unwrap())]);
    assert_eq!(part(&[("gpu-fraction", "0.5")], "all").gpus, []);
    assert_eq!(part(&[("gpu-memory", "8000")], "1").share, Share::Memory(Bytes::mib(8000)));
}

#[test]
fn container_is_the_named_one_or_that_which_sees_gpus() {
    assert_eq!(read(&[("gpu-fraction", "0.5")], "void"), Ok(None));
    let named = |name| [("gpu-fraction", "0.5"), ("gpu-fraction-container-name", name)];
    assert_eq!(read(&named("other"), GPU), Ok(None));
    assert_eq!(part(&named("main"), "void").gpus, []);
    assert_eq!(read(&[("other", "0.5")], GPU), Ok(None));
    // A value that cannot be read is that of a container which is not meant.
    assert_eq!(read(&[("gpu-fraction", "x"), ("gpu-fraction-container-name", "other")], GPU), Ok(None));
}

#[test]
fn several_gpus_need_as_many_chosen() {
    let wanted = part(&[("gpu-fraction", "0.5"), ("gpu-fraction-num-devices", "2")], "0,1");
    assert_eq!(wanted.gpus.len(), 2);
    assert_eq!(part(&[("gpu-fraction", "0.5")], "0,1").gpus.len(), 2);
    for visible in ["all", "0", "0,1,2"] {
        let refused = read(&[("gpu-fraction", "0.5"), ("gpu-fraction-num-devices", "2")], visible);
        assert!(matches!(refused, Err(BadAnnotation::Count { wanted: 2, .. })), "{visible}: {refused:?}");
    }
}

#[test]
fn own_annotations_of_a_container_are_read() {
    let request = ("nvidia.com/container.main.gpu-memory.request", "4Gi");
    let limit = ("nvidia.com/container.main.gpu-memory.limit", "6Gi");
    let memory = |mib| Share::Memory(Bytes::mib(mib));
    assert_eq!(part(&[limit], "all").share, memory(6144));
    assert_eq!(part(&[request, limit], "all").share, memory(4096));
    let devices = ("nvidia.com/container.main.gpus.devices", "k8s.device-plugin.nvidia.com/gpu=2");
    assert_eq!(part(&[request, devices], "void").gpus, [GpuSelector::Index(2)]);
    let portion = ("nvidia.com/container.main.gpu-compute.portion", "1");
    let mode = ("nvidia.com/container.main.gpu-compute.mode", "time-slicing");
    assert_eq!(part(&[request, portion, mode], "all").compute, Some(Permille::WHOLE));
    assert_eq!(
        part(&[("kai.scheduler/container.main.gpu-memory.portion.limit", "0.5")], "all").share,
        half()
    );
    assert_eq!(read(&[("nvidia.com/container.other.gpu-memory.request", "4Gi")], "void"), Ok(None));
}

#[test]
fn both_families_are_one_request() {
    let request = ("nvidia.com/container.main.gpu-memory.request", "16255Mi");
    let wanted = part(&[("gpu-fraction", "0.5"), request], GPU);
    assert_eq!((wanted.share, wanted.memory), (half(), Some(Bytes::mib(16255))));
    let portion = |portion| ("nvidia.com/container.main.gpu-compute.portion", portion);
    assert_eq!(part(&[("gpu-fraction", "0.5"), portion("0.4")], GPU).compute, Permille::try_from(400).ok());
    let more = read(&[("gpu-fraction", "0.5"), portion("0.6")], GPU);
    assert!(matches!(more, Err(BadAnnotation::MoreCompute { .. })), "{more:?}");
}

#[test]
fn what_cannot_be_enforced_is_refused() {
    for (key, value, why) in [
        ("gpu-fraction", "1", "0.999"),
        ("gpu-fraction", "0", "0.001"),
        ("gpu-fraction", "1.5", "fraction"),
        ("gpu-fraction", "half", "fraction"),
        ("gpu-memory", "0", "MiB"),
        ("gpu-memory", "8Gi", "MiB"),
        ("gpu-memory", "99999999999999999", "MiB"),
        ("nvidia.com/container.main.gpu-memory.request", "-1", "memory"),
        ("nvidia.com/container.main.gpu-memory.swap", "1Gi", "not known"),
        ("nvidia.com/container.main.gpu-compute.mode", "fair", "sm-sharing"),
        ("nvidia.com/container.main.gpu-compute.portion", "2", "portion"),
        ("nvidia.com/container.main.gpu-compute.portion", "0.2", "no memory"),
        ("nvidia.com/container.main.gpu-compute.mode", "time-slicing", "no memory"),
        ("nvidia.com/container.main.gpus.devices", "0", "no memory"),
        ("nvidia.com/container.main.gpus.devices", "MIG-1", "no GPU"),
    ] {
        let error = read(&[(key, value)], "all").unwrap_err().to_string();
        let named = error.contains(key) || why == "no memory";
        assert!(error.contains(why) && named, "{key}={value}: {error}");
    }
    assert_eq!(read(&[("gpu-fraction", "0.5"), ("gpu-memory", "1")], GPU), Err(BadAnnotation::Both));
    assert!(matches!(read(&[("gpu-fraction", "0.5")], "MIG-1"), Err(BadAnnotation::Variable(_))));
    let count = read(&[("gpu-fraction", "0.5"), ("gpu-fraction-num-devices", "0")], GPU);
    assert!(matches!(count, Err(BadAnnotation::Value { .. })));
}

proptest! {
    /// Annotations are a tenant's: no text of theirs is a panic, and no part of a GPU is nothing.
    #[test]
    fn any_text_is_a_part_or_a_refusal(key in 0..8usize, value in "\\PC{0,12}|[0-9.,MGi-]{1,9}", visible in "\\PC{0,8}|all") {
        let keys = [
            "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "gpu-fraction-container-name",
            "nvidia.com/container.main.gpu-memory.request", "nvidia.com/container.main.gpus.devices",
            "nvidia.com/container.main.gpu-compute.portion", "kai.scheduler/container.main.gpu-memory.portion.limit",
        ];
        if let Ok(Some(part)) = read(&[(keys[key], &value)], &visible) {
            prop_assert!(!matches!(part.share, Share::Memory(Bytes::ZERO) | Share::Whole(_)));
        }
    }
}
