"""Image layers: Debian's Python, packages from PyPI for it, code; each cached under what it is made of."""

import contextlib
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from harness import cache, debian, oci
from harness.errors import HarnessError, say

PACKAGES = ("python3", "busybox-static", "libstdc++6")  # the last for RE2
# What only modules need that nothing of ours imports (curses, dbm, readline, sqlite3, nis), and package managers.
SKIP = (
    r"dpkg|gcc-\d+-base|libnsl2|libdb5\..*|libreadline.*|libncurses.*|libtinfo6|libsqlite3-0|media-types|tzdata|netbase"
)
UNUSED = ("idlelib", "lib2to3", "pydoc_data", "ensurepip", "turtledemo", "tkinter", "test", "curses", "sqlite3", "dbm")
# The operator calls the API by path, with plain dicts, over kubernetes.aio: it never loads the client's generated
# modules, which are nine tenths of that package.
UNUSED_MODULES = re.compile(r"kubernetes/(aio/)?client/(api/.*_api|models/.*\d.*)\.py")
SITE = "usr/lib/python3/dist-packages"
NONROOT = "65532"
USERS = f"root:x:0:0:root:/root:/bin/sh\nnonroot:x:{NONROOT}:{NONROOT}::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
GROUPS = f"root:x:0:\nnonroot:x:{NONROOT}:\nnogroup:x:65534:\n"


def layer(kind: str, parts: Iterable[bytes | str | Path], fill: Callable[[Path], None]) -> Path:
    """The archive of the files that `fill` puts into an empty folder, cached by `parts` and this recipe."""

    def write(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as root:
            fill(Path(root))
            oci.write_layer(Path(root), folder / "layer.tar")

    return cache.folder(f"layer-{kind}", cache.key([Path(__file__), *parts]), write) / "layer.tar"


def run(command: list[str], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    result = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise HarnessError(f"'{' '.join(command)}' failed: {(result.stderr or result.stdout).strip()}")
    return result.stdout


@functools.cache
def python() -> Path:
    """Debian's Python and busybox (a shell, env, ls ...), with byte code."""
    return layer("python", [debian.release()], _fill_python)


def _fill_python(root: Path) -> None:
    packages = debian.closure(PACKAGES, SKIP)
    say(f"unpacking {len(packages)} Debian packages for the Python image")
    debian.unpack(packages, root)
    _merge_usr(root)
    for path in [*root.glob("usr/lib/*/gconv"), *root.glob("usr/share"), *root.glob("var"), *root.glob("etc")]:
        shutil.rmtree(path)
    for name in UNUSED:
        for path in root.glob(f"usr/lib/python3.*/{name}"):
            shutil.rmtree(path)
    for name in ("etc", "root", "proc", "sys", "dev", "run", "tmp"):
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text(USERS)
    (root / "etc/group").write_text(GROUPS)
    _link_busybox(root)
    compile_all(root, root, *root.glob("usr/lib/python3.*"))


def _merge_usr(root: Path) -> None:
    """/bin, /lib ... become links into /usr: old packages have files in both, new ones only there."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(exist_ok=True)
        if (root / name).is_dir():
            shutil.copytree(root / name, root / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(root / name)
        (root / name).symlink_to(f"usr/{name}")


def _link_busybox(root: Path) -> None:
    for applet in run([str(root / "usr/bin/busybox"), "--list"]).split():
        if not any((root / f"usr/{folder}/{applet}").exists() for folder in ("bin", "sbin")):
            (root / f"usr/bin/{applet}").symlink_to("busybox")


def packages(kind: str, names: Iterable[str], lock: Path) -> Path:
    """The packages and what they require, for the image's Python, at the versions of the lock file if there is one."""
    wanted = sorted(names)
    constraints = [lock] if lock.exists() else []

    def fill(root: Path) -> None:
        with unpacked_python() as base:
            version = program(base).name.removeprefix("python")
            say(f"installing {', '.join(wanted)} for the {kind} image (Python {version})")
            site = root / SITE
            pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(site), "--no-compile"]
            pip += ["--only-binary=:all:", "--implementation=cp", f"--python-version={version}"]
            run([*pip, *(f"--constraint={path}" for path in constraints), *wanted])
            for path in [*site.glob("**/tests"), *site.glob("**/__pycache__"), *site.glob("bin")]:
                shutil.rmtree(path)
            for path in site.glob("kubernetes/**/*.py"):
                if UNUSED_MODULES.fullmatch(str(path.relative_to(site))):
                    path.unlink()
            compile_all(base, root, site)

    return layer(f"packages-{kind}", [*constraints, *wanted, python().parent.name], fill)


def code(kind: str, parts: Iterable[bytes | str | Path], fill: Callable[[Path], None]) -> Path:
    """A layer of Python sources of our own, with byte code."""

    def fill_and_compile(root: Path) -> None:
        fill(root)
        with unpacked_python() as base:
            compile_all(base, root, root)

    return layer(kind, [*parts, python().parent.name], fill_and_compile)


@contextlib.contextmanager
def unpacked_python() -> Iterator[Path]:
    """A folder with the files of the image's Python, for as long as the context lasts."""
    with tempfile.TemporaryDirectory() as folder:
        run(["tar", "-xf", str(python()), "-C", folder])
        yield Path(folder)


def program(base: Path) -> Path:
    """The Python of an unpacked image: its name has the minor version."""
    (program,) = base.glob("usr/bin/python3.*[0-9]")
    return program


def compile_all(base: Path, root: Path, *folders: Path) -> None:
    """Byte code beside the sources of `root`, by the image's own Python (unpacked in `base`), never checked again."""
    (loader,) = base.glob("usr/lib/*/ld-linux*.so.*")
    command = [str(loader), "--library-path", str(loader.parent), str(program(base)), "-m", "compileall", "-q"]
    command += ["--invalidation-mode=unchecked-hash", "-s", str(root), "-p", "/", *map(str, folders)]
    run(command, env={"PYTHONHOME": str(base / "usr"), "PYTHONHASHSEED": "0", "PATH": os.environ["PATH"]})
