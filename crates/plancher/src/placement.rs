//! Where a command computes: on the GPU that was asked for, on the first usable one, or on the CPU.

use clap::{Args, ValueEnum};

use crate::failure::usage;
use crate::{gpu, output};

/// Where, as the user says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceChoice {
    /// The first GPU if it is usable, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The NVIDIA GPU of this number.
    Cuda(usize),
}

/// Where the weights come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadFormat {
    /// The model's files
    #[default]
    Auto,
    /// Random bf16 numbers of the model's shapes: MODEL is a `config.json`, its directory, or a preset's name such as
    /// llama-3.2-1b, and nothing is fetched
    Dummy,
}

/// Where and with which weights to compute.
#[derive(Debug, Args)]
pub(crate) struct PlacementOptions {
    /// Where to compute: `cuda` or `cuda:N` (an NVIDIA GPU), `cpu`, or `auto`, which takes the first GPU if it is
    /// usable [default: auto; cpu where threads are given]
    #[arg(long, value_name = "DEVICE", value_parser = device)]
    pub(crate) device: Option<DeviceChoice>,
    /// Where the weights come from
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) load_format: LoadFormat,
}

/// `auto`, `cpu`, `cuda`, `cuda:N`.
pub(crate) fn device(text: &str) -> Result<DeviceChoice, String> {
    let expected = || "is not `auto`, `cpu`, `cuda` or `cuda:N`".to_owned();
    match text.split_once(':') {
        None if text == "auto" => Ok(DeviceChoice::Auto),
        None if text == "cpu" => Ok(DeviceChoice::Cpu),
        None if text == "cuda" => Ok(DeviceChoice::Cuda(0)),
        Some(("cuda", number)) => number.parse().map(DeviceChoice::Cuda).map_err(|_| expected()),
        _ => Err(expected()),
    }
}

/// Where, once it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// On the CPU.
    Cpu,
    /// On this GPU.
    Cuda {
        /// Its number.
        ordinal: usize,
        /// Where it fails to load the model, the CPU may do it.
        may_fall_back: bool,
    },
}

/// What there is to compute on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No driver, or one that shows no GPU.
    Nothing,
    /// A GPU that can be used.
    Usable,
    /// A driver, and why it is of no use.
    Unusable(String),
}

/// Options that were given and have a meaning on one kind of device only, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Restrictions {
    /// Only the CPU has it.
    pub(crate) cpu: Option<&'static str>,
    /// Only a GPU has it.
    pub(crate) gpu: Option<&'static str>,
}

/// Decides.
pub(crate) fn decide(choice: Option<DeviceChoice>, restrictions: Restrictions) -> anyhow::Result<Placement> {
    let (placement, note) = decide_among(choice, restrictions, gpu::look)?;
    if let Some(note) = note {
        output::note(&note);
    }
    Ok(placement)
}

