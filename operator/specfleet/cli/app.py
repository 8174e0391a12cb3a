"""The commands of `kubectl specfleet`: each reads with kubectl, decides in a pure function, and says what it did."""

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from specfleet import __version__
from specfleet.api import names
from specfleet.cli import again, orders
from specfleet.cli.case import case
from specfleet.cli.explain import explained
from specfleet.cli.fleet import Fleet, fleet, mark
from specfleet.cli.kubectl import Kubectl, options
from specfleet.cli.lint import lint as lint_files
from specfleet.cli.record import record
from specfleet.cli.replayed import shown
from specfleet.cli.settle import duration
from specfleet.cli.table import table
from specfleet.cli.terminal import console, content, fail, guarded, texts
from specfleet.cli.tree import view
from specfleet.cli.wait import Wait
from specfleet.cli.watch import Look, watch
from specfleet.cli.words import Shown
from specfleet.rollout.world import Raw

app = typer.Typer(
    help="Watch and steer fleets of vLLM servers with speculative decoding.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the SpecDecodeDeployment.")]
AnyName = Annotated[str | None, typer.Argument(metavar="NAME", help="Name; without it, all of the namespace.")]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace, if not the context's.")]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig.")]
Kubeconfig = Annotated[str | None, typer.Option("--kubeconfig", help="Path of the kubeconfig.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Look again every 2 s, until Ctrl-C.")]
Timeout = Annotated[
    str | None,
    typer.Option(
        help="Wait so long (90s, 10m, 1h) until the newest spec has settled: exit status 0; 1 if it is stalled or"
        " cannot be asked for, 3 if it takes longer."
    ),
]
Files = Annotated[
    list[str], typer.Option("--filename", "-f", metavar="FILE", help="YAML or JSON, a folder of it, or - for stdin.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Findings are errors, and so is that no fleet is there.")]
TIMED_OUT = 3  # exit status
BLOCK_SECONDS = 60.0  # of recorded pages


