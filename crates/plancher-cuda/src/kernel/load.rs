//! From a source file to kernels on a device, each specialisation compiled and loaded once.

use std::collections::HashMap;

use super::{Kernel, Module};
use crate::{Compiler, Device, Result, Source, Specialization};

/// Compiles and loads modules on first use and hands out their kernels.
#[derive(Debug)]
pub struct Loader {
    device: Device,
    compiler: Compiler,
    modules: HashMap<(&'static str, Specialization), Module>,
}

impl Loader {
    /// Nothing is loaded yet.
    #[must_use]
    pub fn new(device: &Device, compiler: &Compiler) -> Self {
        Self { device: device.clone(), compiler: compiler.clone(), modules: HashMap::new() }
    }

    /// The device for which this loads.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Kernel `name` of `source` with these constants.
    ///
    /// # Errors
    /// If it does not compile or cannot be loaded.
    pub fn kernel(&mut self, source: Source, constants: &Specialization, name: &str) -> Result<Kernel> {
        let key = (source.name, constants.clone());
        if let Some(module) = self.modules.get(&key) {
            return module.kernel(name);
        }
        let cubin = self.compiler.compile(source, constants, self.device.architecture())?;
        let module = Module::load(&self.device, &cubin)?;
        let kernel = module.kernel(name)?;
        self.modules.insert(key, module);
        Ok(kernel)
    }
}
