// SAXPY in a grid-stride loop: as many blocks as fit on the multiprocessors at once, each of which walks through the arrays
// in strides of the whole grid. Blocks are started once, and any grid is right for any size. Since x and y might overlap for
// all the compiler knows, it may not move a load over the store before it: a thread still waits for one pair of words.
//
// lab: threads = 256
// lab: blocks_per_sm = 8

extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned long long n) {
    unsigned long long stride = (unsigned long long)gridDim.x * 256;
    for (unsigned long long i = (unsigned long long)blockIdx.x * 256 + threadIdx.x; i < n; i += stride) y[i] = a * x[i] + y[i];
}
