"""The CustomResourceDefinition, from the models: `python -m specfleet.api.crd` writes it, `--check` compares."""

import json
import sys
from pathlib import Path
from typing import Any

from specfleet.api import names, reference
from specfleet.api.spec import SpecDecodeDeploymentSpec
from specfleet.api.status import SpecDecodeDeploymentStatus
from specfleet.api.structural import structural

_ROOT = Path(__file__).parents[3]
CRD_FILE = _ROOT / "crds" / f"{names.GROUP}_{names.PLURAL}.yaml"
CONDITIONS_FILE = _ROOT / "docs" / "conditions.md"
FIELDS_FILE = _ROOT / "docs" / "api.md"
CHART_FILE = _ROOT / "charts" / "specfleet" / "templates" / "crd.yaml"
_HEADER = "# Generated from operator/specfleet/api by `python -m specfleet.api.crd`; do not edit.\n"

# (name, path, wide only)
_COLUMNS = (
    ("Ready", '.status.conditions[?(@.type=="Ready")].status', False),
    ("Reason", ".status.reason", False),
    ("Model", ".status.model", False),
    ("Stable", ".status.stable.revision", False),
    ("Canary", ".status.canary.revision", False),
    ("Weight", ".status.weight", False),
    ("K", ".status.proposalLength", False),
    ("Accept", ".status.acceptance", False),
    ("Replicas", ".status.ready", False),
    ("Tokens/Step", ".status.tokensPerStep", True),
    ("Step-Time", ".status.stepTime", True),
    ("Goodput", ".status.goodput", True),
    ("GPU", ".status.gpu", True),
    ("URL", ".status.url", True),
)
_NAME_RULE = {
    "rule": f"self.metadata.name.size() <= {names.MAX_NAME}"
    " && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    "message": f"metadata.name must be at most {names.MAX_NAME} lower-case letters, digits or dashes, beginning with a"
    " letter; rename it",
}


def crd() -> dict[str, Any]:
    """The whole CustomResourceDefinition as a plain object."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.SINGULAR,
                "shortNames": [names.SHORT_NAME],
            },
            "scope": "Namespaced",
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    return {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            *(_column(name, path, wide) for name, path, wide in _COLUMNS),
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    }


def _column(name: str, path: str, wide: bool) -> dict[str, Any]:
    return {"name": name, "type": "string", "jsonPath": path} | ({"priority": 1} if wide else {})


def schema() -> dict[str, Any]:
    """The structural schema. Only spec.replicas has a default: /scale needs a value, and what a user did not write must
    not become part of a revision's identity."""
    spec = structural(SpecDecodeDeploymentSpec)
    spec["properties"]["replicas"]["default"] = 1
    return {
        "type": "object",
        "description": "A fleet of vLLM servers with speculative decoding on AMD Instinct GPUs.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": structural(SpecDecodeDeploymentStatus),
        },
        "x-kubernetes-validations": [_NAME_RULE],
    }


def render(value: Any, indent: int = 0) -> str:
    """`value` as YAML in block style; scalars as JSON, which is YAML and needs no guessing about quotes."""
    pad = " " * indent
    if isinstance(value, dict) and value:
        return "".join(f"{pad}{key}:{_nested(item, indent + 2)}" for key, item in value.items())
    if isinstance(value, list) and value:
        return "".join(f"{pad}-{_item(item, indent + 2)}" for item in value)
    return f"{pad}{json.dumps(value, ensure_ascii=False)}\n"


def _nested(value: Any, indent: int) -> str:
    return "\n" + render(value, indent) if value and isinstance(value, dict | list) else " " + render(value)


def _item(value: Any, indent: int) -> str:
    return " " + render(value, indent).lstrip(" ")


def files() -> dict[Path, str]:
    """Every generated file with its content: the plain CRD, the chart's template and the reference pages."""
    body = render(crd())
    kept = body.replace("metadata:\n", 'metadata:\n  annotations:\n    helm.sh/resource-policy: "keep"\n', 1)
    escaped = kept.replace("{{", "{{`{{`}}")
    return {
        CRD_FILE: _HEADER + body,
        CONDITIONS_FILE: reference.conditions_page(),
        FIELDS_FILE: reference.fields_page(schema()),
        CHART_FILE: "{{- if .Values.crds.install }}\n" + _HEADER + escaped + "{{- end }}\n",
    }


def main(arguments: list[str]) -> int:
    """Writes the files, or with --check returns 1 if one differs from what would be written."""
    stale = [path for path, text in files().items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in stale:
            print(
                f"{path.relative_to(_ROOT)} differs from the models; run python -m specfleet.api.crd", file=sys.stderr
            )
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files()[path])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
