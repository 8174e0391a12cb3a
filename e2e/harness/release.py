"""The next release, made from this checkout: an operator with one more default for pods, a CRD with one more field."""

import shutil
from pathlib import Path

from harness import images, layers
from harness.errors import HarnessError
from harness.stage import CHART

VERSION = "0.2.0"
TAG = "next"
VARIABLE = "VLLM_NEXT_DEFAULT"  # in the environment of every pod that it renders
FIELD = "laterField"  # of spec
RENDERED = "resources/rocm.py"


def operator() -> Path:
    """The archive of the next operator's image."""
    recipe = images.RECIPES["operator"]
    patched = images.Recipe(TAG, lambda: [*recipe.layers(), _patch()], recipe.config)
    return images.archive(images.reference("operator", TAG), patched)


def _patch() -> Path:
    source = (images.PROJECT / "operator/specfleet" / RENDERED).read_text()
    text = _replaced(source, '"VLLM_NO_USAGE_STATS": "1",', f'"VLLM_NO_USAGE_STATS": "1", "{VARIABLE}": "1",')

    def fill(root: Path) -> None:
        file = root / layers.SITE / "specfleet" / RENDERED
        file.parent.mkdir(parents=True)
        file.write_text(text)

    return layers.code("next", [text], fill)


def chart(folder: Path) -> Path:
    """The next chart, as a copy in `folder`."""
    copy = folder / CHART.name
    shutil.copytree(CHART, copy)
    about, crd = copy / "Chart.yaml", copy / "templates/crd.yaml"
    about.write_text(about.read_text().replace("ersion: 0.1.0", f"ersion: {VERSION}"))
    before = "                revisionHistoryLimit:\n"
    field = f'                {FIELD}:\n                  type: "string"\n'
    crd.write_text(_replaced(crd.read_text(), before, field + before))
    return copy


def _replaced(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise HarnessError(f"{old.strip()!r} is there {text.count(old)} times: the next release cannot be made of it")
    return text.replace(old, new)
