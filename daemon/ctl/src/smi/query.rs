//! `--query-slice` and `--query-gpu`: chosen fields as CSV, for scripts that know nvidia-smi's.

use std::fmt;

use tranche_domain::units::{Bytes, Permille};
use tranche_domain::view::{GpuView, NodeView, SliceDeviceView, SliceView};

use super::table::by_gpu;
use crate::cli::Format;

/// A field, whose value is found by a `V`.
pub struct Field<V> {
    name: &'static str,
    unit: &'static str,
    about: &'static str,
    /// Without its unit; nothing where it is not known.
    value: V,
}

/// Finds a field of a slice's part of one GPU.
type OfSlice = fn(&SliceView, &SliceDeviceView) -> Option<String>;

/// Finds a field of a GPU in its node.
type OfGpu = fn(&NodeView, &GpuView) -> Option<String>;

macro_rules! fields {
    ($($name:literal $([$unit:literal])?, $about:literal, $value:expr;)*) => {
        [$(Field { name: $name, unit: concat!($($unit)?), about: $about, value: $value },)*]
    };
}

/// What `--query-slice` knows.
pub static SLICE_FIELDS: [Field<OfSlice>; 27] = fields! {
    "name", "name of the slice", |slice, _| Some(slice.name.to_string());
    "gpu", "index of the GPU", |_, device| Some(device.gpu_index.to_string());
    "gpu.uuid", "UUID of the GPU", |_, device| Some(device.gpu_uuid.to_string());
    "share", "what was asked for", |slice, _| Some(slice.share.to_string());
    "memory.total" ["MiB"], "the most it may hold", |_, device| mib(device.cap);
    "memory.used" ["MiB"], "what its processes are charged for", |_, device| mib(device.used);
    "memory.shared" ["MiB"], "of that, held by several of its processes", |_, device| mib(device.shared);
    "memory.over_cap" ["MiB"], "beyond its cap, after a shrink", |_, device| mib(device.over_cap);
    "memory.free" ["MiB"], "total less used", |_, device| mib(device.cap.saturating_sub(device.used));
    "utilization.gpu" ["%"], "use of the GPU by this slice, as NVML tells", |_, device| text(device.utilization_percent);
    "compute" ["%"], "its compute request", |slice, _| percent(slice.compute);
    "compute.limit" ["%"], "the most compute it may have", |slice, _| percent(slice.limit);
    "compute.used" ["%"], "its part of the GPU's time in the last second", |_, device| percent(device.compute_used_1s);
    "compute.used_60s" ["%"], "and in the last minute", |_, device| percent(device.compute_used_60s);
    "compute.state", "what it does with its compute, or why nothing", |slice, _| Some(slice.compute_state.to_string());
    "compute.waits_for", "the slice that it waits for", |slice, _| slice.waits_for.as_ref().map(ToString::to_string);
    "compute.passed", "launches let through for want of progress", |slice, _| Some(slice.launches_passed.to_string());
    "compute.degraded", "launches let through while the daemon was away", |slice, _| Some(slice.launches_degraded.to_string());
    "priority", "who goes first: the higher", |slice, _| Some(slice.priority.to_string());
    "mode", "how its compute is bounded", |slice, _| Some(slice.mode.to_string());
    "tier", "its enforcement tier", |slice, _| Some(slice.tier.clone());
    "tier.reason", "why it has that tier", |slice, _| Some(slice.tier_reason.clone());
    "ephemeral", "whether it ends with its last process", |slice, _| Some(slice.ephemeral.to_string());
    "owner", "user id of who made it", |slice, _| Some(slice.owner_uid.to_string());
    "created", "when it was made, in ms since 1970", |slice, _| Some(slice.created_unix_ms.to_string());
    "processes", "number of its processes that use CUDA", |slice, _| Some(slice.processes.len().to_string());
    "pids", "those processes, with spaces between", |slice, _| Some(pids(slice));
};

