//! The megakernel's protocol between and inside workers, as its kernels (`kernels/mega*`) follow it, under loom (2 to 4
//! threads) and shuttle (more threads, longer runs). Beside the protocol stand broken variants of it: each must be noticed,
//! or the models would prove nothing. What they do not know: a background copy is another proxy to memory, so the kernel
//! has a proxy fence beside each release and acquire between appended rows and their copy.

mod block;
mod exchange;
mod loom;
mod page;
mod platform;
mod ring;
mod shuttle;
