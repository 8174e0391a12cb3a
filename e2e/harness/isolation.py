"""The parts of a cluster that the host's kernel keeps: a network namespace and cgroups, made and removed."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from harness import nodeconfig
from harness.debian import need
from harness.errors import HarnessError

PREFIX = "specfleet-"  # then the pid of the run that owns it
NETNS = Path("/run/netns")
CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuset", "memory", "hugetlb", "pids", "io")  # of cgroup v2: those that kubelet looks for


def create_network(name: str) -> None:
    """A namespace without a way out; the node's address sits on a link between two ends in it."""
    _ip("netns", "add", name)
    _ip("-n", name, "link", "set", "lo", "up")
    _ip("-n", name, "link", "add", "node0", "type", "veth", "peer", "name", "node0p")
    _ip("-n", name, "addr", "add", f"{nodeconfig.ADDRESS}/24", "dev", "node0")
    _ip("-n", name, "link", "set", "node0", "up")
    _ip("-n", name, "link", "set", "node0p", "up")
    # A service address must be routable before kube-proxy rewrites it.
    _ip("-n", name, "route", "add", nodeconfig.SERVICES, "dev", "node0")


def _ip(*arguments: str) -> None:
    result = subprocess.run([need("ip", "iproute2"), *arguments], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        hint = "" if "veth" not in arguments else " (the kernel needs veth: modprobe veth)"
        raise HarnessError(f"'ip {' '.join(arguments)}' failed: {result.stderr.strip()}{hint}")


def is_cgroup2() -> bool:
    return (CGROUPS / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    """Where cgroups are made: one place with cgroup v2, one for each hierarchy with v1."""
    if is_cgroup2():
        return [CGROUPS]
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    found = [Path(m[1]) for m in mounts if m[2] in ("cgroup", "cgroup2")]  # both: systemd's hybrid
    if not found:
        raise HarnessError("no cgroups under /sys/fs/cgroup: mount them (in a container: run it privileged)")
    return found


def create_cgroups(name: str) -> None:
    if is_cgroup2():
        _enable_controllers()
    for hierarchy in hierarchies():
        _make_cgroup(hierarchy / name)


def join_cgroup(name: str) -> None:
    """Move this process into the cluster's cgroup `system`, beside the pods."""
    for hierarchy in hierarchies():
        group = hierarchy / name / "system"
        _make_cgroup(group)
        (group / "cgroup.procs").write_text(str(os.getpid()))


def _make_cgroup(group: Path) -> None:
    """A cpuset of v1 starts empty, and takes no process until it is filled."""
    try:
        group.mkdir(exist_ok=True)
    except OSError as error:
        what = f"no cgroup can be made at {group}: {error.strerror}"
        raise HarnessError(f"{what} (in a container: run it privileged)") from None
    if not is_cgroup2():
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (group / file).exists():
                (group / file).write_text((group.parent / file).read_text())


def _enable_controllers() -> None:
    available = (CGROUPS / "cgroup.controllers").read_text().split()
    for controller in set(CONTROLLERS).intersection(available):
        try:
            (CGROUPS / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError as error:
            what = f"the cgroup controller '{controller}' cannot be enabled in {CGROUPS}: {error.strerror}"
            raise HarnessError(f"{what} (in a container: move its processes to a sub-group first)") from None


def remove(name: str) -> None:
    """Network namespace and cgroups; harmless when they are gone."""
    if (NETNS / name).exists():
        _ip("netns", "del", name)
    for hierarchy in hierarchies():
        _remove_cgroup(hierarchy / name)


def _remove_cgroup(group: Path) -> None:
    end = time.monotonic() + 10
    while group.is_dir():
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):  # a process in it is still ending, or it is gone
                _kill_all(Path(folder))
                os.rmdir(folder)
        if time.monotonic() > end:
            raise HarnessError(f"the cgroup {group} still has processes")
        time.sleep(0.02)


def _kill_all(group: Path) -> None:
    """There is one only when an interrupt came between the start of the cluster and our note of it."""
    for pid in (group / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def stale() -> Iterator[str]:
    """Names left by runs that are dead (killed before they could clean up)."""
    places = [NETNS, *hierarchies()]
    names = {path.name for place in places for path in place.glob(f"{PREFIX}*")}
    for name in sorted(names):
        if not is_alive(name.removeprefix(PREFIX)):
            yield name


def is_alive(pid: str) -> bool:
    """Whether it is a process; a name that is no pid belongs to somebody else, and is as good as alive."""
    return not pid.isdecimal() or Path("/proc", pid).exists()