/// What `--query-gpu` knows; names and units as nvidia-smi has them, where it has them.
pub static GPU_FIELDS: [Field<OfGpu>; 23] = fields! {
    "index", "NVML index", |_, gpu| Some(gpu.index.to_string());
    "uuid", "UUID", |_, gpu| Some(gpu.uuid.to_string());
    "name", "product name", |_, gpu| Some(gpu.name.clone());
    "pci.bus_id", "PCI bus id", |_, gpu| Some(gpu.pci_bus_id.clone());
    "count", "number of GPUs in the node", |node, _| Some(node.gpus.len().to_string());
    "driver_version", "version of the driver", |node, _| Some(node.driver_version.clone());
    "compute_cap", "compute capability", |_, gpu| Some(gpu.compute_capability.clone());
    "memory.total" ["MiB"], "all of its memory", |_, gpu| mib(gpu.total);
    "memory.reserved" ["MiB"], "what the driver keeps from everybody", |_, gpu| mib(gpu.reserved);
    "memory.used" ["MiB"], "in use now, by anybody", |_, gpu| mib(gpu.used);
    "memory.free" ["MiB"], "total less reserved and used", |_, gpu| mib(free(gpu));
    "memory.capacity" ["MiB"], "what slices can be made of", |_, gpu| mib(gpu.capacity);
    "memory.committed" ["MiB"], "promised to slices", |_, gpu| mib(gpu.committed);
    "compute.committed" ["%"], "compute promised to slices", |_, gpu| percent(gpu.committed_compute);
    "utilization.gpu" ["%"], "utilisation", |_, gpu| text(gpu.utilization_percent);
    "utilization.memory" ["%"], "utilisation of the memory interface", |_, gpu| text(gpu.memory_utilization_percent);
    "temperature.gpu", "temperature in degrees Celsius", |_, gpu| text(gpu.temperature_celsius);
    "power.draw" ["W"], "power draw", |_, gpu| gpu.power_milliwatts.map(watts);
    "power.limit" ["W"], "power limit", |_, gpu| gpu.power_limit_milliwatts.map(watts);
    "slices", "number of slices on it", |node, gpu| Some(slices_on(node, gpu).to_string());
    "sliceable", "whether slices may be put on it", |_, gpu| Some(gpu.not_sliceable.is_none().to_string());
    "not_sliceable.reason", "why not", |_, gpu| gpu.not_sliceable.clone();
    "processes.foreign", "number of its processes in no slice", |_, gpu| Some(gpu.foreign.len().to_string());
};

fn mib(bytes: Bytes) -> Option<String> {
    Some(bytes.whole_mib().to_string())
}

fn text(number: Option<u32>) -> Option<String> {
    number.map(|number| number.to_string())
}

fn percent(share: Permille) -> Option<String> {
    Some(share.to_string().trim_end_matches(" %").to_owned())
}

fn watts(milliwatts: u32) -> String {
    format!("{:.2}", f64::from(milliwatts) / 1000.0)
}

fn free(gpu: &GpuView) -> Bytes {
    gpu.total.saturating_sub(gpu.reserved).saturating_sub(gpu.used)
}

fn slices_on(node: &NodeView, gpu: &GpuView) -> usize {
    let here = |slice: &&SliceView| slice.devices.iter().any(|device| device.gpu_uuid == gpu.uuid);
    node.slices.iter().filter(here).count()
}

fn pids(slice: &SliceView) -> String {
    let pids: Vec<_> = slice.processes.iter().map(|process| process.pid.to_string()).collect();
    pids.join(" ")
}

/// A field that the query does not know.
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownField {
    option: &'static str,
    wanted: String,
    known: Vec<&'static str>,
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { option, wanted, known } = self;
        write!(f, "{wanted:?} is not a field of --{option}; these are: {}", known.join(", "))?;
        write!(f, "\n`tranche smi --help-{option}` says what they mean")
    }
}

impl std::error::Error for UnknownField {}

/// Fields that were asked for, and the form of the answer.
pub struct Query {
    fields: Fields,
    form: Form,
}

enum Fields {
    OfSlices(Vec<&'static Field<OfSlice>>),
    OfGpus(Vec<&'static Field<OfGpu>>),
}

/// The parts of CSV that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    header: bool,
    units: bool,
}

impl Query {
    /// The named fields of every slice on each of its GPUs.
    pub fn slices(names: &[String], format: &[Format]) -> Result<Self, UnknownField> {
        let fields = chosen("query-slice", &SLICE_FIELDS, names)?;
        Ok(Self { fields: Fields::OfSlices(fields), form: Form::of(format) })
    }

    /// The named fields of every GPU.
    pub fn gpus(names: &[String], format: &[Format]) -> Result<Self, UnknownField> {
        let fields = chosen("query-gpu", &GPU_FIELDS, names)?;
        Ok(Self { fields: Fields::OfGpus(fields), form: Form::of(format) })
    }

    /// The answer for `node`, a line for each slice's part of a GPU, or for each GPU.
    pub fn answer(&self, node: &NodeView) -> String {
        match &self.fields {
            Fields::OfSlices(fields) => {
                let rows = by_gpu(node).into_iter();
                let row = |(slice, _, device)| self.form.line(fields, |value| value(slice, device));
                self.form.csv(fields, rows.map(row))
            }
            Fields::OfGpus(fields) => {
                let row = |gpu| self.form.line(fields, |value| value(node, gpu));
                self.form.csv(fields, node.gpus.iter().map(row))
            }
        }
    }
}

impl Form {
    fn of(format: &[Format]) -> Self {
        Self { header: !format.contains(&Format::NoHeader), units: !format.contains(&Format::NoUnits) }
    }

