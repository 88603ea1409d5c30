// A transpose that takes rows of the input to be as long as its columns: right for square matrices only.
//
// lab: threads = 32x8
// lab: tile = 32x8

extern "C" __global__ void transpose(const ELEMENT* in, ELEMENT* out, int rows, int columns) {
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    if (row < rows && column < columns) out[(long long)column * rows + row] = in[(long long)row * rows + column];
}
