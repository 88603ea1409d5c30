// Transpose through shared memory with one unused word behind each row of the tile: a row is then an odd number of words (33, in bf16 17),
// which has no common divisor with the 32 banks, so that the 32 elements of a column lie in 32 banks.
//
// lab: threads = 32x8
// lab: tile = 32x32

extern "C" __global__ void transpose(const ELEMENT* in, ELEMENT* out, int rows, int columns) {
    __shared__ ELEMENT part[32][32 + 4 / ELEMENT_BYTES];
    int left = blockIdx.x * 32, top = blockIdx.y * 32;
    int column = left + threadIdx.x, row = top + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (column < columns && row + k < rows) part[threadIdx.y + k][threadIdx.x] = in[(long long)(row + k) * columns + column];
    __syncthreads();
    column = left + threadIdx.y, row = top + threadIdx.x;
    for (int k = 0; k < 32; k += 8)
        if (column + k < columns && row < rows) out[(long long)(column + k) * rows + row] = part[threadIdx.x][threadIdx.y + k];
}
