// Transpose through shared memory: a block reads a tile of 32 rows, and after a barrier writes its columns as rows, so that both sides
// touch whole sectors. What was scattered in memory is now scattered in shared memory: a column of the tile lies in a single bank.
//
// lab: threads = 32x8
// lab: tile = 32x32

extern "C" __global__ void transpose(const ELEMENT* in, ELEMENT* out, int rows, int columns) {
    __shared__ ELEMENT part[32][32];
    int left = blockIdx.x * 32, top = blockIdx.y * 32;
    int column = left + threadIdx.x, row = top + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (column < columns && row + k < rows) part[threadIdx.y + k][threadIdx.x] = in[(long long)(row + k) * columns + column];
    __syncthreads();
    column = left + threadIdx.y, row = top + threadIdx.x;
    for (int k = 0; k < 32; k += 8)
        if (column + k < columns && row < rows) out[(long long)(column + k) * rows + row] = part[threadIdx.x][threadIdx.y + k];
}
