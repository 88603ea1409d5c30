//! Machines by name: data-sheet figures of one device, dense rates, with their sources.

use crate::FloorError;
use crate::error::Result;
use crate::hardware::{Hardware, Link, Measured, Peaks};

/// One row of the table; rates in TFLOP/s (0: not offered or not published), bandwidths in GB/s, memory in GB.
struct Row {
    name: &'static str,
    bandwidth: f64,
    /// f32, bf16, fp8, int8, fp4.
    rates: [f64; 5],
    memory: u64,
    /// GB/s that one device sends, one direction.
    link: (f64, LinkKind),
    source: &'static str,
}

#[derive(Clone, Copy)]
enum LinkKind {
    None,
    NvLink,
    Pcie,
    InfinityFabric,
}

/// One hop of NCCL's low-latency protocol as its tuning model has it (`hwLat` in `src/graph/tuning.cc`): 0.6 us over
/// `NVLink`, 1.0 us over `PCIe`.
const NVLINK_HOP: f64 = 0.6e-6;
const PCIE_HOP: f64 = 1.0e-6;

const fn row(
    name: &'static str,
    bandwidth: f64,
    rates: [f64; 5],
    memory: u64,
    link: (f64, LinkKind),
    source: &'static str,
) -> Row {
    Row { name, bandwidth, rates, memory, link, source }
}

use LinkKind::{InfinityFabric, NvLink, Pcie};
const NO_LINK: (f64, LinkKind) = (0.0, LinkKind::None);
const NO_RATES: [f64; 5] = [0.0; 5];
const APPLE: &str =
    "Apple, technical specifications of the chip (memory bandwidth); GPU matmul rates are not published";

const TABLE: [Row; 28] = [
    row(
        "h100-sxm",
        3350.0,
        [66.9, 989.4, 1978.9, 1978.9, 0.0],
        80,
        (450.0, NvLink),
        "NVIDIA H100 data sheet (SXM5); rates without sparsity as in the H100 architecture paper",
    ),
    row(
        "h100-pcie",
        2000.0,
        [51.2, 756.4, 1512.9, 1512.9, 0.0],
        80,
        (64.0, Pcie),
        "NVIDIA H100 data sheet (PCIe); rates without sparsity; PCIe 5.0 x16",
    ),
    row(
        "h200",
        4800.0,
        [66.9, 989.4, 1978.9, 1978.9, 0.0],
        141,
        (450.0, NvLink),
        "NVIDIA H200 data sheet (SXM); rates without sparsity",
    ),
    row(
        "b200",
        8000.0,
        [75.0, 2250.0, 4500.0, 4500.0, 9000.0],
        180,
        (900.0, NvLink),
        "NVIDIA Blackwell data sheet (HGX B200, per GPU); rates without sparsity",
    ),
    row(
        "a100-40",
        1555.0,
        [19.5, 312.0, 0.0, 624.0, 0.0],
        40,
        (300.0, NvLink),
        "NVIDIA A100 data sheet (40 GB SXM); rates without sparsity",
    ),
    row(
        "a100-80",
        2039.0,
        [19.5, 312.0, 0.0, 624.0, 0.0],
        80,
        (300.0, NvLink),
        "NVIDIA A100 data sheet (80 GB SXM); rates without sparsity",
    ),
    row(
        "l40s",
        864.0,
        [91.6, 362.05, 733.0, 733.0, 0.0],
        48,
        (32.0, Pcie),
        "NVIDIA L40S data sheet; rates without sparsity; PCIe 4.0 x16",
    ),
    row(
        "l4",
        300.0,
        [30.3, 121.0, 242.5, 242.5, 0.0],
        24,
        (32.0, Pcie),
        "NVIDIA L4 data sheet; rates halved for no sparsity; PCIe 4.0 x16",
    ),
    row(
        "t4",
        320.0,
        [8.1, 65.0, 0.0, 130.0, 0.0],
        16,
        (16.0, Pcie),
        "NVIDIA T4 data sheet; the 16-bit rate is f16, the chip has no bf16; PCIe 3.0 x16",
    ),
    row(
        "rtx4090",
        1008.0,
        [82.6, 165.2, 330.3, 660.6, 0.0],
        24,
        (32.0, Pcie),
        "NVIDIA Ada GPU architecture paper, appendix A; f32 accumulation, without sparsity; PCIe 4.0 x16",
    ),
    row(
        "rtx5090",
        1792.0,
        [104.8, 209.5, 419.0, 838.0, 1676.0],
        32,
        (64.0, Pcie),
        "NVIDIA RTX Blackwell GPU architecture paper, appendix; f32 accumulation, without sparsity; PCIe 5.0 x16",
    ),
    row(
        "a6000",
        768.0,
        [38.7, 154.8, 0.0, 309.7, 0.0],
        48,
        (56.25, NvLink),
        "NVIDIA Ampere GA102 architecture paper (RTX A6000); rates without sparsity; NVLink bridge",
    ),
    row(
        "mi300x",
        5300.0,
        [163.4, 1307.4, 2614.9, 2614.9, 0.0],
        192,
        (448.0, InfinityFabric),
        "AMD Instinct MI300X data sheet; rates without sparsity; seven Infinity Fabric links",
    ),
    row("m1", 68.25, NO_RATES, 16, NO_LINK, APPLE),
    row("m1-pro", 200.0, NO_RATES, 32, NO_LINK, APPLE),
    row("m1-max", 400.0, NO_RATES, 64, NO_LINK, APPLE),
    row("m1-ultra", 800.0, NO_RATES, 128, NO_LINK, APPLE),
    row("m2", 100.0, NO_RATES, 24, NO_LINK, APPLE),
    row("m2-pro", 200.0, NO_RATES, 32, NO_LINK, APPLE),
    row("m2-max", 400.0, NO_RATES, 96, NO_LINK, APPLE),
    row("m2-ultra", 800.0, NO_RATES, 192, NO_LINK, APPLE),
    row("m3", 100.0, NO_RATES, 24, NO_LINK, APPLE),
    row("m3-pro", 150.0, NO_RATES, 36, NO_LINK, APPLE),
    row("m3-max", 400.0, NO_RATES, 128, NO_LINK, APPLE),
    row("m3-ultra", 819.0, NO_RATES, 512, NO_LINK, APPLE),
    row("m4", 120.0, NO_RATES, 32, NO_LINK, APPLE),
    row("m4-pro", 273.0, NO_RATES, 64, NO_LINK, APPLE),
    row("m4-max", 546.0, NO_RATES, 128, NO_LINK, APPLE),
];

