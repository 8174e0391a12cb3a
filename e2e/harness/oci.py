"""Writes image layers and OCI image archives, byte for byte the same for the same content; no registry, no builder."""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"  # not compressed: it never travels
INDEX = "application/vnd.oci.image.index.v1+json"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_layer(root: Path, output: Path) -> None:
    """The files under `root` as root's, in order, without times; modes only say directory, executable or not."""
    with tarfile.open(output, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            tar.add(path, str(path.relative_to(root)), recursive=False, filter=_normal)


def _normal(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    sticky = entry.mode & 0o1000
    if sticky:  # /tmp
        entry.mode = 0o1777
    elif entry.isdir() or entry.mode & 0o100:
        entry.mode = 0o755
    else:
        entry.mode = 0o644
    return entry


def write_archive(output: Path, reference: str, layers: Iterable[Path], config: Mapping[str, Any]) -> None:
    """One image of these layers (lowest first) under the name `reference`; `config` has OCI's keys (Entrypoint ...)."""
    descriptors = [_describe(LAYER, layer) for layer in layers]
    content = {layer["digest"]: layer.pop("path") for layer in descriptors}
    platform = {"architecture": ARCHITECTURES[os.uname().machine], "os": "linux"}
    rootfs = {"type": "layers", "diff_ids": [layer["digest"] for layer in descriptors]}
    image = _json({**platform, "config": dict(config), "rootfs": rootfs})
    manifest = _json(
        {"schemaVersion": 2, "mediaType": MANIFEST, "config": _describe(CONFIG, image), "layers": descriptors}
    )
    named = {
        **_describe(MANIFEST, manifest),
        "platform": platform,
        "annotations": {
            "io.containerd.image.name": reference,
            "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
        },
    }
    with tarfile.open(output, "w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(tar, "index.json", _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]}))
        for blob in (image, manifest):
            _add(tar, _blob(_digest(blob)), blob)
        for digest, path in content.items():
            tar.add(path, _blob(digest), filter=_normal)


def _describe(media_type: str, content: bytes | Path) -> dict[str, Any]:
    """A descriptor; of a file it also has the path, which its user takes out."""
    if isinstance(content, bytes):
        return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}
    with open(content, "rb") as file:
        digest = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    return {"mediaType": media_type, "digest": digest, "size": content.stat().st_size, "path": content}


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
