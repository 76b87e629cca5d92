//! Figures of slices under the names and units of NVIDIA's DCGM exporter.
//!
//! Law: the rows of a GPU add up to the figure of the whole GPU. What no slice uses is in a row without a slice.

use std::collections::BTreeMap;
use std::fmt;

use tranche_domain::id::GpuUuid;
use tranche_domain::units::Bytes;
use tranche_exposition::{Labels, MetricsPage};
use tranche_inventory::GpuFacts;

use super::gpus::GpuSample;
use super::labels::{and, label, share};
use super::slices::SliceSample;

/// Figures of a GPU, of a slice on it, or of the rest of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct RowFigures {
    /// Part of the GPU's time over the last second, from 0 to 1.
    busy: f64,
    used_mib: f64,
    free_mib: f64,
    watts: f64,
}

pub(super) fn write(
    gpus: &[GpuSample<'_>],
    slices: &[SliceSample<'_>],
    page: &mut MetricsPage<'_>,
) -> fmt::Result {
    let mut rows: Vec<(Labels, RowFigures)> = Vec::new();
    let mut parts: BTreeMap<GpuUuid, Vec<RowFigures>> = BTreeMap::new();
    let whole: BTreeMap<GpuUuid, (&GpuFacts, RowFigures)> =
        gpus.iter().filter_map(|gpu| Some((gpu.facts.uuid, (gpu.facts, whole(gpu)?)))).collect();
    for slice in slices {
        for part in slice.parts() {
            let Some((facts, gpu)) = whole.get(&part.gpu_uuid) else { continue };
            let busy = share(part.compute_used_1s);
            let figures = RowFigures {
                busy,
                used_mib: mib(part.used),
                free_mib: mib(part.cap.saturating_sub(part.used)),
                watts: gpu.watts * busy,
            };
            parts.entry(part.gpu_uuid).or_default().push(figures);
            rows.push((slice.dcgm_labels(of_gpu(facts)), figures));
        }
    }
    for (uuid, (facts, gpu)) in &whole {
        let of_slices = parts.get(uuid).map_or(&[][..], Vec::as_slice);
        let labels = and(and(of_gpu(facts), "slice", ""), "user", "");
        rows.push((labels, rest(*gpu, of_slices)));
    }
    let gauges =
        |value: fn(&RowFigures) -> f64| rows.iter().map(move |(labels, row)| (labels.clone(), value(row)));
    page.gauges("DCGM_FI_DEV_GPU_UTIL", "GPU time used, in percent", gauges(|row| row.busy * 100.0))?;
    page.gauges("DCGM_FI_DEV_FB_USED", "Memory used, in MiB", gauges(|row| row.used_mib))?;
    page.gauges("DCGM_FI_DEV_FB_FREE", "Memory free, in MiB", gauges(|row| row.free_mib))?;
    page.gauges(
        "DCGM_FI_DEV_POWER_USAGE",
        "Power in watts, divided by use of GPU time",
        gauges(|row| row.watts),
    )
}

fn whole(gpu: &GpuSample<'_>) -> Option<RowFigures> {
    let state = gpu.last.state.as_ref()?;
    Some(RowFigures {
        busy: f64::from(state.utilization_percent.unwrap_or_default()) / 100.0,
        used_mib: mib(state.used),
        free_mib: mib(gpu.facts.capacity().saturating_sub(state.used)),
        watts: f64::from(state.power_milliwatts.unwrap_or_default()) / 1000.0,
    })
}

/// Figures that no slice has. Sampled at other instants than those of slices, so at least zero.
fn rest(gpu: RowFigures, slices: &[RowFigures]) -> RowFigures {
    let left = |whole: f64, of: fn(&RowFigures) -> f64| (whole - slices.iter().map(of).sum::<f64>()).max(0.0);
    RowFigures {
        busy: left(gpu.busy, |part| part.busy),
        used_mib: left(gpu.used_mib, |part| part.used_mib),
        free_mib: left(gpu.free_mib, |part| part.free_mib),
        watts: left(gpu.watts, |part| part.watts),
    }
}

fn of_gpu(facts: &GpuFacts) -> Labels {
    let labels = and(label("gpu", facts.index), "UUID", facts.uuid);
    let labels = and(labels, "device", format!("nvidia{}", facts.index));
    and(and(labels, "modelName", &facts.name), "pci_bus_id", &facts.pci_bus_id)
}

fn mib(bytes: Bytes) -> f64 {
    bytes.get() as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_add_up_to_the_gpu() {
        let gpu = RowFigures { busy: 0.9, used_mib: 1000.0, free_mib: 3000.0, watts: 200.0 };
        let part = |busy: f64| RowFigures { busy, used_mib: 300.0, free_mib: 700.0, watts: 200.0 * busy };
        let slices = [part(0.5), part(0.25)];
        let left = rest(gpu, &slices);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(left.busy, 0.15) && near(left.used_mib, 400.0) && near(left.free_mib, 1600.0));
        assert!(near(left.watts + 150.0, 200.0));
        assert_eq!(rest(RowFigures { busy: 0.1, ..gpu }, &slices).busy, 0.0);
    }
}
