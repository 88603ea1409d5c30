//! What code is compiled for: `sm_90a` and the like.

use std::fmt;
use std::str::FromStr;

/// A GPU architecture as NVRTC spells it. The `a` says that all instructions of exactly this chip may be used
/// (`wgmma` and `setmaxnreg` on Hopper, `tcgen05` on Blackwell); such code runs on no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Architecture {
    /// Ten times the compute capability's major number plus the minor one.
    number: u32,
    /// Whether instructions specific to this chip may be used.
    specific: bool,
}

impl Architecture {
    /// Every architecture that kernels may claim.
    pub const ALL: [Self; 6] =
        [Self::plain(80), Self::plain(86), Self::plain(89), Self::chip(90), Self::chip(100), Self::chip(120)];

    const fn plain(number: u32) -> Self {
        Self { number, specific: false }
    }

    const fn chip(number: u32) -> Self {
        Self { number, specific: true }
    }

    /// The architecture of a device of compute capability `(major, minor)`.
    #[must_use]
    pub const fn of_capability(major: u32, minor: u32) -> Self {
        Self { number: major * 10 + minor, specific: major >= 9 }
    }

    /// The compute capability `(major, minor)`.
    #[must_use]
    pub const fn capability(self) -> (u32, u32) {
        (self.number / 10, self.number % 10)
    }

    /// The compute capability as one number: 80, 90, 120.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.number
    }

    /// Whether the chip has the bulk copy engine, clusters and programmatic dependent launch (compute capability 9.0).
    #[must_use]
    pub const fn has_bulk_copies(self) -> bool {
        self.number >= 90
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.number, if self.specific { "a" } else { "" })
    }
}

impl serde::Serialize for Architecture {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An architecture that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no GPU architecture: write `sm_80`, `sm_90a` or the like")]
pub struct NoArchitecture(String);

impl FromStr for Architecture {
    type Err = NoArchitecture;

    fn from_str(text: &str) -> Result<Self, NoArchitecture> {
        let wrong = || NoArchitecture(text.to_owned());
        let name = text.strip_prefix("sm_").ok_or_else(wrong)?;
        let (digits, specific) = name.strip_suffix('a').map_or((name, false), |digits| (digits, true));
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        let number = digits.parse().ok().filter(|number| (50..1000).contains(number)).ok_or_else(wrong)?;
        Ok(Self { number, specific })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_as_they_are_written() {
        for architecture in Architecture::ALL {
            assert_eq!(architecture.to_string().parse(), Ok(architecture));
        }
        for wrong in ["", "sm_", "sm_90b", "compute_90", "sm_+90", "sm_9", "sm_99999999999", "90a"] {
            assert!(wrong.parse::<Architecture>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_device_gets_all_instructions_of_its_chip() {
        let names = [(8, 0), (8, 9), (9, 0), (10, 0), (12, 1)];
        let names = names.map(|(major, minor)| Architecture::of_capability(major, minor).to_string());
        assert_eq!(names, ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_121a"]);
        assert_eq!(Architecture::of_capability(10, 3).capability(), (10, 3));
    }
}
