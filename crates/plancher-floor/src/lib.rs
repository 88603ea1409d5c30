//! The physical floor of a language model on a machine: arithmetic only, no I/O.
