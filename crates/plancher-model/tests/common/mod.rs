//! The golden checkpoints, and copies of them with something changed.
#![expect(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};

use plancher_model::Model;
use serde_json::{Map, Value};

/// A golden checkpoint's directory.
pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name)
}

/// Opens a golden checkpoint.
pub(crate) fn open(name: &str) -> Model {
    Model::open(&golden(name)).unwrap_or_else(|e| panic!("{e}"))
}

/// A directory of its own with the `config.json` and weights of a golden checkpoint.
pub(crate) struct Copy(tempfile::TempDir);

impl Copy {
    pub(crate) fn of(name: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for file in ["config.json", "model.safetensors"] {
            std::fs::copy(golden(name).join(file), directory.path().join(file)).unwrap();
        }
        Self(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, file: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path().join(file), content).unwrap();
    }

    pub(crate) fn remove(&self, file: &str) {
        std::fs::remove_file(self.path().join(file)).unwrap();
    }

    /// Changes the object in `config.json`.
    pub(crate) fn config(&self, change: impl FnOnce(&mut Map<String, Value>)) {
        let bytes = std::fs::read(self.path().join("config.json")).unwrap();
        let mut object: Map<String, Value> = serde_json::from_slice(&bytes).unwrap();
        change(&mut object);
        self.write("config.json", serde_json::to_vec(&object).unwrap());
    }

    /// Sets one field of `config.json`.
    pub(crate) fn set(&self, field: &str, value: Value) {
        self.config(|object| {
            object.insert(field.to_owned(), value);
        });
    }

    /// The header's object and the data of `model.safetensors`.
    pub(crate) fn weights(&self) -> (Map<String, Value>, Vec<u8>) {
        let bytes = std::fs::read(self.path().join("model.safetensors")).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        (serde_json::from_slice(&bytes[8..8 + length]).unwrap(), bytes[8 + length..].to_vec())
    }

    /// Changes the header's object of `model.safetensors` and leaves the data alone.
    pub(crate) fn header(&self, change: impl FnOnce(&mut Map<String, Value>)) {
        let (mut header, data) = self.weights();
        change(&mut header);
        self.write("model.safetensors", safetensors(&serde_json::to_string(&header).unwrap(), &data));
    }

    /// The message with which the directory is refused, its path left out.
    pub(crate) fn refusal(&self) -> String {
        let line = Model::open(self.path()).expect_err("the directory should be refused").to_string();
        line.replace(&*self.path().to_string_lossy(), "DIR")
    }
}

/// The bytes of a safetensors file with this header.
pub(crate) fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}
