"""What a user may say about the pods beyond vLLM itself; never more than a `baseline` namespace admits. Pure."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from specfleet.api.base import FreeMap, Int, Name, Part, StringMap, atomic_list, map_list, rule, rules, set_list
from specfleet.api.names import GROUP

QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
Quantity = Annotated[Int, Field(ge=0)] | Annotated[str, Field(max_length=32, pattern=QUANTITY)]
FORBIDDEN_TOLERATION = (
    "amd-dcm"  # AMD's device configuration manager empties a node with it before it repartitions GPUs
)
# Annotations that older Kubernetes versions read as fields of the pod's security context.
FORBIDDEN_ANNOTATIONS = (
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
)
TOLERATION_MESSAGE = "amd-dcm guards nodes whose GPUs are being repartitioned; remove that toleration"


class Toleration(Part):
    """A taint that the pods tolerate, as in a pod."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(f"self.key != '{FORBIDDEN_TOLERATION}'", TOLERATION_MESSAGE, "key"),
        )
    )

    key: Annotated[str, Field(min_length=1, max_length=317)]
    """Key of the taint. Required: an empty key would tolerate every taint, amd-dcm among them."""
    operator: Literal["Exists", "Equal"] | None = None
    """Exists or Equal. Default: Equal."""
    value: Annotated[str, Field(max_length=63)] | None = None
    """Value of the taint, for Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. Default: all."""
    toleration_seconds: Int | None = None
    """How long a NoExecute taint is tolerated, in seconds. Default: for ever."""


class LocalObject(Part):
    """An object in the same namespace."""

    name: Name
    """Its name."""


class Resources(Part):
    """CPU and memory of the vLLM container; the GPUs come from accelerator."""

    requests: Annotated[dict[str, Quantity], Field(max_length=16)] = {}
    """What the scheduler reserves, for example cpu: 8, memory: 64Gi. Weights pass through host memory while loading."""
    limits: Annotated[dict[str, Quantity], Field(max_length=16)] = {}
    """What the container may use at most. /dev/shm counts against the memory limit."""


class EmptyDir(Part):
    """A cache that lives as long as its pod."""

    size_limit: Quantity | None = None
    """Most that the cache may hold, for example 100Gi. Default: the node's disk."""


class CacheClaim(Part):
    """A cache on a PersistentVolumeClaim. Caches hold executable code: never share a claim between tenants or GPU
    families."""

    claim_name: Name
    """Name of the PersistentVolumeClaim."""


class Cache(Part):
    """Where downloads and compiled kernels are kept: at most one of emptyDir, persistentVolumeClaim."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!(has(self.emptyDir) && has(self.persistentVolumeClaim))",
                "must hold one of emptyDir, persistentVolumeClaim; remove the other",
            )
        )
    )

    empty_dir: EmptyDir | None = None
    persistent_volume_claim: CacheClaim | None = None


class Pod(Part):
    """Scheduling, identity and budgets of the pods."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                f"!has(self.labels) || self.labels.all(k, !k.startsWith('{GROUP}/')"
                " && !k.startsWith('app.kubernetes.io/'))",
                f"keys under {GROUP}/ and app.kubernetes.io/ belong to the operator; remove them",
                "labels",
            ),
            rule(
                f"!has(self.annotations) || self.annotations.all(k, !k.startsWith('{GROUP}/'))",
                f"keys under {GROUP}/ belong to the operator; remove them",
                "annotations",
            ),
            rule(
                "!has(self.annotations) || self.annotations.all(k,"
                f" !{list(FORBIDDEN_ANNOTATIONS)}.exists(p, k.startsWith(p)))",
                "AppArmor and seccomp annotations would weaken the pod's confinement; remove them",
                "annotations",
            ),
            *(
                rule(
                    f"!has(self.resources) || !has(self.resources.{kind})"
                    f" || self.resources.{kind}.all(k, !k.startsWith('amd.com/'))",
                    "amd.com devices come from accelerator; remove them and set accelerator.count",
                    f"resources.{kind}",
                )
                for kind in ("requests", "limits")
            ),
        )
    )

    node_selector: Annotated[StringMap, Field(max_length=32)] = {}
    """Labels that a node must carry, beside those that accelerator.products asks for."""
    affinity: FreeMap | None = None
    """Node, pod and pod anti-affinity, as in a pod."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32, json_schema_extra=atomic_list())] = ()
    """Taints that the pods tolerate."""
    topology_spread_constraints: Annotated[
        tuple[FreeMap, ...], Field(max_length=8, json_schema_extra=atomic_list())
    ] = ()
    """How pods spread over zones and nodes, as in a pod; without a labelSelector the operator adds the revision's."""
    priority_class_name: Name | None = None
    """PriorityClass of the pods."""
    scheduler_name: Name | None = None
    """Scheduler of the pods. Default: the cluster's."""
    runtime_class_name: Name | None = None
    """RuntimeClass of the pods."""
    service_account_name: Name | None = None
    """ServiceAccount of the pods. Its token is not mounted. Default: the namespace's default."""
    image_pull_secrets: Annotated[
        tuple[LocalObject, ...], Field(max_length=16, json_schema_extra=map_list("name"))
    ] = ()
    """Secrets with credentials for the image registry."""
    labels: Annotated[StringMap, Field(max_length=32)] = {}
    """Further labels of the pods."""
    annotations: Annotated[StringMap, Field(max_length=32)] = {}
    """Further annotations of the pods."""
    resources: Resources = Resources()
    cache: Cache | None = None
    run_as_user: Annotated[Int, Field(ge=1, le=2147483647)] | None = None
    """Numeric user of the container. Set, the pods are what a `restricted` namespace admits. Default: the image's user,
    root in vLLM's ROCm images, which a `baseline` namespace admits."""
    run_as_group: Annotated[Int, Field(ge=1, le=2147483647)] | None = None
    """Numeric group of the container. Default: the image's."""
    supplemental_groups: Annotated[
        tuple[Annotated[Int, Field(ge=1, le=2147483647)], ...], Field(max_length=16, json_schema_extra=set_list())
    ] = ()
    """Numeric groups of the node that own /dev/kfd and /dev/dri (video and render), needed with runAsUser."""
    startup_seconds: Annotated[Int, Field(ge=30, le=86400)] = 3600
    """Time that a pod may take from its start until it serves (weights, compilation, graphs), in seconds. The startup
    probe and the progress deadline follow from it. Default: 3600."""
    drain_seconds: Annotated[Int, Field(ge=0, le=86400)] = 300
    """Longest time that a pod may take to finish its running requests before it goes, in seconds. Default: 300."""
