//! Which instruction sets exist, which of them this machine can run, and how a user overrides the choice.

use super::Kernels;

/// An instruction set that kernels exist for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Plain Rust, the reference.
    Scalar,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ, VL, VNNI.
    Avx512,
    /// AVX-512 with BF16, and AMX tiles with BF16 for products of many tokens.
    Amx,
}

impl Isa {
    /// Every instruction set, the preferred ones last.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Avx2, Self::Avx512, Self::Amx];

    /// The name that `PLANCHER_ISA` and reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Amx => "amx",
        }
    }

    /// Whether this machine runs it.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => super::avx2::is_available(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => super::avx512::is_available(),
            #[cfg(target_arch = "x86_64")]
            Self::Amx => super::avx512::is_available() && super::amx::is_available(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 | Self::Amx => false,
        }
    }
}

impl std::fmt::Display for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Why an instruction set cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    /// The name is none of ours.
    #[error("`PLANCHER_ISA` is `{name}`: expected one of {}", Isa::ALL.map(Isa::name).join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The machine lacks it.
    #[error("`PLANCHER_ISA` is `{isa}`, which this machine cannot run")]
    Unavailable {
        /// What was asked for.
        isa: Isa,
    },
}

impl Kernels {
    /// The best instruction set of this machine; the environment variable `PLANCHER_ISA` overrides it.
    ///
    /// # Errors
    /// When `PLANCHER_ISA` names no instruction set, or one that this machine cannot run.
    pub fn detect() -> Result<Self, IsaError> {
        match std::env::var_os("PLANCHER_ISA") {
            Some(name) => {
                let name = name.to_string_lossy().to_lowercase();
                let isa = Isa::ALL.into_iter().find(|isa| isa.name() == name).ok_or(IsaError::Unknown { name })?;
                Self::with_isa(isa)
            }
            None => Ok(Self::best()),
        }
    }

    /// The best instruction set of this machine, whatever the environment says: for work whose results are the same
    /// bits on all of them.
    #[must_use]
    pub fn best() -> Self {
        Self { isa: Isa::ALL.into_iter().rfind(|isa| isa.is_available()).unwrap_or(Isa::Scalar) }
    }

    /// The kernels of `isa`.
    ///
    /// # Errors
    /// When this machine cannot run it.
    pub fn with_isa(isa: Isa) -> Result<Self, IsaError> {
        if isa.is_available() { Ok(Self { isa }) } else { Err(IsaError::Unavailable { isa }) }
    }

    /// Which instruction set this is.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }
}
