//! Every kernel file, with what is promised of it: the architectures it is for, the registers it may spill, the
//! instructions that must be in its machine code. The gate in CI holds the files to it ([`check`]).

mod check;
mod family;
mod sass;

pub use check::{Finding, Report, Row, check};
pub use family::{Expectation, Family};
pub use sass::{Disassembler, Instructions};

/// Every file of kernels, in the order in which they are shown.
pub static CATALOGUE: &[&Family] = &[
    &crate::weights::FAMILY,
    &crate::matmul::FAMILY,
    &crate::matmul::HOPPER_FAMILY,
    &crate::prefill::ELEMENTWISE_FAMILY,
    &crate::prefill::ATTENTION_FAMILY,
    &crate::ceilings::BANDWIDTH,
    &crate::ceilings::LATENCY,
    &crate::decode::EMBED,
    &crate::decode::MATVEC,
    &crate::decode::ATTENTION_DECODE,
    &crate::decode::SAMPLE,
    &crate::mega::MEGA_PACK,
    &crate::mega::MEGA,
];

/// The family called `name`.
#[must_use]
pub fn family(name: &str) -> Option<&'static Family> {
    CATALOGUE.iter().copied().find(|family| family.source.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_family_says_what_it_is() {
        for (index, entry) in CATALOGUE.iter().enumerate() {
            let name = entry.source.name;
            assert!(CATALOGUE[..index].iter().all(|other| other.source.name != name), "{name} occurs twice");
            assert!(!entry.purpose.is_empty() && !entry.architectures.is_empty(), "{name}");
            assert!(!entry.source.kernels().is_empty(), "{name} has no kernel");
            assert!(!(entry.specializations)().is_empty(), "{name} is never compiled");
            for expectation in entry.expected {
                assert!(entry.source.kernels().contains(&expectation.kernel), "{name} has no `{}`", expectation.kernel);
            }
            assert_eq!(family(name).map(|found| found.source), Some(entry.source));
        }
        assert!(family("no such family").is_none());
    }
}
