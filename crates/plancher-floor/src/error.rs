//! The error of this crate: one line that names the field and the value that was wrong.

/// Why a floor could not be computed. Nothing is ever guessed instead.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FloorError {
    /// A field has a value that cannot be right.
    #[error("`{field}`: {problem}")]
    Invalid {
        /// The field of a configuration or the argument of a request.
        field: String,
        /// What is wrong with it, with the value.
        problem: String,
    },
    /// The configuration names an architecture whose terms are not known.
    #[error("architecture `{name}` is not understood (understood: {})", crate::config::ARCHITECTURES)]
    UnsupportedArchitecture {
        /// The name found in the configuration.
        name: String,
    },
    /// A name that is none of those offered.
    #[error("there is no {kind} `{name}` (there are: {known})")]
    UnknownName {
        /// What was looked for: `hardware preset`, `weight format`.
        kind: &'static str,
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The memory of one device is too small.
    #[error("`{what}` does not fit on `{hardware}`: it takes {needed} bytes a device of {available}, {} bytes too many", needed - available)]
    DoesNotFit {
        /// The model and regime.
        what: String,
        /// The hardware's name.
        hardware: String,
        /// Bytes that one device must hold.
        needed: u128,
        /// Bytes that one device has.
        available: u128,
    },
    /// A count does not fit in its integer, mostly of 128 bits.
    #[error("`{0}` is too large to count")]
    Overflow(&'static str),
}

impl FloorError {
    /// Shorthand for [`FloorError::Invalid`].
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), problem: problem.into() }
    }
}

/// Result with this crate's error.
pub type Result<T> = std::result::Result<T, FloorError>;

/// The product of `factors`, or an error that names `what`.
pub(crate) fn product<const N: usize>(what: &'static str, factors: [u128; N]) -> Result<u128> {
    factors.into_iter().try_fold(1u128, u128::checked_mul).ok_or(FloorError::Overflow(what))
}

/// The sum of `terms`, or an error that names `what`.
pub(crate) fn sum(what: &'static str, terms: impl IntoIterator<Item = u128>) -> Result<u128> {
    terms.into_iter().try_fold(0u128, u128::checked_add).ok_or(FloorError::Overflow(what))
}
