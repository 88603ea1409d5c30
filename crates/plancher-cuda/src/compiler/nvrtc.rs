//! NVRTC's functions, taken from the library that was found. Our own few lines instead of the binding, because that
//! one looks for the library by bare names and may load another than the one that was found.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::sync::OnceLock;

use super::log::first_error;
use crate::driver::CudaVersion;
use crate::libraries::{Kind, Loaded, load as load_library};
use crate::{Architecture, CudaError, Result};

type Program = *mut std::ffi::c_void;
type Status = c_int;
type Strings = *const *const c_char;

/// NVRTC, loaded for the life of the process.
#[derive(Debug)]
pub(super) struct Nvrtc {
    library: Loaded,
    pub(super) version: CudaVersion,
    create: unsafe extern "C" fn(*mut Program, *const c_char, *const c_char, c_int, Strings, Strings) -> Status,
    destroy: unsafe extern "C" fn(*mut Program) -> Status,
    compile: unsafe extern "C" fn(Program, c_int, Strings) -> Status,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> Status,
    log: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> Status,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
}

/// Finds and loads NVRTC. The answer stays the same for the life of the process.
pub(super) fn load() -> Result<&'static Nvrtc> {
    static NVRTC: OnceLock<Result<Nvrtc>> = OnceLock::new();
    NVRTC.get_or_init(Nvrtc::load).as_ref().map_err(Clone::clone)
}

/// A program, destroyed when dropped.
struct Handle<'a> {
    nvrtc: &'a Nvrtc,
    program: Program,
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // SAFETY: the program was made by `create` and is destroyed once.
        let _ = unsafe { (self.nvrtc.destroy)(&raw mut self.program) };
    }
}

impl Nvrtc {
    fn load() -> Result<Self> {
        let library = load_library(Kind::Nvrtc)?;
        // SAFETY: the types in `Nvrtc`, and the one of `nvrtcVersion`, are those of NVRTC's header.
        let mut nvrtc = unsafe {
            Self {
                version: CudaVersion { major: 0, minor: 0 },
                create: library.symbol("nvrtcCreateProgram")?,
                destroy: library.symbol("nvrtcDestroyProgram")?,
                compile: library.symbol("nvrtcCompileProgram")?,
                log_size: library.symbol("nvrtcGetProgramLogSize")?,
                log: library.symbol("nvrtcGetProgramLog")?,
                cubin_size: library.symbol("nvrtcGetCUBINSize")?,
                cubin: library.symbol("nvrtcGetCUBIN")?,
                error_string: library.symbol("nvrtcGetErrorString")?,
                library,
            }
        };
        // SAFETY: as above.
        let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status =
            unsafe { nvrtc.library.symbol("nvrtcVersion")? };
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both are places for numbers.
        nvrtc.check("nvrtcVersion", unsafe { version(&raw mut major, &raw mut minor) })?;
        nvrtc.version =
            CudaVersion { major: u32::try_from(major).unwrap_or(0), minor: u32::try_from(minor).unwrap_or(0) };
        Ok(nvrtc)
    }

    pub(super) fn path(&self) -> &Path {
        &self.library.path
    }

    /// What else than source and options decides the code: the version, and the library's size, which differs between
    /// releases of one version.
    pub(super) fn identity(&self) -> String {
        let size = std::fs::metadata(self.path()).map_or(0, |metadata| metadata.len());
        format!("nvrtc {} {size}", self.version)
    }

    /// Compiles to machine code; returns the log and the code.
    pub(super) fn compile(
        &self,
        name: &str,
        text: &str,
        options: &[String],
        architecture: Architecture,
    ) -> Result<(String, Vec<u8>)> {
        let failed = |problem: String, log: String| CudaError::Compile {
            source_name: name.to_owned(),
            architecture,
            problem,
            log,
        };
        let string = |text: String| {
            CString::new(text).map_err(|_| failed("a zero byte in its text or options".to_owned(), String::new()))
        };
        let (text, file) = (string(text.to_owned())?, string(format!("{name}.cu"))?);
        let options = options.iter().cloned().map(string).collect::<Result<Vec<_>>>()?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let none = std::ptr::null();

        let mut handle = Handle { nvrtc: self, program: std::ptr::null_mut() };
        // SAFETY: `program` is a place for the handle, the strings end with zeros, and there are no headers.
        let status = unsafe { (self.create)(&raw mut handle.program, text.as_ptr(), file.as_ptr(), 0, none, none) };
        self.check("nvrtcCreateProgram", status)?;
        // SAFETY: there are as many options as is said, all strings that end with zeros.
        let status = unsafe { (self.compile)(handle.program, options.len() as c_int, options.as_ptr()) };
        let log = self.bytes("nvrtcGetProgramLog", handle.program, self.log_size, self.log)?;
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
        if status != 0 {
            let problem = if log.trim().is_empty() { self.describe(status) } else { first_error(&log) };
            return Err(failed(problem, log));
        }
        let code = self.bytes("nvrtcGetCUBIN", handle.program, self.cubin_size, self.cubin)?;
        if code.is_empty() {
            return Err(failed(format!("NVRTC {} makes no machine code for it", self.version), log));
        }
        Ok((log, code))
    }

    /// Something that NVRTC hands out in two steps: its size, then its bytes.
    fn bytes(
        &self,
        call: &'static str,
        program: Program,
        size_of: unsafe extern "C" fn(Program, *mut usize) -> Status,
        get: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    ) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: `size` is a place for the size, and the program is alive.
        self.check(call, unsafe { size_of(program, &raw mut size) })?;
        let mut bytes = vec![0_u8; size];
        if size > 0 {
            // SAFETY: the place is as large as NVRTC asked for.
            self.check(call, unsafe { get(program, bytes.as_mut_ptr().cast()) })?;
        }
        Ok(bytes)
    }

    fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let text = self.describe(status);
        Err(CudaError::Driver { call, on: String::new(), name: format!("NVRTC error {status}"), text })
    }

    fn describe(&self, status: Status) -> String {
        // SAFETY: NVRTC returns a constant string for any number.
        let text = unsafe { (self.error_string)(status) };
        if text.is_null() {
            return format!("error {status}");
        }
        // SAFETY: see above.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}
