//! Products on a GPU against double precision: odd sizes, every kind of output, both element types, cuBLASLt and our own
//! kernels.

use half::{bf16, f16};
use plancher_cuda::{DeviceBuffer, Element, Matmul, MatmulChoice, Output, Product, padded};

use crate::common::{Gpu, relative_difference};

/// Numbers in (-1, 1), other ones for each seed.
fn random(seed: u64, count: usize) -> impl Iterator<Item = f32> {
    (0..count as u64).map(move |index| {
        let mut z = seed.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z >> 40) as f32 / (1_u64 << 23) as f32) - 1.0
    })
}

/// `(rows, columns)` random elements with their bits, padded with zeros to a stride, and their values.
fn matrix(seed: u64, rows: usize, columns: usize, element: Element) -> (Vec<u16>, Vec<f64>) {
    let stride = padded(columns);
    let (mut bits, mut values) = (vec![0; rows * stride], vec![0.0; rows * columns]);
    for (index, x) in random(seed, rows * columns).enumerate() {
        let (pattern, value) = match element {
            Element::Bf16 => (bf16::from_f32(x).to_bits(), bf16::from_f32(x).to_f64()),
            Element::F16 => (f16::from_f32(x).to_bits(), f16::from_f32(x).to_f64()),
        };
        bits[index / columns * stride + index % columns] = pattern;
        values[index] = value;
    }
    (bits, values)
}

/// The relative difference of one product from double precision.
fn difference(gpu: &Gpu, matmul: &mut Matmul, product: &Product, m: usize, columns: usize) -> f64 {
    let (x_bits, x) = matrix(m as u64, m, columns, product.element);
    let (weight_bits, weight) = matrix(1000 + product.rows as u64, product.rows, columns, product.element);
    let x_device = DeviceBuffer::from_slice(&gpu.device, &x_bits).expect("memory");
    let weight_device = DeviceBuffer::from_slice(&gpu.device, &weight_bits).expect("memory");
    let before: Vec<f32> = random(7, m * product.out_stride).collect();
    let adds = product.output == Output::AddF32;
    // What is not added to is full of NaN.
    let start = if adds { before.clone() } else { vec![f32::NAN; m * product.out_stride] };
    let out = DeviceBuffer::from_slice(&gpu.device, &start).expect("memory");
    // SAFETY: the buffers have the product's shapes and outlive the download.
    unsafe { matmul.multiply(product, m, x_device.pointer(), weight_device.pointer(), out.pointer()) }
        .expect("a product");
    let result = out.download().expect("the result");
    let result: Vec<f32> = match (product.output, product.element) {
        (Output::Elements, Element::F16) => {
            let bits: &[u16] = bytemuck::cast_slice(&result);
            bits[..m * product.out_stride].iter().map(|&bits| f16::from_bits(bits).to_f32()).collect()
        }
        (Output::Elements, Element::Bf16) => {
            let bits: &[u16] = bytemuck::cast_slice(&result);
            bits[..m * product.out_stride].iter().map(|&bits| bf16::from_bits(bits).to_f32()).collect()
        }
        _ => result,
    };
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    for row in 0..m {
        for column in 0..product.rows {
            let (x, weight) = (&x[row * columns..][..columns], &weight[column * columns..][..columns]);
            let sum: f64 = x.iter().zip(weight).map(|(x, weight)| x * weight).sum();
            let at = row * product.out_stride + column;
            expected.push((sum + if adds { f64::from(before[at]) } else { 0.0 }) as f32);
            found.push(result[at]);
        }
    }
    relative_difference(&found, &expected)
}

fn check(choice: MatmulChoice) {
    let Some(gpu) = Gpu::open() else { return };
    if choice == MatmulChoice::CublasLt && !gpu.has_cublaslt() {
        return;
    }
    let mut matmul = Matmul::new(&gpu.device, &gpu.compiler, choice).expect("an implementation");
    // Rows, outputs, inputs: one of everything, remainders in every direction, and enough tiles for the large kernels.
    let sizes: [(usize, usize, usize); 7] = [
        (1, 8, 8),
        (13, 100, 200),
        (31, 72, 576),
        (50, 1003, 130),
        (70, 264, 320),
        (300, 17_000, 64),
        (1000, 5001, 90),
    ];
    for (m, rows, columns) in sizes {
        for (element, output, limit) in [
            (Element::F16, Output::Elements, 4e-4),
            (Element::Bf16, Output::Elements, 3e-3),
            (Element::F16, Output::F32, 1e-5),
            (Element::Bf16, Output::AddF32, 1e-5),
        ] {
            let out_stride = rows.next_multiple_of(4);
            let product = Product { element, rows, columns: padded(columns), out_stride, output };
            let difference = difference(&gpu, &mut matmul, &product, m, columns);
            eprintln!("{} {m} {product:?}: {difference:.1e}", matmul.name());
            assert!(difference < limit, "{m} rows of {product:?}: {difference}");
        }
    }
}

#[test]
fn our_own_products_agree_with_double_precision() {
    check(MatmulChoice::Own);
}

#[test]
fn products_of_cublaslt_agree_with_double_precision() {
    check(MatmulChoice::CublasLt);
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let Some(gpu) = Gpu::open() else { return };
    let mut matmul = Matmul::new(&gpu.device, &gpu.compiler, MatmulChoice::Own).expect("our own");
    let product = Product { element: Element::F16, rows: 8, columns: 60, out_stride: 8, output: Output::F32 };
    // SAFETY: nothing is launched.
    let error = unsafe { matmul.multiply(&product, 1, 0, 0, 0) }.expect_err("60 is no multiple of 64");
    assert!(error.to_string().contains("columns: 60"), "{error}");
}