fn decide_among(
    choice: Option<DeviceChoice>,
    restrictions: Restrictions,
    look: impl Fn(usize) -> Found,
) -> anyhow::Result<(Placement, Option<String>)> {
    const GPU_MISSING: &str = "no NVIDIA GPU was found; `plancher doctor` says where its driver was looked for";
    let on_cpu = |reason: &str| Some(format!("computing on the CPU: {reason}"));
    let on_gpu = |ordinal, asked: String| match look(ordinal) {
        Found::Usable => Ok((Placement::Cuda { ordinal, may_fall_back: false }, None)),
        Found::Unusable(reason) => Err(anyhow::anyhow!("`{asked}`: {reason}")),
        Found::Nothing => Err(anyhow::anyhow!("`{asked}`: {GPU_MISSING}")),
    };
    match (choice, restrictions.cpu, restrictions.gpu) {
        (_, Some(cpu), Some(gpu)) => Err(usage(format!("`{gpu}` has no meaning with `{cpu}`"))),
        (Some(DeviceChoice::Cpu), _, Some(gpu)) => Err(usage(format!("`{gpu}` has no meaning with `--device cpu`"))),
        (None | Some(DeviceChoice::Auto), None, Some(gpu)) => on_gpu(0, gpu.to_owned()),
        (Some(DeviceChoice::Cpu), _, None) | (None, Some(_), None) => Ok((Placement::Cpu, None)),
        (Some(DeviceChoice::Auto), Some(option), None) => Ok((Placement::Cpu, on_cpu(&format!("`{option}` is given")))),
        (Some(DeviceChoice::Cuda(_)), Some(option), None) => {
            Err(usage(format!("`{option}` has no meaning with `--device cuda`")))
        }
        (Some(DeviceChoice::Cuda(ordinal)), None, _) => on_gpu(ordinal, format!("--device cuda:{ordinal}")),
        (None | Some(DeviceChoice::Auto), None, None) => match look(0) {
            Found::Usable => Ok((Placement::Cuda { ordinal: 0, may_fall_back: true }, None)),
            Found::Unusable(reason) => Ok((Placement::Cpu, on_cpu(&reason))),
            Found::Nothing if choice.is_some() => Ok((Placement::Cpu, on_cpu(GPU_MISSING))),
            Found::Nothing => Ok((Placement::Cpu, None)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(choice: Option<DeviceChoice>, cpu: Option<&'static str>, found: &Found) -> (Option<Placement>, String) {
        decided_with(choice, Restrictions { cpu, gpu: None }, found)
    }

    fn decided_with(
        choice: Option<DeviceChoice>,
        restrictions: Restrictions,
        found: &Found,
    ) -> (Option<Placement>, String) {
        match decide_among(choice, restrictions, |_| found.clone()) {
            Ok((placement, note)) => (Some(placement), note.unwrap_or_default()),
            Err(error) => (None, error.to_string()),
        }
    }

    #[test]
    fn devices_are_spelt_as_torch_spells_them() {
        assert_eq!(device("cuda"), Ok(DeviceChoice::Cuda(0)));
        assert_eq!(device("cuda:3"), Ok(DeviceChoice::Cuda(3)));
        assert_eq!((device("cpu"), device("auto")), (Ok(DeviceChoice::Cpu), Ok(DeviceChoice::Auto)));
        for bad in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "CUDA"] {
            assert!(device(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_machine_without_a_gpu_says_nothing_unless_asked() {
        let nothing = Found::Nothing;
        assert_eq!(decided(None, None, &nothing), (Some(Placement::Cpu), String::new()));
        assert_eq!(decided(Some(DeviceChoice::Cpu), None, &nothing), (Some(Placement::Cpu), String::new()));
        let (placement, note) = decided(Some(DeviceChoice::Auto), None, &nothing);
        assert_eq!(placement, Some(Placement::Cpu));
        assert!(note.starts_with("computing on the CPU: no NVIDIA GPU was found"), "{note}");
        let (placement, error) = decided(Some(DeviceChoice::Cuda(1)), None, &nothing);
        assert_eq!(placement, None);
        assert!(error.starts_with("`--device cuda:1`: no NVIDIA GPU was found"), "{error}");
    }

    #[test]
    fn a_gpu_is_used_and_one_that_cannot_be_is_named() {
        let first = Placement::Cuda { ordinal: 0, may_fall_back: true };
        assert_eq!(decided(None, None, &Found::Usable), (Some(first), String::new()));
        let asked = Placement::Cuda { ordinal: 2, may_fall_back: false };
        assert_eq!(decided(Some(DeviceChoice::Cuda(2)), None, &Found::Usable), (Some(asked), String::new()));
        let broken = Found::Unusable("`libnvrtc.so` was not found".to_owned());
        let note = "computing on the CPU: `libnvrtc.so` was not found".to_owned();
        assert_eq!(decided(None, None, &broken), (Some(Placement::Cpu), note));
        let (placement, error) = decided(Some(DeviceChoice::Cuda(0)), None, &broken);
        assert_eq!((placement, error.as_str()), (None, "`--device cuda:0`: `libnvrtc.so` was not found"));
    }

    #[test]
    fn threads_mean_the_cpu() {
        assert_eq!(decided(None, Some("--threads"), &Found::Usable), (Some(Placement::Cpu), String::new()));
        let (placement, note) = decided(Some(DeviceChoice::Auto), Some("--threads"), &Found::Usable);
        assert_eq!((placement, note.as_str()), (Some(Placement::Cpu), "computing on the CPU: `--threads` is given"));
        let (placement, error) = decided(Some(DeviceChoice::Cuda(0)), Some("--threads"), &Found::Usable);
        assert_eq!((placement, error.as_str()), (None, "`--threads` has no meaning with `--device cuda`"));
    }

    #[test]
    fn an_executor_of_the_gpu_means_the_gpu() {
        let mega = Restrictions { cpu: None, gpu: Some("--executor mega") };
        let first = Placement::Cuda { ordinal: 0, may_fall_back: false };
        for choice in [None, Some(DeviceChoice::Auto), Some(DeviceChoice::Cuda(0))] {
            assert_eq!(decided_with(choice, mega, &Found::Usable), (Some(first), String::new()));
        }
        let (placement, error) = decided_with(None, mega, &Found::Nothing);
        assert_eq!(placement, None);
        assert!(error.starts_with("`--executor mega`: no NVIDIA GPU was found"), "{error}");
        let (_, error) = decided_with(Some(DeviceChoice::Cpu), mega, &Found::Usable);
        assert_eq!(error, "`--executor mega` has no meaning with `--device cpu`");
        let (_, error) = decided_with(None, Restrictions { cpu: Some("--threads"), ..mega }, &Found::Usable);
        assert_eq!(error, "`--executor mega` has no meaning with `--threads`");
    }
}
