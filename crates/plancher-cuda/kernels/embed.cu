// The start of a step: each sequence's token becomes its residual stream.
//
// Nothing after this kernel starts before it has waited for the step before, so that the kernels of a step may read the
// positions and pages before their own wait.
//
// Options: WEIGHT_STRIDE (elements of a row as stored), VOCAB.

extern "C" __global__ void __launch_bounds__(256) embed(
    float* hidden,                         // (batch, WEIGHT_STRIDE)
    const element* __restrict__ embedding, // (VOCAB, WEIGHT_STRIDE)
    const u32* tokens,                     // (batch)
    float scale,
    u32* progress, // (launches): how far the products of this step are
    int launches) {
    wait_for_previous();
    launch_dependents();
    if (blockIdx.x == 0 && blockIdx.y == 0)
        for (int j = threadIdx.x; j < launches; j += blockDim.x) progress[j] = 0;
    u32 token = min(load_fresh(tokens + blockIdx.y), (u32)(VOCAB - 1));
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < WEIGHT_STRIDE) hidden[(long long)blockIdx.y * WEIGHT_STRIDE + i] = to_float(embedding[(long long)token * WEIGHT_STRIDE + i]) * scale;
}
