// SPDX-License-Identifier: GPL-2.0

//! A plugin of QEMU's emulator that counts how often each block of kernel code runs, and what runs
//! after it, between the two marks of `selftests/modules/rpcrdma_test_cost.c`.
//!
//! Argument `out=FOLDER` says where each counted stretch becomes a file, named by its number from
//! 0. A line of it is a translation block that ran:
//!
//! ```text
//! ADDRESS INSTRUCTIONS RUNS [NEXT:TIMES]...
//! ```
//!
//! The first two are those of the block, the addresses in hexadecimal. A repeated string
//! instruction is a block of its own from its second turn on, which has no instructions here: a
//! processor counts it once.
//!
//! The machine has one CPU, on whose thread everything here runs.

use std::{
    cell::{Cell, RefCell, UnsafeCell},
    collections::HashMap,
    ffi::{c_char, c_int, c_uint, c_void, CStr},
    fmt::Write as _,
    fs,
    path::PathBuf,
    ptr,
};

/// Opaque: a translation block while it is being translated.
#[repr(C)]
struct Tb {
    opaque: [u8; 0],
}

/// Opaque: an instruction of such a block.
#[repr(C)]
struct Insn {
    opaque: [u8; 0],
}

/// What QEMU tells about itself (`struct qemu_info_t` of qemu-plugin.h), as far as it is used.
#[repr(C)]
pub struct Info {
    target_name: *const c_char,
    version_min: c_int,
    version: c_int,
    system_emulation: bool,
    cpus: c_int,
}

type Exec = extern "C" fn(cpu: c_uint, data: *mut c_void);
type Translate = extern "C" fn(id: u64, tb: *mut Tb);

/// `QEMU_PLUGIN_CB_NO_REGS`.
const NO_REGISTERS: c_int = 0;

extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, callback: Translate);
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        tb: *mut Tb,
        callback: Exec,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        callback: Exec,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_tb_n_insns(tb: *const Tb) -> usize;
    fn qemu_plugin_tb_vaddr(tb: *const Tb) -> u64;
    fn qemu_plugin_tb_get_insn(tb: *const Tb, index: usize) -> *mut Insn;
    fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    /// Before version 3 it ignores the last two and returns a pointer to the bytes; from there on
    /// it copies them and returns how many.
    fn qemu_plugin_insn_data(insn: *const Insn, to: *mut u8, size: usize) -> usize;
}

/// The version of the plugin interface that this is built for. No one version is good for all
/// releases of QEMU; what differs is not used, or told apart at run time.
#[no_mangle]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: c_int = if cfg!(first_interface) { 1 } else { 2 };

/// A translation block that was seen.
struct Block {
    address: u64,
    instructions: usize,
    runs: Cell<u64>,
    /// Blocks that ran next, and how often.
    next: RefCell<Vec<(*const Block, u64)>>,
}

struct Counter {
    out: PathBuf,
    copies_data: bool,
    blocks: RefCell<HashMap<(u64, usize), Box<Block>>>,
    last: Cell<*const Block>,
    counting: Cell<bool>,
    stretches: Cell<usize>,
}

struct Global(UnsafeCell<Option<Counter>>);

// SAFETY: It is written once, before the machine starts, and used by the thread of its only CPU
// afterwards.
unsafe impl Sync for Global {}

static COUNTER: Global = Global(UnsafeCell::new(None));

fn counter() -> &'static Counter {
    // SAFETY: See `Global`; nothing writes any more.
    unsafe { (*COUNTER.0.get()).as_ref() }.expect("installed")
}

/// The first bytes of an instruction.
fn bytes(insn: *const Insn) -> [u8; 8] {
    let mut bytes = [0; 8];
    // SAFETY: `insn` is valid during its translation, and has as many bytes as it says.
    unsafe {
        let size = qemu_plugin_insn_size(insn).min(bytes.len());
        let data = qemu_plugin_insn_data(insn, bytes.as_mut_ptr(), size);
        if !counter().copies_data {
            ptr::copy_nonoverlapping(data as *const u8, bytes.as_mut_ptr(), size);
        }
    }
    bytes
}

fn is_repeated(bytes: [u8; 8]) -> bool {
    let is_string = |opcode| matches!(opcode, 0xa4..=0xa7 | 0xaa..=0xaf);
    match bytes {
        [0xf2 | 0xf3, 0x40..=0x4f, opcode, ..] => is_string(opcode),
        [0xf2 | 0xf3, opcode, ..] => is_string(opcode),
        _ => false,
    }
}

