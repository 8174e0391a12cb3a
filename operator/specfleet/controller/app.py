"""Wires the operator: Lease, LIST, watches, queue, resync, HTTP server; and takes it all down again."""

import asyncio
import logging
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

from specfleet.controller.cache import Cache, Key
from specfleet.controller.handlers import watch
from specfleet.controller.kube import KubeClient
from specfleet.controller.lease import LeaderLease
from specfleet.controller.logs import configure
from specfleet.controller.metrics import Metrics
from specfleet.controller.protocol import GATEWAY_API, WATCHED, ApiError, Missing
from specfleet.controller.reconcile import Reconciler
from specfleet.controller.recorder import Recorder
from specfleet.controller.server import serve
from specfleet.controller.settings import Settings, parse
from specfleet.controller.survey import Survey
from specfleet.controller.telemetry import Telemetry
from specfleet.controller.vllm import VllmClient
from specfleet.controller.workqueue import WorkQueue
from specfleet.plan import REST_SECONDS

STALLED = 300.0  # seconds after it was due in which a pass must be over, or the process counts as stuck

ANSWER_SECONDS = 5.0  # between two tries of the first look
TOO_MANY_REQUESTS = 429

log = logging.getLogger(__name__)


class NewApi(Exception):
    """A kind has appeared that nobody watches: kopf looks for kinds once, at its start."""


async def until_answered(look: Callable[[], Awaitable[None]], wait: float = ANSWER_SECONDS) -> None:
    """Look until the API server has answered; ApiError where waiting mends nothing."""
    while True:
        try:
            return await look()
        except ApiError as error:
            if 400 <= error.status < 500 and error.status != TOO_MANY_REQUESTS:
                raise
            log.warning("looking again in %.0f s: %s", wait, error)
            await asyncio.sleep(wait)


class App:
    """One operator process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.cache = Cache()
        self.queue: WorkQueue[Key] = WorkQueue(self._pass)
        self.lease = LeaderLease(settings.lease_namespace, settings.lease_name, settings.identity)
        self.metrics = Metrics(lambda: float(self.queue.depth), self.lease.held)
        self.kube = KubeClient(settings.namespaces, self.lease.held)
        self.vllm = VllmClient(self.kube)
        self.telemetry = Telemetry(
            self.vllm.scrape,
            self.vllm.ask,
            time.time,
            news=self.queue.add,
            checked=self.metrics.checked,
            unread=self.metrics.scrape_failures.inc,
            probing=settings.probing,
        )
        recorder = Recorder(self.kube, settings.identity, time.time)
        self.reconciler = Reconciler(
            kube=self.kube,
            cache=self.cache,
            telemetry=self.telemetry,
            survey=Survey(self.kube, time.time, settings.read_nodes),
            recorder=recorder,
            planned=self.metrics.planned,
            clock=time.time,
        )

    async def run(self) -> int:
        """Run until a signal (0), or until the Lease or a watch is lost (1)."""
        task = asyncio.current_task()
        assert task is not None
        # The first process of a container ignores SIGTERM unless it is handled, and kopf does so only once it watches.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.kube)
            await stack.enter_async_context(self.vllm)
            web = await serve(self.settings.host, self.settings.port, self.metrics.registry, self._sick, lambda: "")
            stack.push_async_callback(web.cleanup)
            await self.lease.acquire(self.kube)
            stack.push_async_callback(self.lease.release, self.kube)
            stack.push_async_callback(self.queue.close)
            return await self._lead()

    async def _lead(self) -> int:
        keeper = asyncio.ensure_future(self.lease.keep(self.kube))
        first = asyncio.ensure_future(until_answered(self._resync))  # takes its time in a large cluster
        try:
            await asyncio.wait({keeper, first}, return_when=asyncio.FIRST_COMPLETED)
            if keeper.done():
                return 1
            first.result()
            return await self._watch(keeper)
        finally:
            for task in (keeper, first):
                task.cancel()
            await asyncio.gather(keeper, first, return_exceptions=True)

    async def _watch(self, keeper: "asyncio.Future[None]") -> int:
        stop = asyncio.Event()
        watcher = asyncio.ensure_future(watch(self.cache, self.queue.add, self.settings.namespaces, stop))
        resyncer = asyncio.ensure_future(self._resync_for_ever())
        done, _ = await asyncio.wait({watcher, keeper, resyncer}, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        for task in (keeper, resyncer):
            task.cancel()
        failed = [task for task in done if task.cancelled() or task.exception()]
        await asyncio.gather(watcher, keeper, resyncer, return_exceptions=True)
        for task in failed:
            log.error("stopped", exc_info=None if task.cancelled() else task.exception())
        return 0 if done == {watcher} and not failed else 1

    async def _pass(self, key: Key) -> float | None:
        started = time.monotonic()
        result = "failed"
        try:
            after = await self.reconciler.reconcile(key)
            result = "ok"
        finally:
            self.metrics.passes.labels(result).inc()
            self.metrics.seconds.observe(time.monotonic() - started)
        if after is None:
            self.metrics.forget(key)
        if after == REST_SECONDS:  # those that began together would be looked at together for ever
            after *= random.uniform(0.9, 1.0)
        return after

    async def _resync(self) -> None:
        """Replace the cache by a LIST of each kind: watches may have missed that something vanished."""
        there = True
        for resource in reversed(WATCHED):  # the SDDs last, when all that is theirs is known
            with self.cache.listing() as meanwhile:
                try:
                    listed = await self.kube.list(resource)
                except Missing:
                    if resource not in GATEWAY_API:
                        raise
                    listed, there = [], False
                for key in self.cache.replace(resource, listed, meanwhile):
                    self.queue.add(key)
        if there and not self.cache.gateway_api:
            raise NewApi("the Gateway API has been installed: starting again to watch it")
        self.cache.gateway_api = there
        self.cache.sees_gateways = there and not self.settings.namespaces

    async def _resync_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.resync)
            try:
                await self._resync()
            except ApiError as error:
                log.warning("resync: %s", error)

    def _sick(self) -> str:
        late = self.queue.overdue
        return f"a resource's pass was due {late:.0f} s ago and is not over" if late > STALLED else ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `specfleet-operator`."""
    settings = parse(arguments)
    configure(settings.log_level, settings.log_format)
    try:
        sys.exit(asyncio.run(App(settings).run()))
    except ApiError as error:
        sys.exit(f"specfleet-operator: {error}")
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(0)


if __name__ == "__main__":
    main()
