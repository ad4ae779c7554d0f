//! The targets of a release, and their names in each package format.

/// The newest glibc whose symbols the glibc build may need: Ubuntu 22.04 has 2.35. It is linked against 2.31, of Debian 11.
pub(crate) const GLIBC_MAX: (u32, u32) = (2, 35);

/// A processor architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Arch {
    /// x86-64
    X86_64,
    /// 64-bit Arm
    Aarch64,
}

/// A C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Libc {
    /// musl, linked statically.
    Musl,
    /// glibc, linked dynamically.
    Glibc,
}

/// A target that packages are built for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The name that rustc uses.
    pub(crate) triple: &'static str,
    /// The name that cargo-zigbuild uses: with the version of glibc that is linked against.
    pub(crate) zig: &'static str,
    /// The processor.
    pub(crate) arch: Arch,
    /// The C library.
    pub(crate) libc: Libc,
    /// True if it is built unless targets are named.
    pub(crate) default: bool,
}

/// All targets, the default ones first.
pub(crate) const TARGETS: &[Target] = &[
    Target {
        triple: "x86_64-unknown-linux-musl",
        zig: "x86_64-unknown-linux-musl",
        arch: Arch::X86_64,
        libc: Libc::Musl,
        default: true,
    },
    Target {
        triple: "x86_64-unknown-linux-gnu",
        zig: "x86_64-unknown-linux-gnu.2.31",
        arch: Arch::X86_64,
        libc: Libc::Glibc,
        default: true,
    },
    Target {
        triple: "aarch64-unknown-linux-musl",
        zig: "aarch64-unknown-linux-musl",
        arch: Arch::Aarch64,
        libc: Libc::Musl,
        default: true,
    },
    Target {
        triple: "aarch64-unknown-linux-gnu",
        zig: "aarch64-unknown-linux-gnu.2.31",
        arch: Arch::Aarch64,
        libc: Libc::Glibc,
        default: false,
    },
];

impl Target {
    /// Returns the target with this name.
    pub(crate) fn named(triple: &str) -> Result<&'static Target, String> {
        TARGETS
            .iter()
            .find(|target| target.triple == triple)
            .ok_or_else(|| {
                let names: Vec<&str> = TARGETS.iter().map(|target| target.triple).collect();
                format!("expected a target among {}, found `{triple}`", names.join(", "))
            })
    }
}

impl Arch {
    /// Returns the name in Go, which nfpm and container images use.
    pub(crate) fn go_name(self) -> &'static str {
        match self {
            Arch::X86_64 => "amd64",
            Arch::Aarch64 => "arm64",
        }
    }

    /// Returns `e_machine` of the ELF header.
    pub(crate) fn elf_machine(self) -> u16 {
        match self {
            Arch::X86_64 => object::elf::EM_X86_64.0,
            Arch::Aarch64 => object::elf::EM_AARCH64.0,
        }
    }

    /// Returns whether this machine runs programs of the architecture.
    pub(crate) fn runs_here(self) -> bool {
        match self {
            Arch::X86_64 => cfg!(target_arch = "x86_64"),
            Arch::Aarch64 => cfg!(target_arch = "aarch64"),
        }
    }
}
