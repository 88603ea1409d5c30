//! What files say of their launch, rightly and wrongly, and whatever else they may say.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Directives> {
    Directives::parse("my.cu", text)
}

#[test]
fn a_file_says_how_it_is_launched() {
    let text = "// A kernel.\n//\n// lab: threads = 32x8\n// lab: tile = 32x64 // for people\n  // lab: shared = 65536\n\
        // lab: cluster = 2\n// lab: requires = sm_90a\n// lab: multiple = 8\n// lab: dtype = bf16\n\
        // lab: tensor_maps = a:128x64 c:64x32 swizzle=128\nextern \"C\" __global__ void gemm() {}";
    let map = |operand, rows, columns| TensorMap { operand, rows, columns, swizzle: 128 };
    let expected = Directives {
        threads: [32, 8],
        grid: Grid::Tile { columns: 32, rows: 64 },
        shared: 65_536,
        cluster: Some(2),
        requires: "sm_90a".parse().ok(),
        multiple: 8,
        dtype: Some(Dtype::Bf16),
        tensor_maps: vec![map(Operand::A, 128, 64), map(Operand::C, 64, 32)],
    };
    assert_eq!(parse(text).expect("it is right"), expected);
    assert_eq!(expected.threads_of_block(), 256);
    assert_eq!(expected.tensor_map(Operand::B), None);
}

#[test]
fn what_cannot_be_used_is_an_error_that_names_the_line() {
    let good = "// lab: threads = 256\n// lab: per_block = 256\n";
    assert!(parse(good).is_ok());
    for (more, part) in [
        ("// lab: thread = 256", "`my.cu`, line 3: `thread = 256`: there is no such directive"),
        ("// lab: threads = 128", "it is there twice"),
        ("// lab: blocks = 4", "there is a grid already"),
        ("// lab: shared", "write `name = value`"),
        ("// lab: shared = 0", "no number from 1 to"),
        ("// lab: shared = 99999999999999999999", "no number from 1 to"),
        ("// lab: cluster = 17", "no number from 1 to 16"),
        ("// lab: requires = hopper", "is no GPU architecture"),
        ("// lab: dtype = f16", "neither f32 nor bf16"),
        ("// lab: multiple = 4 * 2", "`4 * 2` is no number"),
        ("// lab: tensor_maps = swizzle=128", "it names no operand"),
        ("// lab: tensor_maps = a:64x64 a:64x64", "`a` is there twice"),
        ("// lab: tensor_maps = d:64x64", "none of a, b, c"),
        ("// lab: tensor_maps = a:64x512", "no number from 1 to 256"),
        ("// lab: tensor_maps = a:64x64 swizzle=48", "none of 0, 32, 64, 128"),
    ] {
        let error = parse(&format!("{good}{more}")).expect_err(more).to_string();
        assert!(error.contains(part) && error.lines().count() == 1, "{error}");
    }
    for (text, part) in [
        ("", "there is no `// lab: threads = N`"),
        ("// lab: threads = 256", "there is no grid"),
        ("// lab: threads = 64x32", "at most 1024 threads"),
        ("// lab: threads = x", "`` is no number"),
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn what_says_nothing_of_a_kernel_of_the_step_is_an_error_that_names_the_line() {
    let with = |operation, line: &str| {
        Directives::parse_for(operation, "my.cu", &format!("//lab: threads = 256\n{line}\n// lab: shared = 16"))
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let tile = "// lab: tile = 32x32 // for people";
    for operation in [Operation::Saxpy, Operation::Reduction] {
        let error = with(operation, tile).expect_err("a vector has no tiles");
        assert!(error.starts_with("`my.cu`, line 2: `tile = 32x32`: a vector of `"), "{error}");
        assert_eq!(with(operation, "// lab: per_block = 32"), Ok(()));
    }
    let maps = "// lab: blocks = 1\n// lab: tensor_maps = a:64x64";
    let error = with(Operation::Transpose, maps).expect_err("it takes pointers");
    assert_eq!(
        error,
        "`my.cu`, line 3: `tensor_maps = a:64x64`: only matrix products take tensor maps, and this is `transpose`"
    );
    assert_eq!((with(Operation::Transpose, tile), with(Operation::Gemm, maps)), (Ok(()), Ok(())));
}

#[test]
fn grids_cover_the_problem_and_are_never_empty() {
    let with = |grid| Directives { grid, ..parse("// lab: threads = 1\n// lab: blocks = 1").expect("right") };
    let blocks = |grid, shape| with(grid).blocks(shape, 132).expect("a grid");
    assert_eq!(blocks(Grid::PerBlock(1024), Shape::Vector(1025)), [2, 1, 1]);
    assert_eq!(blocks(Grid::PerBlock(1024), Shape::Vector(0)), [1, 1, 1]);
    assert_eq!(blocks(Grid::PerMultiprocessor(8), Shape::Vector(5)), [1056, 1, 1]);
    let tile = Grid::Tile { columns: 32, rows: 64 };
    assert_eq!(blocks(tile, Shape::Matrix { rows: 65, columns: 64 }), [2, 2, 1]);
    assert_eq!(blocks(tile, Shape::Product { m: 64, n: 33, k: 9 }), [2, 1, 1]);
    let pairs = Directives { cluster: Some(2), ..with(Grid::PerBlock(4)) };
    assert_eq!(pairs.blocks(Shape::Vector(9), 1).expect("a grid"), [4, 1, 1]);
    let tall = Shape::Matrix { rows: 65_536, columns: 1 };
    assert!(with(Grid::Tile { columns: 1, rows: 1 }).blocks(tall, 1).is_err());
}

/// What stands behind an equals sign: mostly something that can be used.
fn value() -> impl Strategy<Value = String> {
    let number = prop_oneof![1_u64..64, any::<u64>()];
    prop_oneof![
        4 => number.clone().prop_map(|number| number.to_string()),
        4 => (number.clone(), number).prop_map(|(x, y)| format!("{x}x{y}")),
        1 => "[0-9x a:=.-]{0,24}",
    ]
}

proptest! {
    #[test]
    fn whatever_a_file_says_is_a_launch_or_a_line_of_error(
        threads in value(), grid in prop::sample::select(vec!["per_block", "blocks_per_sm", "tile", "blocks"]),
        size in value(), others in prop::collection::vec("// lab: ?[a-z_]{0,12} ?=? ?[0-9x a:=.-]{0,24}", 0..2),
        cluster in prop::option::of(value()), sides in prop::array::uniform3(0_u64..1 << 31),
    ) {
        let mut lines = vec![format!("// lab: threads = {threads}"), format!("// lab: {grid} = {size}")];
        lines.extend(cluster.map(|blocks| format!("// lab: cluster = {blocks}")));
        lines.extend(others);
        match parse(&lines.join("\n")) {
            Ok(directives) => {
                prop_assert!((1..=MOST_THREADS).contains(&directives.threads_of_block()));
                let [m, n, k] = sides;
                for shape in [Shape::Vector(m), Shape::Matrix { rows: m, columns: n }, Shape::Product { m, n, k }] {
                    match directives.blocks(shape, 132) {
                        Ok([x, y, 1]) => prop_assert!(x >= 1 && (1..=65_535).contains(&y)),
                        Ok(blocks) => prop_assert!(false, "{:?}", blocks),
                        Err(error) => prop_assert_eq!(error.to_string().lines().count(), 1),
                    }
                }
            }
            Err(error) => prop_assert_eq!(error.to_string().lines().count(), 1),
        }
    }
}