extern "C" fn translate(_id: u64, tb: *mut Tb) {
    // SAFETY: `tb` is valid during the call, and so are its instructions.
    unsafe {
        let address = qemu_plugin_tb_vaddr(tb);
        // Programs are below.
        if address >> 63 == 0 {
            return;
        }
        let count = qemu_plugin_tb_n_insns(tb);
        let mut blocks = counter().blocks.borrow_mut();
        let block = blocks.entry((address, count)).or_insert_with(|| {
            let repeated = count == 1 && is_repeated(bytes(qemu_plugin_tb_get_insn(tb, 0)));
            Box::new(Block {
                address,
                instructions: if repeated { 0 } else { count },
                runs: Cell::new(0),
                next: RefCell::new(Vec::new()),
            })
        });
        let block: *const Block = &**block;
        qemu_plugin_register_vcpu_tb_exec_cb(tb, run, NO_REGISTERS, block as *mut c_void);
        for index in 0..count {
            let insn = qemu_plugin_tb_get_insn(tb, index);
            if let [0x0f, 0x1f, 0x80, which @ (1 | 2), 0x00, 0x49, 0x20, _] = bytes(insn) {
                let callback = if which == 1 { begin } else { end };
                qemu_plugin_register_vcpu_insn_exec_cb(
                    insn,
                    callback,
                    NO_REGISTERS,
                    ptr::null_mut(),
                );
            }
        }
    }
}

extern "C" fn run(_cpu: c_uint, data: *mut c_void) {
    let counter = counter();
    if !counter.counting.get() {
        return;
    }
    let block: *const Block = data.cast();
    // SAFETY: Blocks are never freed.
    let (current, last) = unsafe { (&*block, counter.last.get().as_ref()) };
    current.runs.set(current.runs.get() + 1);
    if let Some(last) = last {
        let mut next = last.next.borrow_mut();
        match next.iter_mut().find(|(next, _)| *next == block) {
            Some((_, times)) => *times += 1,
            None => next.push((block, 1)),
        }
    }
    counter.last.set(block);
}

extern "C" fn begin(_cpu: c_uint, _data: *mut c_void) {
    let counter = counter();
    for block in counter.blocks.borrow().values() {
        block.runs.set(0);
        block.next.borrow_mut().clear();
    }
    counter.last.set(ptr::null());
    counter.counting.set(true);
}

extern "C" fn end(_cpu: c_uint, _data: *mut c_void) {
    let counter = counter();
    counter.counting.set(false);
    let mut text = String::new();
    for block in counter.blocks.borrow().values() {
        if block.runs.get() == 0 {
            continue;
        }
        let _ = write!(
            text,
            "{:x} {} {}",
            block.address,
            block.instructions,
            block.runs.get()
        );
        for (next, times) in block.next.borrow().iter() {
            // SAFETY: Blocks are never freed.
            let _ = write!(text, " {:x}:{times}", unsafe { (**next).address });
        }
        text.push('\n');
    }
    let number = counter.stretches.get();
    counter.stretches.set(number + 1);
    let path = counter.out.join(number.to_string());
    if let Err(error) = fs::write(&path, text) {
        eprintln!("{}: {error}", path.display());
    }
}

/// Called by QEMU when it loads the plugin.
///
/// # Safety
///
/// As qemu-plugin.h says.
#[no_mangle]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    let mut out = None;
    for index in 0..usize::try_from(argc).unwrap_or(0) {
        // SAFETY: QEMU passes `argc` strings.
        let argument = unsafe { CStr::from_ptr(*argv.add(index)) };
        if let Some(folder) = argument.to_str().ok().and_then(|a| a.strip_prefix("out=")) {
            out = Some(PathBuf::from(folder));
        }
    }
    // SAFETY: QEMU passes a valid structure.
    let info = unsafe { &*info };
    let (Some(out), true, 1) = (out, info.system_emulation, info.cpus) else {
        eprintln!("count: wants out=FOLDER and a machine with one CPU");
        return -1;
    };
    // SAFETY: See `Global`; the machine has not started.
    unsafe {
        *COUNTER.0.get() = Some(Counter {
            out,
            copies_data: info.version >= 3,
            blocks: RefCell::new(HashMap::new()),
            last: Cell::new(ptr::null()),
            counting: Cell::new(false),
            stretches: Cell::new(0),
        });
        qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    }
    0
}
