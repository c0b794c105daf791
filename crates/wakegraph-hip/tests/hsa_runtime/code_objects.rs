//! Code objects: ELF files with kernels for a GPU, of which the tables are read and the code is not
//! run.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex};

use crate::agents::{Agent, Options, check};
use crate::calls::{hsa, trace};
use crate::host_kernels::HostKernels;
use crate::kernels::{Argument, Kernel};
use crate::message_pack::{self, Value};
use crate::status::{INVALID_ARGUMENT, INVALID_CODE_OBJECT, INVALID_SYMBOL_NAME, OUT_OF_RESOURCES, Status};
use crate::{kernels, memory, pools, raw};

/// An ELF file. Everything is read with bounds.
pub(crate) struct Elf<'a>(&'a [u8]);

/// The fields of a section's header that are needed.
struct Section {
    kind: u32,
    offset: usize,
    size: usize,
    link: usize,
}

/// A symbol of the dynamic table.
struct ElfSymbol {
    name: String,
    address: usize,
    size: usize,
}

impl<'a> Elf<'a> {
    /// The file that begins at this address.
    pub(crate) fn at(address: usize) -> Option<Self> {
        const HEADER: usize = 64;
        let header = Elf(raw_bytes(address, HEADER));
        let sections = header.number(40, 8)? + header.number(58, 2)? * header.number(60, 2)?;
        let programs = header.number(32, 8)? + header.number(54, 2)? * header.number(56, 2)?;
        let is_elf = header.0.starts_with(b"\x7fELF");
        is_elf.then(|| Elf(raw_bytes(address, sections.max(programs) as usize)))
    }

    pub(crate) fn of(bytes: &'a [u8]) -> Option<Self> {
        bytes.starts_with(b"\x7fELF").then_some(Elf(bytes)).filter(|elf| elf.0.len() > 64)
    }

