"""The operator's flags, read once."""

import argparse
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """`namespaces` empty means every namespace. `resync` is in seconds."""

    namespaces: tuple[str, ...]
    identity: str
    lease_namespace: str
    lease_name: str
    host: str
    port: int
    log_level: str
    log_format: str
    resync: float
    read_nodes: bool = False
    probing: bool = True


def parse(arguments: Sequence[str] | None = None) -> Settings:
    """Flags, with what the downward API tells as defaults. Exits with a message on a wrong flag."""
    parser = argparse.ArgumentParser(prog="specfleet-operator", description="Runs the specfleet operator.")
    parser.add_argument("--watch-namespace", action="append", default=[], help="repeat for several; default: all")
    parser.add_argument("--listen", default="0.0.0.0:8080", help="HOST:PORT of /healthz, /readyz and /metrics")
    parser.add_argument("--lease-namespace", default=os.environ.get("POD_NAMESPACE", "default"))
    parser.add_argument("--lease-name", default="specfleet-operator")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    parser.add_argument("--log-format", default="text", choices=("text", "json"))
    parser.add_argument("--read-nodes", action="store_true", help="name nodes and free GPUs where pods wait for one")
    parser.add_argument("--no-probes", action="store_true", help="ask pods no prompts: nobody looks at their answers")
    parser.add_argument("--resync-seconds", type=int, default=600, help="between two LISTs of everything; default: 600")
    flags = parser.parse_args(arguments)
    host, _, port = flags.listen.rpartition(":")
    if not port.isdigit():
        parser.error(f"--listen {flags.listen!r}: write HOST:PORT")
    if flags.resync_seconds < 1:
        parser.error(f"--resync-seconds {flags.resync_seconds}: must be at least 1")
    return Settings(
        namespaces=tuple(flags.watch_namespace),
        identity=os.environ.get("POD_NAME", f"{socket.gethostname()}-{os.getpid()}"),
        lease_namespace=flags.lease_namespace,
        lease_name=flags.lease_name,
        host=host or "0.0.0.0",
        port=int(port),
        log_level=flags.log_level,
        log_format=flags.log_format,
        resync=float(flags.resync_seconds),
        read_nodes=flags.read_nodes,
        probing=not flags.no_probes,
    )
