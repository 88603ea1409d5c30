// Transpose, first version: a thread takes elements of the input in order and puts each where it belongs. A warp reads 32 neighbouring
// elements of a row, and writes them 32 rows apart: each of the 32 words goes into a sector of 32 bytes of its own, of which a single
// element is used.
//
// lab: threads = 32x8
// lab: tile = 32x32

extern "C" __global__ void transpose(const ELEMENT* in, ELEMENT* out, int rows, int columns) {
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    if (column >= columns) return;
    for (int k = 0; k < 32; k += 8)
        if (row + k < rows) out[(long long)column * rows + row + k] = in[(long long)(row + k) * columns + column];
}
