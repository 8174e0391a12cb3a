"""One pass over one SDD: observe -> plan -> apply -> report. The shell around `plan`; it decides nothing."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from specfleet.controller.cache import Cache, Key
from specfleet.controller.protocol import RESOURCES, SDD, ApiError, Conflict, Exists, Forbidden, Kube, Missing, Object
from specfleet.controller.recorder import Recorder
from specfleet.controller.survey import Survey
from specfleet.controller.telemetry import Telemetry
from specfleet.plan import Plan, Verb, Write, plan
from specfleet.resources.owned import is_ours
from specfleet.rollout.report import matters
from specfleet.rollout.world import Raw

MEMORY = "ConfigMap"  # the kind that keeps decisions
SOON, LATER = 0.2, 10.0  # seconds until another look after a conflict: the cache is about to learn of it, or is late
WORDING_SECONDS = 20.0  # between two writes of a status in which nothing but counts, wording and figures changed
TERMINATING_SECONDS = 60.0  # then it is tried again: a namespace may be made anew under the same name
TAKEN_SECONDS = 30.0  # between two tries of a name that someone else has

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Reconciler:
    """Runs passes. Everything that it knows between them is a cache, or lies in the cluster."""

    kube: Kube
    cache: Cache
    telemetry: Telemetry
    survey: Survey
    recorder: Recorder
    planned: Callable[[Key, Plan], None]  # told of every plan, for the operator's own metrics
    clock: Callable[[], float]
    reported: dict[Key, float] = field(default_factory=dict)  # when a status was last written
    conflicts: dict[Key, int] = field(default_factory=dict)  # one after the other
    terminating: dict[str, float] = field(default_factory=dict)  # by namespace, until when that counts

    async def reconcile(self, key: Key) -> float | None:
        """One pass; returns the seconds until the next, None when the SDD is gone. What it raises is retried."""
        sdd = self.cache.sdd(key)
        if sdd is None:
            self.telemetry.forget(key)
            self.reported.pop(key, None)
            self.conflicts.pop(key, None)
            return None
        objects = self.cache.objects(key, sdd["metadata"]["uid"])
        seen = replace(await self.telemetry.observe(key, objects), rival=self.cache.rival(key))
        terminating = self.clock() < self.terminating.get(key.namespace, 0.0)
        planned = plan(sdd, objects, seen, self.clock(), terminating)
        if planned.spec and planned.devices:
            seen = replace(seen, devices=await self.survey.devices(planned.spec.accelerator.resource))
            planned = plan(sdd, objects, seen, self.clock(), terminating)
        self.telemetry.follow(key, planned)
        done, taken, failure = await self._apply(key, planned)
        # An event goes with its decision: not before that is remembered, and not once more after.
        remembered = all(write.kind != MEMORY for write in planned.writes[done:])
        events = planned.events if remembered else ()
        refused = str(failure) if failure and not isinstance(failure, Conflict) else ""
        if taken or refused:
            seen = replace(seen, taken=taken, refused=refused)
            planned = plan(sdd, objects, seen, self.clock(), terminating)
        planned = replace(planned, events=events)
        self.planned(key, planned)
        await self._report(key, sdd, planned)
        if failure and refused:
            raise failure
        if failure:
            return self._after_conflict(key)
        self.conflicts.pop(key, None)
        return TAKEN_SECONDS if taken else planned.next

    def _after_conflict(self, key: Key) -> float:
        """Seconds until another look. They grow: a watch may be far behind, and a webhook that refuses is not told from
        an object that has changed."""
        before = self.conflicts.get(key, 0)
        self.conflicts[key] = before + 1
        return min(LATER, SOON * 2.0 ** min(before, 10))

    async def _apply(self, key: Key, planned: Plan) -> tuple[int, tuple[str, ...], ApiError | None]:
        """Write in order and stop at the first failure: how many were written, names that are not ours, what failed."""
        for done, write in enumerate(planned.writes):
            try:
                written = await self.kube.write(key.namespace, write)
            except Exists as error:
                taken = await self._taken(key, write)
                return done, taken, None if taken else Conflict(error.status, error.message)
            except Missing as error:
                self.cache.drop(write.kind, key.namespace, write.name)
                if write.verb is Verb.DELETE:
                    continue
                return done, (), Conflict(error.status, error.message)
            except Forbidden as error:
                if "being terminated" in error.message:
                    self.terminating[key.namespace] = self.clock() + TERMINATING_SECONDS
                    return done, (), None
                return done, (), error
            except ApiError as error:
                log.info("write refused", extra={"key": str(key), "why": write.why, "error": str(error)})
                return done, (), error
            self._learn(key, write, written)
            log.info(
                write.why, extra={"key": str(key), "verb": write.verb.value, "object": f"{write.kind}/{write.name}"}
            )
        return len(planned.writes), (), None

    def _learn(self, key: Key, write: Write, written: Object) -> None:
        if write.verb is Verb.DELETE:
            self.cache.drop(write.kind, key.namespace, write.name)
        else:
            self.cache.put(written, key)

    async def _taken(self, key: Key, write: Write) -> tuple[str, ...]:
        """Whether the object that is in the way of a create is someone else's; our own is only news to the cache."""
        live = await self.kube.get(RESOURCES[write.kind], key.namespace, write.name)
        sdd = self.cache.sdd(key)
        if sdd is not None and is_ours(live, sdd["metadata"]["uid"]):
            self.cache.put(live, key)  # it may have lost our label, by which the watch would tell of it
            return ()
        return (f"{write.kind}/{write.name}",)

    async def _report(self, key: Key, sdd: Raw, planned: Plan) -> None:
        failure = None
        try:
            await self._write_status(key, sdd, planned.status)
        except Missing:
            self.cache.drop(SDD.kind, key.namespace, key.name)
            return
        except ApiError as error:
            failure = error  # the decisions are made, and told once: an event does not wait for a status
        for event in planned.events:
            await self.recorder.record(sdd, event)
        if failure:
            raise failure

    async def _write_status(self, key: Key, sdd: Raw, status: Object | None) -> None:
        if status is not None and self._worth_writing(key, sdd.get("status") or {}, status):
            self.cache.put(await self.kube.patch_status(key.namespace, key.name, status, sdd["metadata"]["uid"]))
            self.reported[key] = self.clock()

    def _worth_writing(self, key: Key, before: Object, after: Object) -> bool:
        """News is written at once; counts, wording and measured figures, which move at every look, now and then."""
        if before == after:
            return False
        now = self.clock()
        return matters(before, after) or not 0 <= now - self.reported.get(key, 0.0) < WORDING_SECONDS
