"""A fleet of real vLLM servers on CPU: its manifest, and the volume that brings the tiny models' weights."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness import cache, vllm_env, vllm_image
from harness.stage import Stage

MODELS = vllm_env.HERE / "models"
UNFIT = vllm_env.HERE / "unfit.py"
CLAIM = "weights"
TARGET, DRAFTER, UNFIT_DRAFTER = "tiny-target", "tiny-draft", "unfit-draft"
# The tiny target answers most prompts with nothing but line ends, which the operator rightly calls insane; with a
# penalty on what it has said already it says other things, as models of this kind are often served.
ARGS = [
    "--enforce-eager",
    "--max-model-len=2048",
    "--middleware=served_by.Tag",
    "--override-generation-config=" + json.dumps({"repetition_penalty": 1.2}, separators=(",", ":")),
]
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
# Three servers share two cores with a whole cluster, and the evidence of a minute has to do: wide margins. They find
# what is broken, not what is five percent slower. In production keep the defaults.
ANALYSIS = {
    "scrapeSeconds": 2,
    "blockSeconds": 6,
    "maxSeconds": 900,
    "margins": {"speedPercent": 50, "errorPoints": 20, "ttftPoints": 50},
}


def weights() -> Path:
    """A folder with the target, its drafter, and a drafter that does not fit it."""

    def fill(root: Path) -> None:
        for name in (TARGET, DRAFTER):
            (root / name).mkdir()
            for file in (MODELS / name).iterdir():
                (root / name / file.name).write_bytes(file.read_bytes())
        subprocess.run([sys.executable, str(UNFIT), str(root / DRAFTER), str(root / UNFIT_DRAFTER)], check=True)

    return cache.folder("vllm-weights", cache.key([Path(__file__), UNFIT, MODELS]), fill)


def volume(folder: Path) -> list[dict[str, Any]]:
    """A volume on the node, as an administrator would make it, and the claim that the fleet names."""
    size = {"storage": "1Gi"}
    spec = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    held = {"capacity": size, "hostPath": {"path": str(folder), "type": "Directory"}}
    claim = {"resources": {"requests": size}, "volumeName": CLAIM}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": CLAIM}, "spec": {**spec, **held}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, "spec": {**spec, **claim}},
    ]


def source(path: str) -> dict[str, Any]:
    """Weights in a folder of the volume."""
    return {"source": {"persistentVolumeClaim": {"claimName": CLAIM, "path": path}}}


def manifest(name: str, tokens: int) -> dict[str, Any]:
    """Two replicas with a draft model, that surge one."""
    spec = {
        "replicas": 2,
        "model": source(TARGET),
        "speculation": {"method": "draft_model", "draft": source(DRAFTER), "numSpeculativeTokens": tokens},
        "engine": {
            "image": vllm_image.NAME,
            "args": ARGS,
            "env": [{"name": key, "value": value} for key, value in ENVIRONMENT.items()],
        },
        "accelerator": {"count": 1},
        "pod": {"startupSeconds": 600, "drainSeconds": 60},
        "rollout": {
            "steps": [{"weight": 33, "minSeconds": 10}],
            "maxSurge": 1,
            "retainSeconds": 10,
            "analysis": ANALYSIS,
        },
    }
    kind = {"apiVersion": "specfleet.dev/v1alpha1", "kind": "SpecDecodeDeployment"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def ensure(stage: Stage) -> None:
    """Bring the image and the weights onto the stage's node."""
    stage.cluster.import_image(vllm_image.build())
    for item in volume(weights()):
        stage.apply(item)
