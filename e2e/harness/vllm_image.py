"""The image of a real vLLM for CPU, for the cluster's pods; its weights come on a volume."""

from pathlib import Path

from harness import cache, images, layers, oci, vllm_env

NAME = f"specfleet.dev/vllm-cpu:v{vllm_env.VERSION}"
MIDDLEWARE = vllm_env.HERE / "served_by.py"
CONFIG = {
    "Env": [*images.PYTHON["Env"], *(f"{name}={value}" for name, value in vllm_env.environment(Path("/")).items())],
    "Entrypoint": ["vllm"],
}


def build() -> Path:
    """The archive of the image, 2.4 GB, built if need be. Nothing is compressed: it travels from disk to disk."""
    packages, small = vllm_env.ensure(), [layers.python(), _middleware()]

    def write(folder: Path) -> None:
        layer = folder / "packages.tar"
        oci.write_layer(packages, layer)
        oci.write_archive(folder / "image.tar", NAME, [small[0], layer, small[1]], CONFIG)
        layer.unlink()

    parts = [Path(__file__), packages.name, *(path.parent.name for path in small)]
    return cache.folder("image-vllm-cpu", cache.key(parts), write) / "image.tar"


def _middleware() -> Path:
    def fill(root: Path) -> None:
        site = root / vllm_env.SITE
        site.mkdir(parents=True)
        (site / MIDDLEWARE.name).write_bytes(MIDDLEWARE.read_bytes())

    return layers.code("served-by", [MIDDLEWARE], fill)