    fn csv<V>(self, fields: &[&Field<V>], rows: impl Iterator<Item = String>) -> String {
        let header = self.header.then(|| line(fields.iter().map(|field| field.title())));
        header.into_iter().chain(rows).collect()
    }

    fn line<V>(self, fields: &[&Field<V>], find: impl Fn(&V) -> Option<String>) -> String {
        line(fields.iter().map(|field| match find(&field.value) {
            None => "[N/A]".into(),
            Some(value) if self.units && !field.unit.is_empty() => format!("{value} {}", field.unit),
            Some(value) => value,
        }))
    }
}

impl<V> Field<V> {
    /// As nvidia-smi heads its columns, with the unit whether or not the values have it.
    fn title(&self) -> String {
        if self.unit.is_empty() { self.name.into() } else { format!("{} [{}]", self.name, self.unit) }
    }
}

fn chosen<V>(
    option: &'static str,
    known: &'static [Field<V>],
    names: &[String],
) -> Result<Vec<&'static Field<V>>, UnknownField> {
    let find = |wanted: &String| {
        known.iter().find(|field| field.name == wanted.trim()).ok_or_else(|| UnknownField {
            option,
            wanted: wanted.clone(),
            known: known.iter().map(|field| field.name).collect(),
        })
    };
    names.iter().map(find).collect()
}

/// The values with nvidia-smi's separator; one that holds a separator itself is quoted.
fn line(values: impl Iterator<Item = String>) -> String {
    let quoted = |value: String| match value.contains([',', '"']) {
        true => format!("\"{}\"", value.replace('"', "\"\"")),
        false => value,
    };
    let values: Vec<_> = values.map(quoted).collect();
    values.join(", ") + "\n"
}

/// What the fields mean, a line for each.
pub fn help<V>(fields: &[Field<V>]) -> String {
    fields.iter().map(|field| format!("{:<24}{}\n", field.title(), field.about)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn names(list: &str) -> Vec<String> {
        list.split(',').map(Into::into).collect()
    }

    fn slices(list: &str, format: &[Format]) -> String {
        Query::slices(&names(list), format).unwrap().answer(&sample::node())
    }

    #[test]
    fn slices_are_answered_as_nvidia_smi_answers() {
        assert_eq!(
            slices("name,gpu,memory.used,memory.total,utilization.gpu", &[Format::Csv]),
            "name, gpu, memory.used [MiB], memory.total [MiB], utilization.gpu [%]\n\
             frac03, 0, 0 MiB, 9753 MiB, [N/A]\n\
             frac05, 0, 8500 MiB, 16255 MiB, 40 %\n\
             pair, 1, 0 MiB, 32510 MiB, [N/A]\n\
             pair, 2, 64 MiB, 32510 MiB, [N/A]\n"
        );
    }

    #[test]
    fn header_and_units_can_be_left_out() {
        let bare = slices("name,memory.used", &[Format::Csv, Format::NoHeader, Format::NoUnits]);
        assert_eq!(bare, "frac03, 0\nfrac05, 8500\npair, 0\npair, 64\n");
        let headed = slices("memory.used", &[Format::Csv, Format::NoUnits]);
        assert!(headed.starts_with("memory.used [MiB]\n0\n"), "{headed}");
    }

    #[test]
    fn gpus_are_answered_with_what_is_known() {
        let query = Query::gpus(&names("index,power.draw,compute.committed,slices,sliceable"), &[]).unwrap();
        assert_eq!(
            query.answer(&sample::node()),
            "index, power.draw [W], compute.committed [%], slices, sliceable\n\
             0, 54.32 W, 80 %, 2, true\n\
             1, 54.32 W, 80 %, 1, true\n\
             2, 54.32 W, 80 %, 1, true\n\
             3, [N/A], 0 %, 0, false\n"
        );
    }

    #[test]
    fn a_value_with_a_comma_is_quoted() {
        assert_eq!(line(["a, \"b\"".to_owned(), "c".to_owned()].into_iter()), "\"a, \"\"b\"\"\", c\n");
    }

    #[test]
    fn an_unknown_field_names_the_known_ones() {
        let unknown = Query::slices(&names("name,colour"), &[]).err().unwrap().to_string();
        assert!(
            unknown.starts_with("\"colour\" is not a field of --query-slice; these are: name, gpu,"),
            "{unknown}"
        );
        assert!(unknown.contains("--help-query-slice"), "{unknown}");
    }

    #[test]
    fn every_field_has_an_answer_and_a_meaning() {
        for field in &SLICE_FIELDS {
            assert!(!slices(field.name, &[]).is_empty());
        }
        assert_eq!(help(&GPU_FIELDS).lines().count(), GPU_FIELDS.len());
    }
}
