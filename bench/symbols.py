"""A program's symbols in a file of their own, as packages ship them.

Must not know how the program was built. Uses rustc's own objcopy, else that of binutils.
"""

import os
import pathlib
import shutil
import subprocess

import server as servers


class SymbolsError(Exception):
    """The symbols could not be split; the text says why."""


def objcopy():
    """The path of objcopy, and the folder of its libraries."""
    done = subprocess.run(["rustc", "--print", "sysroot"], cwd=servers.REPO, capture_output=True, text=True, check=True)
    root = pathlib.Path(done.stdout.strip())
    found = [*root.glob("lib/rustlib/*/bin/rust-objcopy"), *filter(None, map(shutil.which, ("llvm-objcopy", "objcopy")))]
    if not found:
        raise SymbolsError("expected rust-objcopy in rustc's folder, llvm-objcopy or objcopy, found none: apt-get install binutils")
    return str(found[0]), root / "lib"


def split(program, folder):
    """Copies `program` to `folder` without its symbols, and these to NAME.debug beside it. Returns both paths.

    `ringmain profile`, gdb and perf find the second by the build ID or by the link in the first, beside it, in `.debug` or below
    /usr/lib/debug.
    """
    (tool, libraries), program, folder = objcopy(), pathlib.Path(program), pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stripped, debug = folder / program.name, folder / f"{program.name}.debug"
    whole = folder / f"{program.name}.whole"
    shutil.copy2(program, whole)
    try:
        # The link holds the name and the checksum of the file, which must exist by then.
        for words in ([tool, "--only-keep-debug", whole, debug], [tool, "--strip-all", f"--add-gnu-debuglink={debug}", whole, stripped]):
            done = subprocess.run(list(map(str, words)), env={**os.environ, "LD_LIBRARY_PATH": str(libraries)}, capture_output=True,
                                  text=True, check=False)
            if done.returncode:
                raise SymbolsError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    finally:
        os.unlink(whole)
    os.chmod(debug, 0o644)
    return stripped, debug
