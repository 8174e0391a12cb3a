"""OCI archives: laid out as the specification says, and the same for the same content."""

import hashlib
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from harness import oci


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/program").write_text("#!/bin/sh\n")
    (folder / "bin/program").chmod(0o755)
    (folder / "bin/link").symlink_to("program")
    (folder / "text").write_text("words")
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o1777)
    return folder


def layer_of(root: Path, name: str) -> Path:
    output = root.parent / name
    oci.write_layer(root, output)
    return output


def blobs(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {m.name: file.read() for m in tar if (file := tar.extractfile(m)) is not None}


def test_layer_is_the_same_whatever_times_and_umask(root: Path) -> None:
    first = layer_of(root, "first.tar").read_bytes()
    (root / "text").chmod(0o600)
    os.utime(root / "text", (1, 1))
    assert layer_of(root, "second.tar").read_bytes() == first
    (root / "text").write_text("other words")
    assert layer_of(root, "third.tar").read_bytes() != first


def test_layer_keeps_links_and_what_modes_mean(root: Path) -> None:
    with tarfile.open(layer_of(root, "layer.tar")) as tar:
        modes = {m.name: m.mode for m in tar if not m.issym()}
        assert modes == {"bin": 0o755, "bin/program": 0o755, "text": 0o644, "tmp": 0o1777}
        assert tar.getmember("bin/link").linkname == "program"
        assert {(m.uid, m.gid, m.uname, m.mtime) for m in tar} == {(0, 0, "", 0)}


def test_archive_names_every_blob_by_its_digest(root: Path) -> None:
    layers = [layer_of(root, "one.tar")]
    (root / "text").write_text("more")
    layers.append(layer_of(root, "two.tar"))
    archive = root.parent / "image.tar"
    oci.write_archive(archive, "example.com/a:1", layers, {"Entrypoint": ["/bin/program"]})

    content = blobs(archive)

    def read(descriptor: dict[str, Any]) -> bytes:
        algorithm, _, digest = descriptor["digest"].partition(":")
        blob = content[f"blobs/{algorithm}/{digest}"]
        assert hashlib.sha256(blob).hexdigest() == digest
        assert len(blob) == descriptor["size"]
        return blob

    assert json.loads(content["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (image,) = json.loads(content["index.json"])["manifests"]
    assert image["annotations"]["io.containerd.image.name"] == "example.com/a:1"
    manifest = json.loads(read(image))
    assert [read(layer) for layer in manifest["layers"]] == [layer.read_bytes() for layer in layers]
    assert [set(layer) for layer in manifest["layers"]] == [{"mediaType", "digest", "size"}] * 2
    config = json.loads(read(manifest["config"]))
    assert config["config"] == {"Entrypoint": ["/bin/program"]}
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]


def test_archive_is_the_same_for_the_same_layers(root: Path) -> None:
    layer = layer_of(root, "layer.tar")
    written = [root.parent / "a.tar", root.parent / "b.tar"]
    for output in written:
        oci.write_archive(output, "example.com/a:1", [layer], {})
    assert written[0].read_bytes() == written[1].read_bytes()
    oci.write_archive(written[1], "example.com/a:2", [layer], {})
    assert written[0].read_bytes() != written[1].read_bytes()
