"""The commands of `kubectl specfleet`: each reads with kubectl, decides in a pure function, and says what it did."""

import time
import uuid
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from specfleet import __version__
from specfleet.api import names
from specfleet.cli import orders
from specfleet.cli.fleet import Fleet, fleet, mark
from specfleet.cli.kubectl import Kubectl, KubectlError, options
from specfleet.cli.table import table
from specfleet.cli.tree import view
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


@app.command()
def status(
    name: AnyName = None,
    watching: Watch = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """What a fleet is doing, why it waits, and on what evidence; without NAME, a table of all."""
    kubectl, console = Kubectl(options(namespace, context, kubeconfig)), _console()

    def look() -> Look:
        return _look(kubectl, name) if name else _look_at_all(kubectl)

    def show() -> None:
        if watching:
            watch(look, console, time.sleep)
        else:
            console.print(look().shown)

    _guarded(show)


@app.command()
def promote(name: Name, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Send the canary to 100 % now, without its remaining steps and proof; guards still hold."""
    _order(name, options(namespace, context, kubeconfig), lambda sdd: orders.act(sdd, "Promote", _new_id()))


@app.command()
def abort(name: Name, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """End the canary: its traffic goes back to stable, and it stays aborted until the spec changes."""
    _order(name, options(namespace, context, kubeconfig), lambda sdd: orders.act(sdd, "Abort", _new_id()))


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


def _look(kubectl: Kubectl, name: str) -> Look:
    sdd = kubectl.get(name)
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
            _fail(order.says)
        if order.patch is not None:
            kubectl.patch(name, order.patch)
        console = _console()
        console.print(Shown(Text(order.says)))
        for warning in order.warnings:
            console.print(Shown(Text(f"note: {warning}", "yellow")))
        if order.patch is not None:
            console.print(Shown(Text(f"follow it: kubectl specfleet status {name} -w", "dim")))

    _guarded(run)


def _guarded(run: Callable[[], None]) -> None:
    try:
        run()
    except KubectlError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _fail(line: str) -> NoReturn:
    """One line on stderr, never folded, and exit status 1."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(Shown(Text(f"error: {line}")))
    raise typer.Exit(1)


def _console() -> Console:
    return Console(highlight=False, markup=False, emoji=False)


def _new_id() -> str:
    return str(uuid.uuid4())
