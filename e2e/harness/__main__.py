"""`python -m harness`: a cluster to play with, its checks, and its binaries and images made ahead."""

import argparse
import signal
import sys
from types import FrameType
from typing import NoReturn

from harness import binaries, checks, images, node
from harness.cluster import Cluster
from harness.errors import HarnessError


def build(_: argparse.Namespace) -> int:
    for name, make in (("kube", binaries.ensure_kube), ("node", node.ensure_node), ("helm", node.ensure_helm)):
        print(f"{name:5} {make()}")
    return 0


def make_images(_: argparse.Namespace) -> int:
    for kind in images.RECIPES:
        archive = images.build(kind)
        print(f"{images.reference(kind):32} {archive.stat().st_size / 1e6:6.1f} MB  {archive}")
    return 0


def up(arguments: argparse.Namespace) -> int:
    archives = [images.build(kind) for kind in images.RECIPES if kind != "pause"]
    with Cluster(gpus=arguments.gpus, images=archives) as cluster:
        prefix = " ".join(cluster.exec_prefix)
        print(f"\nIn another terminal, as root:\n  alias kubectl='{prefix} {cluster.settings.kube}/kubectl'")
        print(f"  export KUBECONFIG={cluster.kubeconfig} KUBECTL={cluster.settings.kube}/kubectl\n  kubectl get nodes")
        print(f"Logs: {cluster.state}/log. Reach pods and services with: {prefix} COMMAND")
        print("Ctrl-C ends it and removes everything.", flush=True)
        cluster.wait()
    return 0


def check(arguments: argparse.Namespace) -> int:
    with Cluster(gpus=arguments.gpus, images=[images.build("python")]) as cluster:
        failed = checks.run_all(cluster)
    print(f"{failed} failed" if failed else "all passed")
    return 1 if failed else 0


def _interrupt(_: int, __: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
        ("up", up, "start a one-node cluster and keep it until Ctrl-C"),
        ("check", check, "start a cluster, try what the scenarios rely on, end it"),
        ("build", build, "build or fetch the binaries, and print where they are"),
        ("images", make_images, "build the images, and print where they are"),
    ):
        command = commands.add_parser(name, help=text)
        command.set_defaults(run=run)
        if name in ("up", "check"):
            command.add_argument("--gpus", type=int, default=8, help="made-up amd.com/gpu devices (default: 8)")
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        return int(arguments.run(arguments))
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