    fn number(&self, at: usize, size: usize) -> Option<u64> {
        let bytes = self.0.get(at..at.checked_add(size)?)?;
        Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// A number that identifies the contents (FNV-1a).
    pub(crate) fn hash(&self) -> u64 {
        let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        self.0.iter().fold(0xcbf2_9ce4_8422_2325, mix)
    }

    fn sections(&self) -> Vec<Section> {
        let (Some(table), Some(size), Some(count)) =
            (self.number(40, 8), self.number(58, 2), self.number(60, 2))
        else {
            return Vec::new();
        };
        let section = |index: u64| {
            let at = (table + index * size) as usize;
            Some(Section {
                kind: self.number(at + 4, 4)? as u32,
                offset: self.number(at + 24, 8)? as usize,
                size: self.number(at + 32, 8)? as usize,
                link: self.number(at + 40, 4)? as usize,
            })
        };
        (0..count).map_while(section).collect()
    }

    /// The segments to load: offset in the file, address, bytes in the file, bytes in memory.
    fn segments(&self) -> Vec<[usize; 4]> {
        const LOAD: u64 = 1;
        let (Some(table), Some(size), Some(count)) =
            (self.number(32, 8), self.number(54, 2), self.number(56, 2))
        else {
            return Vec::new();
        };
        let segment = |index: u64| {
            let at = (table + index * size) as usize;
            if self.number(at, 4)? != LOAD {
                return None;
            }
            let field = |offset| Some(self.number(at + offset, 8)? as usize);
            Some([field(8)?, field(16)?, field(32)?, field(40)?])
        };
        (0..count).filter_map(segment).collect()
    }

    fn symbols(&self) -> Vec<ElfSymbol> {
        const DYNAMIC_SYMBOLS: u32 = 11;
        const OBJECT: u64 = 1;
        let sections = self.sections();
        let Some(table) = sections.iter().find(|section| section.kind == DYNAMIC_SYMBOLS) else {
            return Vec::new();
        };
        let Some(names) = sections.get(table.link) else { return Vec::new() };
        let symbol = |at: usize| {
            if self.number(at + 4, 1)? & 0xf != OBJECT {
                return None;
            }
            let name = self.0.get(names.offset + self.number(at, 4)? as usize..)?;
            let name = name.split(|&byte| byte == 0).next()?;
            Some(ElfSymbol {
                name: String::from_utf8_lossy(name).into_owned(),
                address: self.number(at + 8, 8)? as usize,
                size: self.number(at + 16, 8)? as usize,
            })
        };
        (0..table.size / 24).filter_map(|index| symbol(table.offset + index * 24)).collect()
    }

    /// What the note says of the kernels.
    fn metadata(&self) -> Option<Value> {
        const NOTES: u32 = 7;
        const METADATA: u64 = 32;
        for section in self.sections().iter().filter(|section| section.kind == NOTES) {
            let mut at = section.offset;
            while at + 12 <= section.offset + section.size {
                let (name, size) = (self.number(at, 4)? as usize, self.number(at + 4, 4)? as usize);
                let body = at + 12 + name.next_multiple_of(4);
                if self.number(at + 8, 4)? == METADATA {
                    return message_pack::read(&mut self.0.get(body..body + size)?);
                }
                at = body + size.next_multiple_of(4);
            }
        }
        None
    }

    /// The kernels, without an address.
    pub(crate) fn kernels(&self) -> Vec<Kernel> {
        let metadata = self.metadata();
        let list = metadata.as_ref().and_then(|all| all.get("amdhsa.kernels")).map_or(&[][..], Value::list);
        list.iter().filter_map(kernel).collect()
    }
}

fn kernel(described: &Value) -> Option<Kernel> {
    let number = |key| described.get(key).and_then(Value::number);
    let argument = |value: &Value| {
        Some(Argument {
            name: value.get(".name").and_then(Value::text).unwrap_or_default().to_owned(),
            offset: value.get(".offset")?.number()? as usize,
            size: value.get(".size")?.number()? as usize,
        })
    };
    let arguments = described.get(".args").map_or(&[][..], Value::list);
    Some(Kernel {
        name: described.get(".name")?.text()?.to_owned(),
        symbol: described.get(".symbol")?.text()?.to_owned(),
        arguments: arguments.iter().filter_map(argument).collect(),
        argument_bytes: number(".kernarg_segment_size")? as usize,
        group_bytes: number(".group_segment_fixed_size")? as u32,
        private_bytes: number(".private_segment_fixed_size")? as u32,
        host: None,
    })
}

/// Bytes at an address that the caller has passed.
fn raw_bytes<'a>(address: usize, bytes: usize) -> &'a [u8] {
    // SAFETY: the caller passes the address of an ELF file, whose header says how long it is.
    unsafe { std::slice::from_raw_parts(address as *const u8, bytes) }
}

/// `hsa_executable_t`: code that is loaded.
#[derive(Default)]
struct Executable {
    symbols: Mutex<Vec<Arc<Symbol>>>,
    memory: Mutex<Vec<usize>>,
}

/// `hsa_executable_symbol_t`.
struct Symbol {
    name: String,
    address: usize,
    size: usize,
    kernel: Option<Arc<Kernel>>,
}

fn executable<'a>(handle: usize) -> &'a Executable {
    raw::borrow(handle as *const Executable)
}

/// Copies the segments to memory of the GPU, and finds the kernels.
fn load(executable: &Executable, agent: Agent, address: usize) -> Result<usize, Status> {
    let elf = Elf::at(address).ok_or(INVALID_CODE_OBJECT)?;
    let segments = elf.segments();
    let end = segments.iter().map(|[_, address, _, size]| address + size).max().ok_or(INVALID_CODE_OBJECT)?;
    let base = memory::allocate(end, pools::of_gpu(agent)).ok_or(OUT_OF_RESOURCES)?;
    executable.memory.lock().unwrap().push(base);
    for [offset, to, bytes, _] in segments {
        raw::copy(base + to, address + offset, bytes);
    }
    let mut described = elf.kernels();
    let host = HostKernels::find(elf.hash());
    let mut symbols = executable.symbols.lock().unwrap();
    for symbol in elf.symbols() {
        let at = described.iter().position(|kernel| kernel.symbol == symbol.name);
        let address = base + symbol.address;
        let kernel = at.map(|at| {
            let mut kernel = described.swap_remove(at);
            kernel.host = host.as_ref().and_then(|host| host.get(&kernel.name));
            trace!("kernel {} at {address:#x}, {:?}", kernel.name, kernel.arguments);
            Arc::new(kernel)
        });
        if let Some(kernel) = &kernel {
            kernels::add(address as u64, Arc::clone(kernel));
        }
        symbols.push(Arc::new(Symbol { name: symbol.name, address, size: symbol.size, kernel }));
    }
    Ok(base)
}

hsa! {
    fn hsa_code_object_reader_create_from_memory(code: usize, _bytes: usize, reader: *mut usize) {
        raw::write(reader, code);
        Ok(())
    }

    fn hsa_code_object_reader_destroy(_reader: usize) {
        Ok(())
    }

    fn hsa_executable_create_alt(_profile: u32, _rounding: u32, _options: Options, result: *mut usize) {
        raw::write(result, Box::into_raw(Box::<Executable>::default()) as usize);
        Ok(())
    }

    fn hsa_executable_destroy(handle: usize) {
        // SAFETY: made by `hsa_executable_create_alt`; the caller destroys it once.
        let destroyed = unsafe { Box::from_raw(handle as *mut Executable) };
        for symbol in destroyed.symbols.lock().unwrap().iter() {
            kernels::remove(symbol.address as u64);
        }
        destroyed.memory.lock().unwrap().iter().for_each(|&base| {
            memory::free(base);
        });
        Ok(())
    }

    fn hsa_executable_freeze(_executable: usize, _options: Options) {
        Ok(())
    }

    fn hsa_executable_agent_global_variable_define(
        _executable: usize, _agent: Agent, _name: Options, _address: usize,
    ) {
        Ok(())
    }

    fn hsa_executable_load_agent_code_object(
        handle: usize, agent: Agent, reader: usize, _options: Options, loaded: *mut usize,
    ) {
        let base = load(executable(handle), agent, reader)?;
        if !loaded.is_null() {
            raw::write(loaded, base);
        }
        Ok(())
    }

    fn hsa_executable_get_symbol_by_name(
        handle: usize, name: *const c_char, _agent: *const Agent, symbol: *mut usize,
    ) {
        let name = raw::text(name);
        let symbols = executable(handle).symbols.lock().unwrap();
        let found = symbols.iter().find(|symbol| symbol.name == name).ok_or(INVALID_SYMBOL_NAME)?;
        raw::write(symbol, Arc::as_ptr(found) as usize);
        Ok(())
    }

    fn hsa_executable_iterate_symbols(
        handle: usize, visit: extern "C" fn(usize, usize, *mut c_void) -> Status, data: *mut c_void,
    ) {
        let symbols = executable(handle).symbols.lock().unwrap().clone();
        symbols.iter().try_for_each(|symbol| check(visit(handle, Arc::as_ptr(symbol) as usize, data)))
    }

    fn hsa_executable_symbol_get_info(handle: usize, info: u32, value: *mut c_void) {
        let symbol: &Symbol = raw::borrow(handle as *const Symbol);
        let u32s = |number: u32| raw::write(value.cast(), number);
        let kernel = symbol.kernel.as_ref();
        match info {
            // Kind: a kernel or a variable.
            0x0 => u32s(u32::from(kernel.is_some())),
            0x1 => u32s(symbol.name.len() as u32),
            0x2 => raw::write_text(value.cast(), &symbol.name),
            0x9 => u32s(symbol.size as u32),
            0xa | 0xf => raw::write(value.cast(), false),
            0xb => u32s(kernel.ok_or(INVALID_ARGUMENT)?.argument_bytes as u32),
            0xc => u32s(16),
            0xd => u32s(kernel.ok_or(INVALID_ARGUMENT)?.group_bytes),
            0xe => u32s(kernel.ok_or(INVALID_ARGUMENT)?.private_bytes),
            0x15 | 0x16 => raw::write(value.cast(), symbol.address as u64),
            _ => return Err(INVALID_ARGUMENT),
        }
        Ok(())
    }
}
