// Transpose through shared memory with one unused element behind each row of the tile: 33 and 32 have no common divisor, so the 32
// elements of a column lie in 32 banks (in bf16, where two elements share a bank, as well: 33 half words are 16.5 words).
//
// lab: threads = 32x8
// lab: tile = 32x32

extern "C" __global__ void transpose(const ELEMENT* in, ELEMENT* out, int rows, int columns) {
    __shared__ ELEMENT part[32][33];
    unsigned tiles = (columns + 31) / 32, tile = blockIdx.y * gridDim.x + blockIdx.x;
    int left = tile % tiles * 32, top = tile / tiles * 32;
    int column = left + threadIdx.x, row = top + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (column < columns && row + k < rows) part[threadIdx.y + k][threadIdx.x] = in[(long long)(row + k) * columns + column];
    __syncthreads();
    column = left + threadIdx.y, row = top + threadIdx.x;
    for (int k = 0; k < 32; k += 8)
        if (column + k < columns && row < rows) out[(long long)(column + k) * rows + row] = part[threadIdx.x][threadIdx.y + k];
}
