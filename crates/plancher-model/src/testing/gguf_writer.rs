//! Writes small GGUF files of version 3, well-formed unless asked otherwise.

use crate::{DType, GgmlType};

/// A GGUF file in the making.
#[derive(Clone, Debug)]
pub struct GgufWriter {
    /// The version number.
    pub version: u32,
    /// Alignment of tensors; whoever changes it says so in `general.alignment`.
    pub alignment: usize,
    keys: Vec<Vec<u8>>,
    tensors: Vec<WrittenTensor>,
}

/// A tensor to be written.
#[derive(Clone, Debug)]
struct WrittenTensor {
    name: String,
    dimensions: Vec<u64>,
    id: u32,
    bytes: Vec<u8>,
    /// Where it is said to begin, when that is not where it does.
    offset: Option<u64>,
}

impl Default for GgufWriter {
    fn default() -> Self {
        Self { version: 3, alignment: 32, keys: Vec::new(), tensors: Vec::new() }
    }
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

impl GgufWriter {
    /// An empty file for `architecture`.
    #[must_use]
    pub fn new(architecture: &str) -> Self {
        let mut writer = Self::default();
        writer.text("general.architecture", architecture);
        writer
    }

    /// Adds a key whose value has type number `kind` and the given bytes.
    pub fn raw(&mut self, key: &str, kind: u32, bytes: &[u8]) {
        self.keys.push([&string(key), &kind.to_le_bytes()[..], bytes].concat());
    }

    /// Adds a string.
    pub fn text(&mut self, key: &str, value: &str) {
        self.raw(key, 8, &string(value));
    }

    /// Adds a u32.
    pub fn unsigned(&mut self, key: &str, value: usize) {
        self.raw(key, 4, &(value as u32).to_le_bytes());
    }

    /// Adds an f32.
    pub fn float(&mut self, key: &str, value: f32) {
        self.raw(key, 6, &value.to_le_bytes());
    }

    /// Adds a bool.
    pub fn flag(&mut self, key: &str, value: bool) {
        self.raw(key, 7, &[u8::from(value)]);
    }

    fn array(&mut self, key: &str, element: u32, count: usize, bytes: &[u8]) {
        self.raw(key, 9, &[&element.to_le_bytes()[..], &(count as u64).to_le_bytes(), bytes].concat());
    }

    /// Adds an array of strings.
    pub fn texts(&mut self, key: &str, values: &[&str]) {
        let bytes: Vec<u8> = values.iter().flat_map(|text| string(text)).collect();
        self.array(key, 8, values.len(), &bytes);
    }

    /// Adds an array of i32.
    pub fn integers(&mut self, key: &str, values: &[i32]) {
        let bytes: Vec<u8> = values.iter().flat_map(|n| n.to_le_bytes()).collect();
        self.array(key, 5, values.len(), &bytes);
    }

    /// Adds an array of f32.
    pub fn floats(&mut self, key: &str, values: &[f32]) {
        let bytes: Vec<u8> = values.iter().flat_map(|n| n.to_le_bytes()).collect();
        self.array(key, 6, values.len(), &bytes);
    }

    /// Adds an array of bools.
    pub fn flags(&mut self, key: &str, values: &[bool]) {
        let bytes: Vec<u8> = values.iter().map(|&flag| u8::from(flag)).collect();
        self.array(key, 7, values.len(), &bytes);
    }

    /// Adds a tensor, its fastest dimension first.
    ///
    /// # Panics
    /// When GGUF has no such type.
    pub fn tensor(&mut self, name: &str, dimensions: &[usize], dtype: DType, bytes: Vec<u8>) {
        let id = GgmlType::id(dtype).expect("a type that GGUF has");
        self.raw_tensor(name, dimensions.iter().map(|&n| n as u64).collect(), id, bytes, None);
    }

    /// Adds a tensor with any description, which is said to begin at `offset` of the data section.
    pub fn raw_tensor(&mut self, name: &str, dimensions: Vec<u64>, id: u32, bytes: Vec<u8>, offset: Option<u64>) {
        self.tensors.push(WrittenTensor { name: name.to_owned(), dimensions, id, bytes, offset });
    }

    /// Removes the tensor `name`.
    pub fn remove_tensor(&mut self, name: &str) {
        self.tensors.retain(|tensor| tensor.name != name);
    }

    /// The number of tensors.
    #[must_use]
    pub fn n_tensors(&self) -> usize {
        self.tensors.len()
    }

    /// The file's bytes.
    #[must_use]
    pub fn finish(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(self.version.to_le_bytes());
        file.extend((self.tensors.len() as u64).to_le_bytes());
        file.extend((self.keys.len() as u64).to_le_bytes());
        file.extend(self.keys.concat());
        let mut data = Vec::new();
        for tensor in &self.tensors {
            data.resize(data.len().next_multiple_of(self.alignment), 0);
            file.extend(string(&tensor.name));
            file.extend((tensor.dimensions.len() as u32).to_le_bytes());
            file.extend(tensor.dimensions.iter().flat_map(|n| n.to_le_bytes()));
            file.extend(tensor.id.to_le_bytes());
            file.extend(tensor.offset.unwrap_or(data.len() as u64).to_le_bytes());
            data.extend(&tensor.bytes);
        }
        file.resize(file.len().next_multiple_of(self.alignment), 0);
        file.extend(data);
        file
    }
}
