"""The custom resource SpecDecodeDeployment, version v1alpha1: every model under one roof. Pure."""

from specfleet.api.base import Part, SecretKey
from specfleet.api.engine import Accelerator, Engine, EnvVar, RequestLog
from specfleet.api.model import HuggingFace, Image, Model, PersistentVolumeClaim, Source
from specfleet.api.pod import Cache, CacheClaim, EmptyDir, LocalObject, Pod, Resources, Toleration
from specfleet.api.rollout import Action, Analysis, Margins, Probe, Rollout, Step
from specfleet.api.spec import SpecDecodeDeploymentSpec
from specfleet.api.speculation import Draft, ScheduleStep, Slo, Speculation, Tuning
from specfleet.api.status import (
    ActionStatus,
    CanaryStatus,
    Condition,
    Decision,
    MetricStatus,
    PlannedStepStatus,
    RevisionStatus,
    SpecDecodeDeploymentStatus,
    StepStatus,
)
from specfleet.api.traffic import Cohort, Gateway, Header, Route, Traffic

__all__ = [
    "Accelerator", "Action", "ActionStatus", "Analysis", "Cache", "CacheClaim", "CanaryStatus", "Cohort", "Condition",
    "Decision", "Draft", "EmptyDir", "Engine", "EnvVar", "Gateway", "Header", "HuggingFace", "Image", "LocalObject",
    "Margins", "MetricStatus", "Model", "Part", "PersistentVolumeClaim", "PlannedStepStatus", "Pod", "Probe",
    "RequestLog", "Resources", "RevisionStatus", "Rollout", "Route", "ScheduleStep", "SecretKey", "Slo", "Source",
    "SpecDecodeDeploymentSpec", "SpecDecodeDeploymentStatus", "Speculation", "Step", "StepStatus", "Toleration",
    "Traffic", "Tuning",
]  # fmt: skip
