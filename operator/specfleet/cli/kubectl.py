"""All access to the cluster, through the user's own `kubectl`: its contexts, its login, its permissions."""

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from specfleet.api import names
from specfleet.api.status import readable
from specfleet.rollout.world import Raw

RESOURCE = f"{names.PLURAL}.{names.GROUP}"  # the full name: another CRD may have the short one
OWNED = "pods,deployments.apps,controllerrevisions.apps"
_NOISE = re.compile(r"^(Warning:|[EWI]\d{4} )")  # the API server's warnings, and klog's lines
_PREFIX = re.compile(r"^(error: |Error from server: |Error from server \((?!Forbidden)\w+\): )")
_NO_CRD = ("the server doesn't have a resource type", "could not find the requested resource", "no matches for kind")


class KubectlError(Exception):
    """What kept kubectl from answering, in one line."""


class Missing(KubectlError):
    """There is no SpecDecodeDeployment of that name."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl with the options that choose cluster and namespace."""

    options: tuple[str, ...] = ()

    def get(self, name: str) -> Raw:
        """The SpecDecodeDeployment `name`. Raises Missing, with names that come near, or KubectlError."""
        done = self._run("get", RESOURCE, name, "-o", "json")
        if done.returncode and f'"{name}" not found' in done.stderr:
            raise Missing(self._near(name))
        return _typed(_object(_checked(done)))

    def all(self) -> list[Raw]:
        """Every SpecDecodeDeployment of the namespace. Raises KubectlError."""
        return [_typed(item) for item in _items(_object(_checked(self._run("get", RESOURCE, "-o", "json"))))]

    def owned(self, name: str) -> tuple[list[Raw], str]:
        """Pods, Deployments and ControllerRevisions of one SDD, as far as they can be read, and why not all could."""
        done = self._run("get", OWNED, "-l", f"{names.DEPLOYMENT}={name}", "-o", "json")
        unread = one_line(done.stderr) if done.returncode else ""
        try:
            return _items(json.loads(done.stdout)), unread
        except ValueError:
            return [], unread or "kubectl did not answer in JSON"

    def evidence(self, name: str) -> tuple[Raw | None, str]:
        """The ConfigMap of a rollout's evidence, None where there is none, and why it could not be read."""
        done = self._run("get", "configmaps", names.evidence_name(name), "-o", "json", "--ignore-not-found")
        if done.returncode:
            return None, one_line(done.stderr)
        try:
            return (json.loads(done.stdout) if done.stdout.strip() else None), ""
        except ValueError:
            return None, "kubectl did not answer in JSON"

    def patch(self, name: str, patch: Mapping[str, Any]) -> None:
        """Merge `patch` into the SDD. Raises KubectlError, for example where an admission rule refuses it."""
        manager = "--field-manager=specfleet-cli"  # Flux takes back what managers that begin with kubectl wrote
        _checked(self._run("patch", RESOURCE, name, "--type=merge", manager, "-p", json.dumps(patch)))

    def _near(self, name: str) -> str:
        """What to say of a name that is not there."""
        where = f"in namespace {self.namespace}" if self.namespace else "in this namespace"
        found = sorted(str(item["metadata"]["name"]) for item in self.all())
        if not found:
            return f"no {names.KIND} {name} {where}, nor any other; is -n right?"
        near = get_close_matches(name, found, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there is {', '.join(found[:5])}"
        return f"no {names.KIND} {name} {where}; {hint}"

    @property
    def namespace(self) -> str:
        """The namespace that was asked for; empty where kubectl's context chooses it."""
        given = [option.partition("=")[2] for option in self.options if option.startswith("--namespace=")]
        return given[-1] if given else ""

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        program = os.environ.get("KUBECTL") or "kubectl"
        command = [program, *self.options, "--request-timeout=20s", *arguments]
        try:
            return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", errors="replace")
        except FileNotFoundError:
            raise KubectlError(f"{program} not found: put kubectl on PATH, or set KUBECTL to its path") from None
        except OSError as error:
            raise KubectlError(f"{program} cannot be run: {error.strerror}") from None


def options(namespace: str | None, context: str | None, kubeconfig: str | None) -> tuple[str, ...]:
    """kubectl's options for what the user gave."""
    given = {"namespace": namespace, "context": context, "kubeconfig": kubeconfig}
    return tuple(f"--{option}={value}" for option, value in given.items() if value)


def one_line(stderr: str) -> str:
    """What kubectl complained of, in one line, without warnings and log lines."""
    if any(sign in stderr for sign in _NO_CRD):
        return f"{RESOURCE} is not known to this cluster: install specfleet's CRD there, or check --context"
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not _NOISE.match(line)]
    return _PREFIX.sub("", " ".join(dict.fromkeys(lines))) or "kubectl failed without a word"


def _checked(done: "subprocess.CompletedProcess[str]") -> str:
    if done.returncode:
        raise KubectlError(one_line(done.stderr))
    return done.stdout


def _object(text: str) -> Raw:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, Mapping):
        raise KubectlError("kubectl did not answer in JSON; is KUBECTL set to something else?")
    return value


def _typed(sdd: Raw) -> Raw:
    """The SDD with what of its status has the shape that this plugin knows."""
    return {**sdd, "status": readable(sdd["status"])} if "status" in sdd else sdd


def _items(value: Raw) -> list[Raw]:
    items: Sequence[Raw] = value.get("items") or ()
    return list(items)