@app.command()
def status(
    name: AnyName = None,
    watching: Watch = False,
    timeout: Timeout = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """What a fleet is doing, why it waits, and on what evidence; without NAME, a table of all."""
    kubectl, screen = Kubectl(options(namespace, context, kubeconfig)), console()
    if timeout is not None:
        limit = _limit(name, timeout)
        guarded(lambda: _settle(kubectl, str(name), limit, watching, screen))
        return

    def look() -> Look:
        return _look(kubectl, name) if name else _look_at_all(kubectl)

    def show() -> None:
        if watching:
            watch(look, screen, time.sleep)
        else:
            screen.print(look().shown)

    guarded(show)


@app.command()
def explain(name: Name, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Why this weight and this proposal length: the judge's looks, what is compared, positions, pods, decisions."""
    kubectl = Kubectl(options(namespace, context, kubeconfig))

    def show() -> None:
        sdd = kubectl.get(name)
        found = case(sdd, *kubectl.owned(name), record(sdd, *kubectl.evidence(name)))
        console().print(explained(found, time.time()))

    guarded(show)


@app.command("replay")
def replay_command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The rollout on its way, or the last one.")] = None,
    file: Annotated[
        str | None, typer.Option("--filename", "-f", metavar="FILE", help="An evidence ConfigMap in a file, or -.")
    ] = None,
    pages: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Recorded metrics pages: <seconds>/<stable or canary>/<pod>.prom."),
    ] = None,
    margin: Annotated[
        list[str] | None, typer.Option(metavar="NAME=NUMBER", help="Another margin, such as speed=3; may be repeated.")
    ] = None,
    block: Annotated[
        float | None, typer.Option(min=1, max=3600, help="Seconds of a block; of pages. [default: 60]")
    ] = None,
    differ: Annotated[
        bool, typer.Option("--draft-differently", help="The arms' method, length or schedule differ; of pages.")
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """What was measured through the shipped judge again, look by look. Exit status: 0 proven, 4 a regression at some
    look, 5 not decided, 1 what was given cannot be read."""
    if sum(given is not None for given in (name, file, pages)) != 1:
        raise typer.BadParameter("give one of NAME, --filename and --pages")
    if pages is None and (block is not None or differ):
        raise typer.BadParameter("--block and --draft-differently are of --pages; evidence says both itself")
    margins = margin or []

    def run() -> None:
        if pages is not None:
            found = again.of_pages(pages, block or BLOCK_SECONDS, not differ, margins)
        elif file is not None:
            found = again.of_file(file, content(file), margins)
        else:
            kubectl = Kubectl(options(namespace, context, kubeconfig))
            sdd = kubectl.get(str(name))
            record_of = record(sdd, *kubectl.evidence(str(name)))
            found = again.of_fleet(case(sdd, *kubectl.owned(str(name)), record_of), margins)
        console().print(shown(found))
        raise typer.Exit(found.status)

    guarded(run)


@app.command()
def lint(files: Files, strict: Strict = False) -> None:
    """Check resources in files, without a cluster: errors (exit status 1), findings, fields without effect."""
    done = lint_files(texts(files), strict)
    for line in done.lines:
        typer.echo(line)
    typer.echo(done.summary())
    raise typer.Exit(1 if done.number("error") else 0)


@app.command()
def promote(name: Name, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Send the canary to 100 % now, without its remaining steps and proof; guards still hold."""
    _order(name, options(namespace, context, kubeconfig), lambda sdd: orders.act(sdd, "Promote", _new_id()))


@app.command()
def abort(name: Name, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """End the canary: its traffic goes back to stable, and it stays aborted until the spec changes."""
    _order(name, options(namespace, context, kubeconfig), lambda sdd: orders.act(sdd, "Abort", _new_id()))


@app.command()
def retry(name: Name, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Let the spec's aborted revision try again, from the first step."""
    kubectl = Kubectl(options(namespace, context, kubeconfig))
    _order(name, kubectl.options, lambda sdd: orders.retry(sdd, *kubectl.owned(name), _new_id()))


@app.command()
def undo(name: Name, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Go back to the revision that was promoted before; the present one is rejected until the spec changes."""
    kubectl = Kubectl(options(namespace, context, kubeconfig))
    _order(name, kubectl.options, lambda sdd: orders.undo(sdd, *kubectl.owned(name), _new_id()))


@app.command()
def pause(name: Name, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Hold the canary at its step (spec.paused: true); guards still act."""
    _order(name, options(namespace, context, kubeconfig), lambda sdd: orders.hold(sdd, True))


@app.command()
def resume(name: Name, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Let the canary go on (spec.paused: false)."""
    _order(name, options(namespace, context, kubeconfig), lambda sdd: orders.hold(sdd, False))


@app.command()
def version() -> None:
    """The version of this plugin, and of the API that it speaks."""
    typer.echo(f"kubectl-specfleet {__version__} ({names.API_VERSION})")


def _limit(name: str | None, timeout: str) -> float:
    """Seconds of `timeout`; raises what typer reports as wrong usage."""
    if name is None:
        raise typer.BadParameter("--timeout waits for one fleet: give its NAME")
    try:
        return duration(timeout)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _settle(kubectl: Kubectl, name: str, limit: float, watching: bool, screen: Console) -> None:
    """Wait, show, and exit with what became of it."""
    wait = Wait(limit, time.monotonic, time.sleep)

    def look() -> Look:
        return _look(kubectl, name, wait.note)

    if watching:
        wait.watch(look, screen)
    else:
        screen.print(wait.quietly(look).shown)
    if wait.state.settled is None:
        fail(f"{name} has not settled in time; it waits for {wait.state.says}", TIMED_OUT)
    if not wait.state.settled:
        fail(f"{name} is stalled: {wait.state.says}")


def _look(kubectl: Kubectl, name: str, note: Callable[[Raw], None] = lambda sdd: None) -> Look:
    sdd = kubectl.get(name)
    note(sdd)
    seen = fleet(sdd, *kubectl.owned(name))
    return Look(view(seen, time.time()), mark(seen))


def _look_at_all(kubectl: Kubectl) -> Look:
    sdds = sorted(kubectl.all(), key=lambda sdd: str(sdd["metadata"]["name"]))
    if not sdds:
        return Look(Shown(Text(f"no {names.KIND} in {kubectl.namespace or 'this namespace'}")), ())
    seen: list[Fleet] = [fleet(sdd) for sdd in sdds]
    return Look(table(seen, sdds, time.time()), tuple(mark(item) for item in seen))


def _order(name: str, given: tuple[str, ...], decide: Callable[[Raw], orders.Order | orders.Refusal]) -> None:
    """Read, decide, write, say. A refusal is an error; an order that is so already is not."""

    def run() -> None:
        kubectl = Kubectl(given)
        order = decide(kubectl.get(name))
        if isinstance(order, orders.Refusal):
            fail(order.says)
        if order.patch is not None:
            kubectl.patch(name, order.patch)
        screen = console()
        screen.print(Shown(Text(order.says)))
        for warning in order.warnings:
            screen.print(Shown(Text(f"note: {warning}", "yellow")))
        if order.patch is not None:
            screen.print(Shown(Text(f"follow it: kubectl specfleet status {name} -w", "dim")))

    guarded(run)


def _new_id() -> str:
    return str(uuid.uuid4())
