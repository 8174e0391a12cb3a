"""The verbs that the controller needs of Kubernetes, and how they fail; kube.py and the tests' own implement them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from specfleet.plan import Write

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """Where a kind is served."""

    kind: str
    api_version: str
    plural: str

    @property
    def root(self) -> str:
        """`/api/v1` or `/apis/<group>/<version>`."""
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"


SDD = Resource("SpecDecodeDeployment", "specfleet.dev/v1alpha1", "specdecodedeployments")
POD = Resource("Pod", "v1", "pods")
CHILDREN = (
    Resource("ControllerRevision", "apps/v1", "controllerrevisions"),
    Resource("Deployment", "apps/v1", "deployments"),
    Resource("Service", "v1", "services"),
    Resource("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets"),
    Resource("ConfigMap", "v1", "configmaps"),
    POD,
)
# Of the Gateway API, which a cluster may be without. Its routes may be the user's own and lack our label.
HTTP_ROUTE = Resource("HTTPRoute", "gateway.networking.k8s.io/v1", "httproutes")
ENDPOINT_SLICE = Resource("EndpointSlice", "discovery.k8s.io/v1", "endpointslices")
GATEWAY = Resource("Gateway", "gateway.networking.k8s.io/v1", "gateways")
GATEWAY_API = (HTTP_ROUTE, GATEWAY)
WATCHED = (SDD, *CHILDREN, ENDPOINT_SLICE, *GATEWAY_API)
UNLABELLED = (SDD, *GATEWAY_API)  # watched whole; of every other kind only what has our label
LEASE = Resource("Lease", "coordination.k8s.io/v1", "leases")
EVENT = Resource("Event", "v1", "events")
SECRET = Resource("Secret", "v1", "secrets")
NODE = Resource("Node", "v1", "nodes")
RESOURCES: Mapping[str, Resource] = {item.kind: item for item in (*WATCHED, LEASE, EVENT, SECRET)}


class ApiError(Exception):
    """The API server, or the way to it, refused a call. `status` is the HTTP status, 0 when there was no answer."""

    def __init__(self, status: int, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{status}: {message}" if status else message)
        self.status = status
        self.message = message
        self.retry_after = retry_after


class Conflict(ApiError):
    """409: the object is not the one that was observed. Look again; nothing is wrong."""


class Exists(ApiError):
    """409 to a create: an object of that name is there already."""


class Missing(ApiError):
    """404."""


class Forbidden(ApiError):
    """403."""


class Kube(Protocol):
    """What the controller does to Kubernetes. Every call raises ApiError or a subclass, and nothing else."""

    async def list(self, resource: Resource) -> list[Object]:
        """All objects of a kind in the watched namespaces: all of UNLABELLED kinds, of others those with our label.
        Raises Missing where the kind is not installed."""

    async def everything(self, resource: Resource) -> Sequence[Object]:
        """All objects of a kind in the cluster, whoever they belong to."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """One object, read now; raises Missing."""

    async def write(self, namespace: str, write: Write) -> Object:
        """Create, apply, patch or delete, with the preconditions in the body; returns the object. A JSON patch whose
        tests fail is a Conflict."""

    async def patch_status(self, namespace: str, name: str, status: Object, uid: str) -> Object:
        """Replace the status of one SDD through its subresource, by server-side apply."""

    async def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        """Create one object of a kind that plans do not write (events, leases); raises Exists."""

    async def replace(self, resource: Resource, namespace: str, body: Object) -> Object:
        """PUT one object with the resourceVersion in its body; raises Conflict."""
