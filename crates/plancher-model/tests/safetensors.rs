//! The safetensors header reader against the format's own library, on good files and on damaged ones.

use std::path::Path;

use plancher_model::read_safetensors_header;
use proptest::prelude::*;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

/// Good files: up to six tensors of small shapes.
fn files() -> impl Strategy<Value = Vec<u8>> {
    let dtype =
        prop_oneof![Just(Dtype::F32), Just(Dtype::BF16), Just(Dtype::F8_E4M3), Just(Dtype::I64), Just(Dtype::BOOL)];
    let tensor = ("[a-z.]{1,12}", dtype, prop::collection::vec(0_usize..4, 0..4));
    prop::collection::vec(tensor, 0..6).prop_map(|tensors| {
        let data = vec![7_u8; 4 * 4 * 4 * 8];
        let tensors: std::collections::BTreeMap<String, TensorView<'_>> = tensors
            .into_iter()
            .map(|(name, dtype, shape)| {
                let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
                (name, TensorView::new(dtype, shape, &data[..bytes]).unwrap())
            })
            .collect();
        safetensors::serialize(tensors, None).unwrap()
    })
}

proptest! {
    #[test]
    fn good_files_are_read_as_the_library_reads_them(bytes in files()) {
        let ours = read_safetensors_header(Path::new("file"), &bytes).unwrap();
        let theirs = SafeTensors::deserialize(&bytes).unwrap();
        prop_assert_eq!(ours.len(), theirs.len());
        for (name, tensor) in &ours {
            let expected = theirs.tensor(name).unwrap();
            prop_assert_eq!(&tensor.dtype, &expected.dtype().to_string());
            prop_assert_eq!(&tensor.shape, expected.shape());
            prop_assert_eq!(&bytes[tensor.offset..tensor.offset + tensor.bytes], expected.data());
        }
    }

    #[test]
    fn damaged_files_are_refused_or_still_make_sense(
        mut bytes in files(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        truncate in any::<bool>(),
    ) {
        for (index, byte) in damage {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if truncate {
            bytes.truncate(cut.index(bytes.len()));
        }
        plancher_model::testing::check_safetensors_header(&bytes);
    }

    #[test]
    fn any_header_text(header in "[\\[\\]{}\":,a-z0-9_ ]{0,80}", data in prop::collection::vec(any::<u8>(), 0..8)) {
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat();
        plancher_model::testing::check_safetensors_header(&bytes);
    }
}
