//! Why a model cannot be planned for the persistent kernel on a device: one line each, after which the caller takes
//! another executor.

/// What the kernel cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Layers differ in what the kernel is compiled for.
    #[error(
        "layer {layer}: `{field}` is `{value}`, but `{first}` in layer 0: the megakernel takes layers of one shape"
    )]
    Unequal {
        /// The first layer that differs from layer 0.
        layer: usize,
        /// What differs.
        field: &'static str,
        /// Its value there.
        value: String,
        /// Its value in layer 0.
        first: String,
    },
    /// A feed-forward part that the kernel has no instructions for.
    #[error("layer {layer}: the megakernel has no instructions for this kind of feed-forward")]
    FeedForward {
        /// Which layer.
        layer: usize,
    },
    /// Norms on the outputs of attention and feed-forward.
    #[error("the model has norms after attention and feed-forward (`post_norms`): the megakernel has none there")]
    PostNorms,
    /// A size that the kernel does not take.
    #[error("`{field}` is `{value}`: the megakernel takes {expected}")]
    Size {
        /// Which size.
        field: &'static str,
        /// Its value.
        value: usize,
        /// What it takes.
        expected: &'static str,
    },
    /// The block's shared memory does not hold the fixed part and the smallest ring.
    #[error("`shared_memory` is `{available}` bytes a block: the megakernel needs at least {needed} for this model")]
    SharedMemory {
        /// What the device has.
        available: usize,
        /// What the model needs at least.
        needed: usize,
    },
    /// Sizes that no address reaches.
    #[error("`{what}` of this model is larger than the megakernel can address")]
    TooLarge {
        /// Of what.
        what: &'static str,
    },
}
