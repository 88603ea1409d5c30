//! The weight files of a model directory: `model.safetensors`, or the shards that
//! `model.safetensors.index.json` lists. Pickled weights are never read.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::path::{Component, Path};

use serde::Deserialize;
use serde::de::{Error as _, MapAccess, Visitor};

use crate::json::read_bounded;
use crate::safetensors::{StoredTensor, read_safetensors_header};
use crate::{MappedFile, ModelError, Result};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// The largest index that is read (that of a model of 163 shards has 9 MB).
const MAX_INDEX_BYTES: u64 = 100_000_000;
/// Shards of one model.
const MAX_SHARDS: usize = 1 << 12;

/// All stored tensors of a directory by name, and the files that hold them.
#[derive(Debug)]
pub(super) struct Shards {
    pub(super) files: Vec<MappedFile>,
    pub(super) tensors: BTreeMap<String, (usize, StoredTensor)>,
}

impl Shards {
    /// Maps the weight files of `directory` and reads their headers.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let single = directory.join(SINGLE);
        if exists(&single) {
            return Self::read(vec![MappedFile::open(&single)?]);
        }
        let index = directory.join(INDEX);
        if !exists(&index) {
            return Err(no_weights(directory));
        }
        let weight_map = read_index(&index)?;
        let names: BTreeSet<&str> = weight_map.values().map(String::as_str).collect();
        if names.is_empty() || names.len() > MAX_SHARDS {
            let problem = format!("names {} files, expected 1 to {MAX_SHARDS}", names.len());
            return Err(ModelError::invalid(&index, "weight_map", problem));
        }
        for name in &names {
            check_shard_name(&index, name)?;
        }
        let files = names.iter().map(|name| MappedFile::open(&directory.join(name))).collect::<Result<_>>()?;
        let shards = Self::read(files)?;
        for (tensor, file) in &weight_map {
            let found =
                shards.tensors.get(tensor).is_some_and(|&(i, _)| shards.path(i).file_name() == Some(OsStr::new(file)));
            if !found {
                let problem = format!("maps `{tensor}` to `{file}`, which does not hold it");
                return Err(ModelError::invalid(&index, "weight_map", problem));
            }
        }
        Ok(shards)
    }

    fn read(files: Vec<MappedFile>) -> Result<Self> {
        let mut shards = Self { files, tensors: BTreeMap::new() };
        for (i, file) in shards.files.iter().enumerate() {
            for (name, tensor) in read_safetensors_header(file.path(), file.bytes())? {
                if let Some((other, _)) = shards.tensors.get(&name) {
                    let problem = format!("is also in `{}`", shards.files[*other].path().display());
                    return Err(ModelError::invalid(file.path(), name, problem));
                }
                shards.tensors.insert(name, (i, tensor));
            }
        }
        Ok(shards)
    }

    /// The path of file `i`.
    pub(super) fn path(&self, i: usize) -> &Path {
        self.files[i].path()
    }

    /// The bytes of a stored tensor.
    pub(super) fn bytes(&self, (file, tensor): &(usize, StoredTensor)) -> &[u8] {
        &self.files[*file].bytes()[tensor.offset..tensor.offset + tensor.bytes]
    }
}

/// Whether something of this name is there, even a link that leads nowhere (opening it then says why).
fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// A shard is a plain file name: anything that could lead out of the directory is refused.
fn check_shard_name(index: &Path, name: &str) -> Result<()> {
    let mut components = Path::new(name).components();
    let plain = matches!((components.next(), components.next()), (Some(Component::Normal(only)), None) if only == name);
    if plain && !name.contains(['/', '\\', '\0']) {
        return Ok(());
    }
    Err(ModelError::invalid(
        index,
        "weight_map",
        format!("names `{name}`, expected a plain file name in the same directory"),
    ))
}

fn no_weights(directory: &Path) -> ModelError {
    let pickled = ["pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth"];
    match pickled.iter().find(|name| exists(&directory.join(name))) {
        Some(name) => ModelError::invalid(
            directory,
            *name,
            "is a pickle, which can run code and is never read; convert the model to safetensors",
        ),
        None => ModelError::invalid(directory, SINGLE, format!("is missing, and so is `{INDEX}`")),
    }
}

fn read_index(path: &Path) -> Result<BTreeMap<String, String>> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: WeightMap,
    }
    let bytes = read_bounded(path, MAX_INDEX_BYTES)?;
    let index: Index = serde_json::from_slice(&bytes)
        .map_err(|e| ModelError::invalid(path, "weight_map", format!("cannot be read: {e}")))?;
    Ok(index.weight_map.0)
}

/// Tensor name to file name, each tensor once.
struct WeightMap(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for WeightMap {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = WeightMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of file names by tensor")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<WeightMap, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some((tensor, file)) = map.next_entry::<String, String>()? {
                    if entries.insert(tensor.clone(), file).is_some() {
                        return Err(A::Error::custom(format!("tensor `{tensor}` is mapped twice")));
                    }
                }
                Ok(WeightMap(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
