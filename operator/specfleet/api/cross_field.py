"""Rules between fields, in Python: the CRD's CEL rules once more, for a cluster whose CRD is older. Pure."""

import itertools
from collections.abc import Iterable, Iterator

from specfleet.api import patterns
from specfleet.api.engine import ENV_MESSAGE, FORBIDDEN_ENV
from specfleet.api.model import SOURCE_MESSAGE, Source
from specfleet.api.names import GROUP
from specfleet.api.pod import FORBIDDEN_ANNOTATIONS, FORBIDDEN_TOLERATION, TOLERATION_MESSAGE, Pod
from specfleet.api.problem import Problem
from specfleet.api.rollout import Rollout
from specfleet.api.spec import SpecDecodeDeploymentSpec
from specfleet.api.speculation import MAY_DRAFT, NEED_DRAFT, NEED_TOKENS, OPERATOR_KEYS, ScheduleStep, Speculation
from specfleet.api.traffic import Traffic


def problems(spec: SpecDecodeDeploymentSpec) -> Iterator[Problem]:
    """Every contradiction between fields of a spec whose fields are valid one by one."""
    yield from _source("spec.model.source", spec.model.source)
    yield from _speculation(spec.speculation)
    yield from _schedule(spec.speculation)
    yield from _options(spec)
    yield from _engine(spec)
    yield from _pod(spec.pod)
    yield from _traffic(spec.traffic)
    yield from _rollout(spec.rollout)
    yield from _cohort_steps(spec)


def _source(path: str, source: Source) -> Iterator[Problem]:
    given = [kind for kind in (source.hugging_face, source.persistent_volume_claim, source.image) if kind is not None]
    if len(given) != 1:
        yield Problem(path, sorted(source.model_dump(by_alias=True, exclude_none=True)), SOURCE_MESSAGE)


def _speculation(speculation: Speculation) -> Iterator[Problem]:
    path, method = "spec.speculation", speculation.method
    if method == "none":
        for field in sorted({"draft", "num_speculative_tokens", "options", "schedule"} & speculation.model_fields_set):
            alias = type(speculation).model_fields[field].alias
            yield Problem(f"{path}.{alias}", None, "method none takes none; remove it or choose a method")
        return
    if method in NEED_DRAFT and speculation.draft is None:
        yield Problem(f"{path}.draft", None, f"method {method} needs a drafter; set draft.source")
    if method not in MAY_DRAFT and speculation.draft is not None:
        yield Problem(f"{path}.draft", None, f"method {method} proposes from the text itself; remove draft")
    if method in NEED_TOKENS and speculation.num_speculative_tokens is None:
        yield Problem(f"{path}.numSpeculativeTokens", None, f"method {method} needs a length; set it, for example 3")
    if speculation.draft is not None:
        yield from _source(f"{path}.draft.source", speculation.draft.source)
    tuning = speculation.tuning
    if tuning.max_tokens is not None and tuning.min_tokens > tuning.max_tokens:
        yield Problem(f"{path}.tuning.minTokens", tuning.min_tokens, "must not exceed maxTokens; lower it")


def _schedule(speculation: Speculation) -> Iterator[Problem]:
    path, schedule, most = "spec.speculation.schedule", speculation.schedule, speculation.num_speculative_tokens
    if schedule and speculation.method != "none" and most is None:
        yield Problem("spec.speculation.numSpeculativeTokens", None, "a schedule needs its maximum; set it")
    if schedule and schedule[0].min_batch != 1:
        yield Problem(f"{path}[0].minBatch", schedule[0].min_batch, "must start at batch 1; set it to 1")
    for index, entry in enumerate(schedule):
        if entry.max_batch is not None and entry.max_batch < entry.min_batch:
            yield Problem(f"{path}[{index}].maxBatch", entry.max_batch, "must not be below minBatch; swap them")
        if most is not None and entry.tokens > most:
            yield Problem(
                f"{path}[{index}].tokens", entry.tokens, f"must not exceed numSpeculativeTokens {most}; lower it"
            )
    for index, (before, after) in enumerate(itertools.pairwise(schedule)):
        yield from _follows(f"{path}[{index}]", before, f"{path}[{index + 1}]", after)


def _follows(path: str, before: ScheduleStep, next_path: str, after: ScheduleStep) -> Iterator[Problem]:
    if before.max_batch is None:
        yield Problem(f"{path}.maxBatch", None, "only the last entry may leave it out; set maxBatch")
    elif after.min_batch <= before.max_batch:
        todo = f"entries must ascend and not overlap; start after {before.max_batch}"
        yield Problem(f"{next_path}.minBatch", after.min_batch, todo)


def _options(spec: SpecDecodeDeploymentSpec) -> Iterator[Problem]:
    path, options = "spec.speculation.options", spec.speculation.options
    for key in sorted(set(options) & set(OPERATOR_KEYS)):
        yield Problem(f"{path}.{key}", options[key], "the operator sets this key; remove it and use its field")
    if "tensor_parallel_size" in options:
        todo = "vLLM refuses this key; use draft_tensor_parallel_size"
        yield Problem(f"{path}.tensor_parallel_size", options["tensor_parallel_size"], todo)
    split = options.get("draft_tensor_parallel_size", 1)
    if split not in (1, spec.tensor_parallel_size):
        todo = f"must be 1 or the model's {spec.tensor_parallel_size}; change it"
        yield Problem(f"{path}.draft_tensor_parallel_size", split, todo)


