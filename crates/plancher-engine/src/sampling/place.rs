//! Places in the order of tokens from the most likely to the least: the smaller token first among equals. A choice from
//! the whole vocabulary is cut at places (a nucleus ends at one), so that ties are cut where the definition says.

use super::candidates::BLOCK;

/// A place: some tokens come before it, the others do not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    logit: f32,
    /// The least that is larger.
    above: f32,
    /// Among tokens of just this logit, those below come before.
    token: usize,
}

impl Place {
    /// The place at which this token stands: it does not come before itself.
    #[inline(always)]
    pub(super) fn of(token: usize, logit: f32) -> Self {
        Self { logit, above: logit.next_up(), token }
    }

    /// The place behind every token of at least this logit.
    #[inline(always)]
    pub(super) fn behind(logit: f32) -> Self {
        Self { logit, above: logit.next_up(), token: usize::MAX }
    }

    /// Whether the token comes before this place; NaN never does.
    #[inline(always)]
    pub(super) fn is_behind(self, token: usize, logit: f32) -> bool {
        logit > self.logit || (logit >= self.logit && token < self.token)
    }

    /// Whether one threshold tells which tokens of the block that begins with `start` come before.
    #[inline(always)]
    pub(super) fn is_uniform(self, start: usize) -> bool {
        self.token <= start || self.token >= start + BLOCK
    }

    /// The least logit that comes before, for `start` and the tokens of its block where it is the same.
    #[inline(always)]
    pub(super) fn threshold(self, start: usize) -> f32 {
        if self.token <= start { self.above } else { self.logit }
    }

    /// The more likely of two places.
    #[inline(always)]
    pub(super) fn earlier(self, other: Self) -> Self {
        if other.logit > self.logit || (other.logit >= self.logit && other.token < self.token) { other } else { self }
    }

    /// The logit at which it stands.
    #[inline(always)]
    pub(super) fn logit(self) -> f32 {
        self.logit
    }
}