/// The names that [`hardware`] knows.
pub const HARDWARE_NAMES: &str = "h100-sxm h100-pcie h200 b200 a100-40 a100-80 l40s l4 t4 rtx4090 rtx5090 a6000 mi300x m1 \
     m1-pro m1-max m1-ultra m2 m2-pro m2-max m2-ultra m3 m3-pro m3-max m3-ultra m4 m4-pro m4-max";

/// The machine of that name.
///
/// # Errors
/// When there is none.
pub fn hardware(name: &str) -> Result<Hardware> {
    let row = TABLE.iter().find(|row| row.name == name).ok_or_else(|| FloorError::UnknownName {
        kind: "hardware preset",
        name: name.to_owned(),
        known: HARDWARE_NAMES.to_owned(),
    })?;
    let rate = |index: usize| Some(row.rates[index] * 1e12).filter(|&rate: &f64| rate > 0.0);
    let (link_bandwidth, kind) = row.link;
    let link = match kind {
        LinkKind::None => None,
        NvLink => Some((NVLINK_HOP, "NVLink, one direction; hop as in NCCL's tuning model")),
        Pcie => Some((PCIE_HOP, "PCIe, one direction; hop as in NCCL's tuning model")),
        InfinityFabric => Some((NVLINK_HOP, "Infinity Fabric, one direction; hop taken as that of NVLink")),
    };
    Ok(Hardware {
        name: row.name.to_owned(),
        bandwidth: row.bandwidth * 1e9,
        peaks: Peaks { f32: rate(0), bf16: rate(1), fp8: rate(2), int8: rate(3), fp4: rate(4) },
        memory_bytes: Some(row.memory * 1_000_000_000),
        link: link.map(|(latency, source)| Link {
            bandwidth: link_bandwidth * 1e9,
            latency,
            source: source.to_owned(),
        }),
        measured: (row.name == "h200").then(h200_measured),
        source: row.source.to_owned(),
    })
}

/// One H200 (132 SMs, driver 580.159, CUDA 13.0), November 2026: a pure read of 8.6 GB by 16-byte loads, and the
/// best cuBLAS matmul at 4096 or 8192 on random data.
fn h200_measured() -> Measured {
    Measured {
        bandwidth: 4554e9,
        peaks: Peaks { f32: Some(51e12), bf16: Some(701e12), fp8: Some(1291e12), int8: None, fp4: None },
        source:
            "measured on one H200, driver 580.159, CUDA 13.0: 8.6 GB read by 16-byte loads; cuBLAS at 4096 and 8192"
                .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_machine_with_plausible_figures_and_a_source() {
        let names: Vec<&str> = HARDWARE_NAMES.split_whitespace().collect();
        assert_eq!(names, TABLE.iter().map(|row| row.name).collect::<Vec<_>>());
        for name in names {
            let hardware = hardware(name).unwrap();
            hardware.check().unwrap();
            assert!(!hardware.source.is_empty());
        }
        assert!(hardware("h300").unwrap_err().to_string().contains("mi300x"));
    }

    #[test]
    fn the_h100_threshold_is_295_not_296() {
        let h100 = hardware("h100-sxm").unwrap();
        assert_eq!(format!("{:.1}", h100.ridge(h100.peaks.bf16.unwrap())), "295.3");
    }

    #[test]
    fn the_measured_ceiling_of_the_h200_is_below_its_data_sheet() {
        let sheet = hardware("h200").unwrap();
        let measured = sheet.at_measured_ceiling().unwrap();
        assert!(measured.bandwidth < sheet.bandwidth);
        assert!(measured.peaks.bf16 < sheet.peaks.bf16);
        assert_eq!(measured.peaks.int8, sheet.peaks.int8);
    }
}
