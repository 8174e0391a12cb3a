"""Where weights come from, for the served model and for its drafter alike. Pure."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from specfleet.api.base import Name, Part, SecretKey, rule, rules

_SOURCE_RULE = (
    "(has(self.huggingFace) ? 1 : 0) + (has(self.persistentVolumeClaim) ? 1 : 0) + (has(self.image) ? 1 : 0) == 1"
)
SOURCE_MESSAGE = "must hold exactly one of huggingFace, persistentVolumeClaim, image; remove the others or add one"

RelativePath = Annotated[str, Field(max_length=512, pattern=r"^[A-Za-z0-9_][-A-Za-z0-9_./]*$")]


class HuggingFace(Part):
    """A repository on the Hugging Face Hub, downloaded by vLLM when a pod starts."""

    repo: Annotated[
        str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9][-A-Za-z0-9._]*(/[A-Za-z0-9][-A-Za-z0-9._]*)?$")
    ]
    """Owner and name, for example Qwen/Qwen3-8B."""
    revision: Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9][-A-Za-z0-9._/]*$")] | None = None
    """Commit, tag or branch. 40 hexadecimal digits are a pin; anything else can change under a running fleet and is
    reported in status.findings. Default: the main branch."""

    @property
    def pinned(self) -> bool:
        """Whether `revision` is a full commit hash."""
        return len(self.revision or "") == 40 and set(self.revision or "") <= set("0123456789abcdef")


class PersistentVolumeClaim(Part):
    """A volume that already holds the weights, mounted read-only in every pod."""

    claim_name: Name
    """Name of the PersistentVolumeClaim. It must allow as many readers as there are nodes in use."""
    path: RelativePath | None = None
    """Directory inside the volume, without a leading slash. Default: the volume's root."""


class Image(Part):
    """An OCI image or artifact that holds the weights, mounted read-only as an image volume."""

    reference: Annotated[
        str, Field(min_length=1, max_length=512, pattern=r"^[a-zA-Z0-9][-a-zA-Z0-9._/:]*(@sha256:[0-9a-f]{64})?$")
    ]
    """Image reference; a digest is a pin."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the kubelet pulls the image. Default: IfNotPresent."""
    path: RelativePath | None = None
    """Directory inside the image, without a leading slash. Default: the image's root."""


class Source(Part):
    """Where weights come from: exactly one of huggingFace, persistentVolumeClaim, image."""

    model_config = ConfigDict(json_schema_extra=rules(rule(_SOURCE_RULE, SOURCE_MESSAGE)))

    hugging_face: HuggingFace | None = None
    persistent_volume_claim: PersistentVolumeClaim | None = None
    image: Image | None = None


class Model(Part):
    """The model that the fleet serves."""

    source: Source
    served_name: Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9][-A-Za-z0-9._/:]*$")] | None = None
    """Name that clients send as `model`. Default: the repository's name for huggingFace, otherwise the name of the
    SpecDecodeDeployment."""
    token_secret: SecretKey | None = None
    """Secret with a Hugging Face token, for gated repositories. Given to the pods as HF_TOKEN; the operator never reads
    it."""

    def name(self, deployment: str) -> str:
        """The name that clients send as `model`, for the SpecDecodeDeployment called `deployment`."""
        if self.served_name:
            return self.served_name
        return self.source.hugging_face.repo if self.source.hugging_face else deployment
