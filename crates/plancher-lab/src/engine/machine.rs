//! The machine as the record has it, with the data sheet of its GPU where that is known.

use plancher_cuda::{Compiler, Device, Telemetry};
use plancher_floor::presets;

use crate::record::{Machine, Peaks};

/// Names of GPUs as the driver gives them, in part, and the data sheet of each; the first that fits counts.
const DATA_SHEETS: &[(&str, &str)] = &[
    ("H200", "h200"),
    ("H100 PCIe", "h100-pcie"),
    ("H100 80GB HBM3", "h100-sxm"),
    ("B200", "b200"),
    ("A100-SXM4-40GB", "a100-40"),
    ("A100-SXM4-80GB", "a100-80"),
    ("L40S", "l40s"),
    ("L4", "l4"),
    ("T4", "t4"),
    ("RTX 4090", "rtx4090"),
    ("RTX 5090", "rtx5090"),
    ("RTX A6000", "a6000"),
];

/// The preset of a GPU's name. Other GPUs' names may contain a short one: words are compared.
fn data_sheet(gpu: &str) -> Option<&'static str> {
    let padded = format!(" {gpu} ");
    let fits = |name: &str| padded.contains(&format!(" {name} "));
    DATA_SHEETS.iter().find(|(name, _)| fits(name)).map(|(_, preset)| *preset)
}

/// The machine now.
pub(super) fn describe(device: &Device, compiler: &Compiler, cublas: String) -> Machine {
    let properties = device.properties();
    let sheet = data_sheet(&properties.name).and_then(|name| presets::hardware(name).ok());
    let tera = |rate: Option<f64>| rate.map(|rate| rate / 1e12);
    let state = Telemetry::read(properties);
    Machine {
        gpu: properties.name.clone(),
        architecture: properties.architecture().to_string(),
        multiprocessors: properties.multiprocessors,
        l2_bytes: properties.l2,
        memory_bytes: properties.memory,
        datasheet_bandwidth_gb_per_s: sheet.as_ref().map(|sheet| sheet.bandwidth / 1e9),
        datasheet_tflops: Peaks {
            fp32: sheet.as_ref().and_then(|sheet| tera(sheet.peaks.f32)),
            bf16: sheet.as_ref().and_then(|sheet| tera(sheet.peaks.bf16)),
        },
        driver: state.as_ref().and_then(|state| state.driver.clone()).unwrap_or_default(),
        cuda: properties.driver.map(|version| version.to_string()).unwrap_or_default(),
        nvrtc: compiler.version().to_string(),
        cublas,
        state_before: state,
        state_after: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_has_its_own_data_sheet_or_none() {
        assert_eq!(data_sheet("NVIDIA H200"), Some("h200"));
        assert_eq!(data_sheet("NVIDIA H100 80GB HBM3"), Some("h100-sxm"));
        assert_eq!(data_sheet("NVIDIA A100-SXM4-80GB"), Some("a100-80"));
        assert_eq!(data_sheet("NVIDIA L40"), None);
        assert_eq!(data_sheet("NVIDIA GH200 480GB"), None);
        assert_eq!(data_sheet("NVIDIA H200 NVL"), Some("h200"));
        for (_, preset) in DATA_SHEETS {
            assert!(presets::hardware(preset).is_ok(), "{preset}");
        }
    }
}