def _engine(spec: SpecDecodeDeploymentSpec) -> Iterator[Problem]:
    if spec.tensor_parallel_size > spec.accelerator.count:
        todo = f"must not exceed accelerator.count {spec.accelerator.count}; raise accelerator.count"
        yield Problem("spec.engine.tensorParallelSize", spec.engine.tensor_parallel_size, todo)
    for index, variable in enumerate(spec.engine.env):
        path = f"spec.engine.env[{index}]"
        if variable.name in FORBIDDEN_ENV:
            yield Problem(f"{path}.name", variable.name, ENV_MESSAGE)
        if variable.value and variable.value_from is not None:
            yield Problem(f"{path}.valueFrom", variable.value_from, "cannot stand beside value; remove one of the two")
    yield from _repeated("spec.engine.env", (variable.name for variable in spec.engine.env))
    yield from _repeated("spec.accelerator.products", spec.accelerator.products)


def _pod(pod: Pod) -> Iterator[Problem]:
    for index, toleration in enumerate(pod.tolerations):
        if toleration.key == FORBIDDEN_TOLERATION:
            yield Problem(f"spec.pod.tolerations[{index}].key", toleration.key, TOLERATION_MESSAGE)
    if pod.cache is not None and pod.cache.empty_dir is not None and pod.cache.persistent_volume_claim is not None:
        yield Problem("spec.pod.cache", None, "must hold one of emptyDir, persistentVolumeClaim; remove the other")
    yield from _pod_keys(pod)
    yield from _repeated("spec.pod.imagePullSecrets", (secret.name for secret in pod.image_pull_secrets))
    yield from _repeated("spec.pod.supplementalGroups", map(str, pod.supplemental_groups))


def _pod_keys(pod: Pod) -> Iterator[Problem]:
    for key in pod.labels:
        if key.startswith((f"{GROUP}/", "app.kubernetes.io/")):
            yield Problem("spec.pod.labels", key, "this label belongs to the operator; remove it")
    for key in pod.annotations:
        if key.startswith(f"{GROUP}/"):
            yield Problem("spec.pod.annotations", key, "this annotation belongs to the operator; remove it")
        if key.startswith(FORBIDDEN_ANNOTATIONS):
            yield Problem("spec.pod.annotations", key, "it would weaken the pod's confinement; remove it")
    for kind, amounts in (("requests", pod.resources.requests), ("limits", pod.resources.limits)):
        for name in amounts:
            if name.startswith("amd.com/"):
                todo = "devices come from accelerator; remove it and set accelerator.count"
                yield Problem(f"spec.pod.resources.{kind}", name, todo)


def _traffic(traffic: Traffic) -> Iterator[Problem]:
    if traffic.gateway is not None and traffic.route is not None:
        yield Problem("spec.traffic.route", traffic.route.name, "excludes gateway; remove one of the two")
    if traffic.gateway is None and traffic.hostnames:
        yield Problem("spec.traffic.hostnames", list(traffic.hostnames), "need traffic.gateway; set it or remove them")
    if traffic.gateway is None and traffic.cohorts:
        names = [cohort.name for cohort in traffic.cohorts]
        yield Problem("spec.traffic.cohorts", names, "need traffic.gateway; set it or remove them")
    yield from _repeated("spec.traffic.hostnames", traffic.hostnames)
    yield from _repeated("spec.traffic.cohorts", (cohort.name for cohort in traffic.cohorts))


def _rollout(rollout: Rollout) -> Iterator[Problem]:
    last = 0
    for index, step in enumerate(rollout.steps):
        path = f"spec.rollout.steps[{index}]"
        if (step.weight is None) == (step.cohort is None):
            yield Problem(path, None, "must hold exactly one of weight, cohort; remove one or add one")
        if step.weight is not None and step.weight <= last:
            yield Problem(f"{path}.weight", step.weight, f"weights must ascend; make it more than {last}")
        last = step.weight or last
    if rollout.max_surge in (0, "0%") and rollout.max_unavailable in (0, "0%"):
        todo = "maxSurge and maxUnavailable cannot both be 0, nothing could move; raise one"
        yield Problem("spec.rollout.maxSurge", rollout.max_surge, todo)
    for index, probe in enumerate(rollout.probes):
        if fault := patterns.fault(probe.expect):
            todo = f"RE2 does not take this pattern ({fault}); correct it, see github.com/google/re2/wiki/Syntax"
            yield Problem(f"spec.rollout.probes[{index}].expect", probe.expect, todo)
    if rollout.analysis.block_seconds < rollout.analysis.scrape_seconds:
        todo = f"must be at least scrapeSeconds {rollout.analysis.scrape_seconds}; raise it"
        yield Problem("spec.rollout.analysis.blockSeconds", rollout.analysis.block_seconds, todo)


def _cohort_steps(spec: SpecDecodeDeploymentSpec) -> Iterator[Problem]:
    known = {cohort.name for cohort in spec.traffic.cohorts} if spec.traffic.gateway is not None else set()
    for index, (before, step) in enumerate(itertools.pairwise(spec.rollout.steps), 1):
        if step.cohort is not None and before.weight is not None:
            todo = "cohorts come before weights, which reach everybody; move it up"
            yield Problem(f"spec.rollout.steps[{index}].cohort", step.cohort, todo)
    for index, step in enumerate(spec.rollout.steps):
        if step.cohort is not None and step.cohort not in known:
            todo = "needs traffic.gateway and a cohort of that name in traffic.cohorts; add them"
            yield Problem(f"spec.rollout.steps[{index}].cohort", step.cohort, todo)


def _repeated(path: str, names: Iterable[str]) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            yield Problem(f"{path}[{index}]", name, "appears twice; remove one")
        seen.add(name)
