"""Every name, label and annotation that specfleet writes on the cluster. Pure."""

GROUP = "specfleet.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "SpecDecodeDeployment"
PLURAL = "specdecodedeployments"
SINGULAR = "specdecodedeployment"
SHORT_NAME = "sdd"
FIELD_MANAGER = "specfleet"

# Labels.
DEPLOYMENT = f"{GROUP}/deployment"  # the SDD's name, on everything it owns
REVISION = f"{GROUP}/revision"  # the revision's full name, on everything of one revision
SERVING = f"{GROUP}/serving"  # "true" on a pod that Services may select; taken off before the pod goes

# Annotations on a ControllerRevision: what must outlive a lost status.
PROMOTED = f"{GROUP}/promoted"  # the n-th promotion made this revision stable; the highest is stable
ABORTED = f"{GROUP}/aborted"  # "Reason: message" of the abort that latched
ACTIONS = f"{GROUP}/actions"  # JSON: what became of each rollout.action for this revision, by its id
IDENTITY = f"{GROUP}/identity"  # full hash of what the user wrote

# Annotations on a pod.
DRAINING_SINCE = f"{GROUP}/draining-since"  # RFC 3339: when the serving label came off
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

CONTAINER = "vllm"
PORT_NAME = "http"
PORT = 8000
MAX_NAME = 40  # leaves room for "-" and the 8 characters of a revision hash


def labels(deployment: str) -> dict[str, str]:
    """Labels of every object that belongs to the SDD `deployment`."""
    return {
        "app.kubernetes.io/name": "vllm",
        "app.kubernetes.io/instance": deployment,
        "app.kubernetes.io/managed-by": "specfleet",
        DEPLOYMENT: deployment,
    }


def revision_labels(deployment: str, revision: str) -> dict[str, str]:
    """Labels of every object that belongs to one revision of the SDD `deployment`."""
    return {**labels(deployment), REVISION: revision}


def revision_name(deployment: str, digest: str) -> str:
    """Name of a revision and of each object of it: `<deployment>-<8 safe characters>`."""
    return f"{deployment}-{digest}"


def evidence_name(deployment: str) -> str:
    """Name of the ConfigMap that carries a rollout's evidence over restarts of the operator."""
    return f"{deployment}-evidence"
