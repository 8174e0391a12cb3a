#!/usr/bin/env python3
"""Makes do-nothing stand-ins for the NVIDIA libraries that PyPI's torch links to: stubs.py FOLDER_OF_TORCH_LIBRARIES

PyPI's torch for Linux is the CUDA build. Its CPU half works without a GPU, but the loader wants every library that it
names: 2 GB of wheels. All that it wants of them is the names, since torch binds lazily and finds no device. Every
function here returns 100, which is cudaErrorNoDevice.
"""

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

DRIVER = "libcuda.so"  # only opened on demand: its absence is how torch sees that there is no GPU
CUDA_NAME = re.compile(r"(cu|nv|nccl)[A-Za-z]")
# Libraries whose symbols carry no version, by the beginning of the symbols that torch takes from them.
UNVERSIONED = {
    "nccl": "libnccl.so",
    "cuFile": "libcufile.so",
    "curand": "libcurand.so",
    "cufft": "libcufft.so",
    "cusparseLt": "libcusparseLt.so",
    "nvshmem": "libnvshmem_host.so",
}
BODIES = {
    "cudaGetDeviceCount": "int %s(int *n) { if (n) *n = 0; return 100; }",
    "cudaDriverGetVersion": "int %s(int *n) { if (n) *n = 0; return 0; }",
    "cudaRuntimeGetVersion": "int %s(int *n) { if (n) *n = 13000; return 0; }",
    "__cudaRegisterFatBinary": "void *%s(void) { static void *handle[4]; return handle; }",
}
TEXT = re.compile(r"ErrorString|ErrorName|StatusString|LastErrorStr|StatusName|ResultString|ncclGetLastError")


@dataclass(slots=True)
class Wanted:
    """What torch's libraries want of libraries that are not there: symbols by version, "" for those without."""

    symbols: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def read(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def missing(libraries: list[Path]) -> dict[str, Wanted]:
    """Names of the libraries that the loader would not find, with what is wanted of each."""
    needed = {name for path in libraries for name in re.findall(r"NEEDED.*\[(.*)\]", read("readelf", "-dW", str(path)))}
    absent = {
        name for name in needed - {path.name for path in libraries} if name.startswith(("libcu", "libnv", "libnccl"))
    }
    found = {name: Wanted() for name in absent if not name.startswith(DRIVER)}
    defined = {
        line.split()[-1].partition("@")[0]
        for path in libraries
        for line in read("nm", "-D", "--defined-only", str(path)).splitlines()
    }
    for path in libraries:
        owners = versions(path)
        for line in read("nm", "-D", "--undefined-only", "--with-symbol-versions", str(path)).splitlines():
            symbol, _, version = line.split()[-1].replace("@@", "@").partition("@")
            owner = owners.get(version) if version else unversioned_owner(symbol, found, defined)
            if owner in found:
                found[owner].symbols[version].add(symbol)
    return found


def versions(path: Path) -> dict[str, str]:
    """Library by the version of a symbol."""
    owners, current = {}, ""
    for line in read("readelf", "-VW", str(path)).splitlines():
        if match := re.search(r"File: (\S+)", line):
            current = match.group(1)
        if match := re.search(r"Name: (\S+)\s+Flags", line):
            owners[match.group(1)] = current
    return owners


def unversioned_owner(symbol: str, absent: dict[str, Wanted], defined: set[str]) -> str:
    """The absent library that a symbol comes from by its name, or "" if it is none of CUDA's."""
    if not CUDA_NAME.match(symbol) or symbol in defined:
        return ""
    stem = next((stem for prefix, stem in UNVERSIONED.items() if symbol.startswith(prefix)), None)
    return next((name for name in absent if stem and name.startswith(f"{stem}.")), "")


def body(symbol: str) -> str:
    if symbol in BODIES:
        return BODIES[symbol] % symbol
    if TEXT.search(symbol):
        return f'const char *{symbol}(void) {{ return "no CUDA: a stand-in"; }}'
    return f"long {symbol}(void) {{ return 100; }}"


def build(output: Path, wanted: Wanted) -> None:
    """Compile one stand-in."""
    symbols = sorted(set().union(*wanted.symbols.values()))
    versioned = {version: names for version, names in sorted(wanted.symbols.items()) if version}
    script = "".join(f"{version} {{ global: {'; '.join(sorted(names))}; }};\n" for version, names in versioned.items())
    with tempfile.TemporaryDirectory() as folder:
        source, exports = Path(folder, "stub.c"), Path(folder, "stub.map")
        source.write_text("\n".join(map(body, symbols)) + "\n")
        exports.write_text(script)
        command = ["cc", "-shared", "-fPIC", "-w", "-fno-builtin", "-O1", "-nostdlib", f"-Wl,-soname,{output.name}"]
        command += [f"-Wl,--version-script={exports}"] if script else []
        subprocess.run([*command, "-o", str(output), str(source)], check=True)


def main(folder: Path) -> None:
    libraries = sorted(path for path in folder.iterdir() if re.search(r"\.so(\.|$)", path.name))
    stubs = missing(libraries)
    for name, wanted in sorted(stubs.items()):
        build(folder / name, wanted)
    total = sum(len(names) for wanted in stubs.values() for names in wanted.symbols.values())
    print(f"{len(stubs)} stand-ins with {total} symbols")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
