//! For x86-64 with the System V calling convention.

/// The code of the [direct](crate::direct) path of launches.
macro_rules! jump {
    ($slow:path, $symbols:path, $offset:expr) => {
        core::arch::naked_asm!(
            "endbr64",
            "mov rax, qword ptr [rip + {lease}]",
            "mov r11, qword ptr [rip + tranche_thread@GOTTPOFF]",
            "mov eax, dword ptr [rax]",
            "cmp eax, dword ptr fs:[r11]",
            "jne 2f",
            "sub dword ptr fs:[r11 + 4], 1",
            "js 2f",
            "mov rax, qword ptr [rip + {symbols} + {offset}]",
            "test rax, rax",
            "jz 2f",
            "jmp rax",
            "2:",
            "jmp {slow}",
            lease = sym $crate::direct::LEASE,
            symbols = sym $symbols,
            offset = const $offset,
            slow = sym $slow,
        )
    };
}

/// The code of the [direct](crate::direct) path of copies and fills.
macro_rules! pass {
    ($slow:path, $symbols:path, $offset:expr) => {
        core::arch::naked_asm!(
            "endbr64",
            "mov rax, qword ptr [rip + {transfers}]",
            "cmp dword ptr [rax], 0",
            "jne 2f",
            "mov rax, qword ptr [rip + {symbols} + {offset}]",
            "test rax, rax",
            "jz 2f",
            "jmp rax",
            "2:",
            "jmp {slow}",
            transfers = sym $crate::direct::TRANSFERS,
            symbols = sym $symbols,
            offset = const $offset,
            slow = sym $slow,
        )
    };
}

/// An entry stub for functions of at most three arguments.
macro_rules! door {
    ($filter:path) => {
        core::arch::naked_asm!(
            "endbr64",
            // Three pushes align the stack for the call.
            "push rdi",
            "push rsi",
            "push rdx",
            "call {filter}",
            "mov r11, rdx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "test r11, r11",
            "jnz 2f",
            "ret",
            "2:",
            "jmp rax",
            filter = sym $filter,
        )
    };
}

#[cfg(not(feature = "preload"))]
macro_rules! loader {
    () => {
        core::arch::global_asm!(
            ".symver tranche_dlopen, dlopen@GLIBC_2.2.5",
            ".symver tranche_dlinfo, dlinfo@GLIBC_2.3.3",
        );
    };
}

#[cfg(panic = "abort")]
macro_rules! ends {
    () => {
        "ud2"
    };
}

/// Address of the thread's words.
pub(crate) fn storage() -> *const u8 {
    let address: *const u8;
    // SAFETY: the thread pointer's first word is its own address, and the offset is that of the words in this
    // thread's storage. Neither memory nor flags that anything relies on are changed.
    unsafe {
        core::arch::asm!(
            "mov {address}, qword ptr fs:[0]",
            "add {address}, qword ptr [rip + tranche_thread@GOTTPOFF]",
            address = out(reg) address,
            options(pure, readonly, nostack),
        );
    }
    address
}
