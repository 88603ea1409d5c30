//! What machine code says of a kernel: how many parameters it has, and for how many threads it was made. The driver says the
//! size of each parameter, but not their number, and asking for one too many is an error that debugging tools count.
//!
//! The code is an ELF file with little-endian 64-bit headers. Section `.nv.info.<kernel>` is a list of attributes: a byte
//! for the form (1: no value, 2 and 3: a value of 16 bits, 4: as many bytes as those 16 bits say), a byte for the
//! attribute, 16 bits. Observed with NVRTC 12.8 to 13.5, not documented: whatever looks otherwise has no number.

/// One parameter: 12 bytes.
const PARAMETER: u8 = 0x17;
/// The size of all parameters together.
const ALL_PARAMETERS: u8 = 0x19;
/// The most threads of a block (`__launch_bounds__`): 12 bytes, three sides.
const MOST_THREADS: u8 = 0x05;

/// The number of parameters of `kernel`, if the file says so in a way that is understood.
pub(super) fn parameter_count(code: &[u8], kernel: &str) -> Option<usize> {
    let (mut count, mut has_size) = (0, false);
    each_attribute(code, kernel, &mut |attribute, value| {
        count += usize::from(attribute == PARAMETER && value.len() == 12);
        has_size |= attribute == ALL_PARAMETERS;
    })?;
    // Both or neither: else this is not the list that we know.
    (has_size == (count > 0)).then_some(count)
}

/// The most threads of a block of `kernel`, if the file says so in a way that is understood.
pub(super) fn most_threads(code: &[u8], kernel: &str) -> Option<u32> {
    let mut most = None;
    each_attribute(code, kernel, &mut |attribute, value| {
        if attribute == MOST_THREADS && value.len() == 12 {
            most = [0, 4, 8].iter().try_fold(1_u64, |product, &at| product.checked_mul(number(value, at, 4)?));
        }
    })?;
    most.and_then(|most| u32::try_from(most).ok())
}

/// Calls `take` with the number and the value of each attribute; `None` if this is not the list that we know.
fn each_attribute(code: &[u8], kernel: &str, take: &mut dyn FnMut(u8, &[u8])) -> Option<()> {
    let mut rest = section(code, &format!(".nv.info.{kernel}"))?;
    while !rest.is_empty() {
        let &[form, attribute, low, high] = rest.first_chunk()?;
        rest = &rest[4..];
        let length = match form {
            4 => usize::from(u16::from_le_bytes([low, high])),
            1..4 => 0,
            _ => return None,
        };
        take(attribute, rest.get(..length)?);
        rest = &rest[length..];
    }
    Some(())
}

/// The contents of a section.
fn section<'a>(code: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let headers = usize::try_from(number(code, 40, 8)?).ok()?;
    let (size, count, names) = (number(code, 58, 2)?, number(code, 60, 2)?, number(code, 62, 2)?);
    let header = |index: u64| {
        let offset = headers.checked_add(usize::try_from(index.checked_mul(size)?).ok()?)?;
        code.get(offset..offset.checked_add(64)?)
    };
    let contents = |header: &[u8]| {
        let offset = usize::try_from(number(header, 24, 8)?).ok()?;
        let length = usize::try_from(number(header, 32, 8)?).ok()?;
        code.get(offset..offset.checked_add(length)?)
    };
    let names = contents(header(names)?)?;
    (0..count).find_map(|index| {
        let header = header(index)?;
        let found = names.get(usize::try_from(number(header, 0, 4)?).ok()?..)?;
        let is_it = found.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0));
        is_it.then(|| contents(header)).flatten()
    })
}

/// The little-endian number of `length` bytes at `offset`.
fn number(bytes: &[u8], offset: usize, length: usize) -> Option<u64> {
    let mut number = [0; 8];
    number[..length].copy_from_slice(bytes.get(offset..offset.checked_add(length)?)?);
    Some(u64::from_le_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with two sections: the names, and `info` as `.nv.info.k`.
    fn file(info: &[u8]) -> Vec<u8> {
        let names = b"\0.nv.info.k\0";
        let mut code = vec![0; 64];
        code[40..48].copy_from_slice(&64_u64.to_le_bytes());
        code[58..64].copy_from_slice(&[64, 0, 2, 0, 0, 0]);
        for (name, offset, length) in [(0_u32, 192, names.len()), (1, 192 + names.len(), info.len())] {
            let mut header = [0; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[24..32].copy_from_slice(&(offset as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(length as u64).to_le_bytes());
            code.extend_from_slice(&header);
        }
        code.extend_from_slice(names);
        code.extend_from_slice(info);
        code
    }

    #[test]
    fn parameters_are_counted_and_what_is_not_understood_has_no_number() {
        let parameter = [[4, PARAMETER, 12, 0].as_slice(), &[0; 12]].concat();
        let size = [3, ALL_PARAMETERS, 16, 0];
        let two = [parameter.as_slice(), &parameter, &size].concat();
        assert_eq!(parameter_count(&file(&two), "k"), Some(2));
        assert_eq!(parameter_count(&file(&[3, 0x1b, 255, 0]), "k"), Some(0));
        assert_eq!(parameter_count(&file(&two), "other"), None);
        assert_eq!(parameter_count(&file(&parameter), "k"), None);
        let bound = [[4, MOST_THREADS, 12, 0, 32, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0].as_slice(), &two].concat();
        assert_eq!((most_threads(&file(&bound), "k"), parameter_count(&file(&bound), "k")), (Some(256), Some(2)));
        assert_eq!((most_threads(&file(&two), "k"), most_threads(&file(&bound[..9]), "k")), (None, None));
        assert_eq!(parameter_count(&file(&[9, 0, 0, 0]), "k"), None);
        let whole = file(&two);
        for length in 0..whole.len() {
            assert_eq!(parameter_count(&whole[..length], "k"), None, "cut to {length}");
        }
        for index in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[index] ^= 0xff;
            // Any answer will do, as long as there is one.
            let _ = (parameter_count(&damaged, "k"), most_threads(&damaged, "k"));
        }
    }
}
